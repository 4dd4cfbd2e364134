"""Requests and answers of the API server as plain values, without sockets.

`Request` is one HTTP request; its answer is a `Response`, a `WatchCursor` (see `watch_cursor.py`) or a `Proxied`, which
asks the adapter to forward to a node's kubelet. Used by the HTTP adapter and by the in-process transport of
simulations, so both run the same server (D17).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `path` is decoded, header names are lower-case, of repeated query keys only the first is kept."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    user: str = "system:admin"
    raw_query: str = ""
    """The query as sent; needed only for forwarding to a kubelet (exec's repeated `command`)."""


@dataclass(frozen=True, slots=True)
class Response:
    """One complete answer; header names are lower-case."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})


@dataclass(frozen=True, slots=True)
class Proxied:
    """Forward this request to the kubelet at `host:port` with `path` (query included), and pass its answer on.

    An `Upgrade` (WebSocket, SPDY) is passed on as it is; after the kubelet's 101 both directions are plain bytes.
    """

    host: str
    port: int
    path: str
    node: str
    is_transparent: bool = False
    """True when the kubelet's errors are those of a program behind it and go to the client unchanged."""
