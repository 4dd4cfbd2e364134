"""Transport protocol: requests and streams to one API server.

Sends one request and returns the whole answer, or opens a stream and yields its bytes. Two results only: `ApiUnavailableError`
(no answer in time, connection lost), and a `Response` for every answer of the server. Implemented over aiohttp, in
process by the sandbox's routes, and by fault injection around either (D17). Used by `kube/client`.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from raytide.api.errors import ApiUnavailableError


@dataclass(frozen=True, slots=True)
class Response:
    """A complete answer; header names are lower-case."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class StreamStatusError(Exception):
    """A stream was answered with a status other than 200; the whole answer is attached."""

    def __init__(self, response: Response) -> None:
        super().__init__(f"stream rejected with HTTP status {response.status}")
        self.response = response


class TooLargeError(ApiUnavailableError):
    """The answer is larger than the transport reads; request less."""


class Transport(Protocol):
    """Connection to one API server."""

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
        """Send one request; raises `ApiUnavailableError` without a full answer in `timeout_s`, `TooLargeError` if it is too big."""
        ...

    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        silence_s: float,
    ) -> AsyncIterator[bytes]:
        """GET an endless body, chunk by chunk; an empty first chunk reports that it is open.

        Ends when the server closes cleanly; raises `StreamStatusError` on a status other than 200, `ApiUnavailableError` when the
        connection is lost or silent for `silence_s`. Close it with `aclose()`.
        """
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...
