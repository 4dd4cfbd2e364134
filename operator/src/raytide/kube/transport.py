"""What is the least a wire to an API server must do?

A protocol: send one request and get the whole answer, or open a stream and get its bytes as they come. It promises two
kinds of trouble only: `Unavailable` (nobody answered in time, connection lost) and an ordinary `Response` for everything
the server did say. Implemented over aiohttp here, in process over the sandbox's routes, and by fault scripts around
either (D17); `kube/client` and `kube/informer` are the callers.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from raytide.api.errors import Unavailable


@dataclass(frozen=True, slots=True)
class Response:
    """A complete answer; header names are lower-case."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class StreamRefused(Exception):  # noqa: N818 - an answer, not an error of ours
    """A stream was answered with something else than 200; the whole answer is attached."""

    def __init__(self, response: Response) -> None:
        super().__init__(f"stream refused with {response.status}")
        self.response = response


class TooLarge(Unavailable):
    """The answer is larger than a transport reads in one piece; ask for less."""


class Transport(Protocol):
    """One API server, reached somehow."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float,
    ) -> Response:
        """Send one request; raises `Unavailable` when no complete answer came within `timeout_s`, `TooLarge` for one that is."""
        ...

    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        silence_s: float,
    ) -> AsyncIterator[bytes]:
        """GET a body that never ends, chunk by chunk; an empty first chunk says that it is open.

        Ends when the server closes cleanly; raises `StreamRefused` on another status than 200, `Unavailable` when the
        connection is lost or silent for `silence_s`. Close it with `aclose()`.
        """
        ...

    async def close(self) -> None:
        """Let go of every connection."""
        ...
