"""How do requests travel to an API server over HTTP?

The aiohttp form of `Transport`: connections are reused, every call has a deadline, streams are given up when silent. It
turns every trouble of a network into `Unavailable` and says honestly whether a write may have reached the server. Made
by `kube/connect`; knows nothing of credentials, which the session adds by itself.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Final
from urllib.parse import quote, urlencode

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from raytide.api.errors import Unavailable
from raytide.kube.transport import Response, StreamRefused, TooLarge
from raytide.runtime.clock import Clock

OPEN_STREAM_S: Final = 10.0
MOST_BYTES: Final = 16 << 20
"""Of one answer: ten times the largest object that etcd stores, and several times a full page of usual ones."""


class _Body(aiohttp.BytesPayload):
    """What one request sends, as long as there is time; looked at once more before its first byte leaves.

    A process that was stopped, or a machine that was suspended, between asking the write gate and sending must not send
    after it: by then another replica may be the one that writes (D10). So this asks the gate's clock, which goes on while
    the machine sleeps. aiohttp sends headers and the first piece of the body together, after this.
    """

    def __init__(self, content: bytes, clock: Clock, timeout_s: float) -> None:
        super().__init__(content)
        self._clock = clock
        self._ends_at = clock.boottime() + timeout_s
        self.has_left = False
        """Its first byte may have left: from here on the outcome of the request may be unknown."""

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Called by aiohttp when the connection is there."""
        if self._clock.boottime() >= self._ends_at:
            raise TimeoutError("its time was over before it could be sent")
        self.has_left = True
        await super().write_with_length(writer, content_length)


class HttpTransport:
    """One API server behind an aiohttp session.

    - Whatever the server answers is a `Response`; its header names are lower-case.
    - No answer in `timeout_s`, a connection refused, reset or closed half-way are `Unavailable`.
    - The outcome of a write is unknown exactly if its first byte had left before the trouble; without a body, always.
    - An answer of more than 16 MiB is not read to its end: `TooLarge`, and the outcome of a write is unknown.
    - No body leaves after `timeout_s`, not even when the process was stopped or the machine suspended in between.
    - A stream gives an empty chunk when it is open and then bytes as they come, ends when the server ends it, and is
      `Unavailable` when it is not opened in ten seconds, after `silence_s` of silence, or when it breaks; a stream that is answered with something else than 200 is `StreamRefused` with that answer.
    """

    def __init__(self, session: aiohttp.ClientSession, server: str, *, clock: Clock | None = None) -> None:
        self._session = session
        self._clock = clock or Clock()
        self._server = server.rstrip("/")

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
        """See `Transport`."""
        sending = None if body is None else _Body(body, self._clock, timeout_s)
        try:
            async with self._session.request(
                method,
                self._url(path, query),
                headers=headers,
                data=sending,
                timeout=aiohttp.ClientTimeout(total=timeout_s),
                allow_redirects=False,
            ) as response:
                return await _whole(response)
        except TooLarge as error:
            error.is_outcome_unknown = method != "GET"
            raise
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            is_unknown = method != "GET" and (sending is None or sending.has_left)
            raise Unavailable(_words(error, timeout_s), is_outcome_unknown=is_unknown) from error

    async def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        silence_s: float,
    ) -> AsyncGenerator[bytes, None]:
        """See `Transport`."""
        patience = aiohttp.ClientTimeout(total=None, sock_connect=OPEN_STREAM_S, sock_read=silence_s)
        try:
            async with asyncio.timeout(OPEN_STREAM_S):  # an API server opens a stream at once, and then may say nothing
                response = await self._session.get(
                    self._url(path, query), headers=headers, timeout=patience, allow_redirects=False
                )
            async with response:
                if response.status != 200:
                    async with asyncio.timeout(OPEN_STREAM_S):
                        refusal = await _whole(response)
                    raise StreamRefused(refusal)
                yield b""
                async for chunk in response.content.iter_any():
                    yield chunk
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Unavailable(_words(error, silence_s)) from error

    async def close(self) -> None:
        """See `Transport`."""
        await self._session.close()

    def _url(self, path: str, query: Mapping[str, str] | None) -> URL:
        """Put together as text: yarl would look at every part of it again, for every request."""
        asked = f"?{urlencode(query, quote_via=quote)}" if query else ""
        return URL(f"{self._server}/{path.removeprefix('/')}{asked}", encoded=True)


async def _whole(response: aiohttp.ClientResponse) -> Response:
    pieces, size = [], 0
    if (response.content_length or 0) <= MOST_BYTES:
        async for piece in response.content.iter_any():
            size += len(piece)
            if size > MOST_BYTES:
                break
            pieces.append(piece)
        else:
            return _response(response, b"".join(pieces))
    response.close()  # what is left of it is not worth reading, and the connection cannot be used before
    raise TooLarge(f"the answer is larger than {MOST_BYTES >> 20} MiB", is_answer=True)


def _response(response: aiohttp.ClientResponse, body: bytes) -> Response:
    return Response(response.status, body, {name.lower(): value for name, value in response.headers.items()})


def _words(error: Exception, patience_s: float) -> str:
    """Time-outs of asyncio and aiohttp have no words of their own."""
    if isinstance(error, TimeoutError) and not str(error):
        return f"no answer in {patience_s:.0f} s"
    return f"{type(error).__name__}: {error}"
