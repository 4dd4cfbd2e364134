"""What goes into the API server and what comes out, without any socket?

`Request` is one HTTP request as values; the answer is a `Response`, a `WatchCursor` (see `watching.py`) or a `Proxied`:
the advice to let a node's kubelet answer. Plain values that never act. Made and read by the HTTP adapter and by the
in-process transport of simulations, so both see the very same server (D17).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `path` is decoded and without query; header names are lower-case; repeated query keys: the first."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    user: str = "system:admin"
    raw_query: str = ""
    """The query as it was sent; only what is forwarded to a kubelet (exec's repeated `command`) needs it."""


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
    """True when the kubelet's refusals are the answer of a program behind it and go to the client as they are."""
