"""HTTP transport to an API server, based on aiohttp.

Implements `Transport`: connections are reused, every call has a deadline, silent streams are abandoned. Every network
error becomes `ApiUnavailableError`, with the information whether a write may have reached the server. Created by
`kube/kubeconfig`; the session adds credentials.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from typing import Final
from urllib.parse import quote, urlencode

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from raytide.api.errors import ApiUnavailableError
from raytide.kube.transport import Response, StreamStatusError, TooLargeError
from raytide.runtime.clock import Clock

OPEN_STREAM_S: Final = 10.0
MAX_BYTES: Final = 16 << 20
"""Limit of one answer: ten times the largest object in etcd, and several times a full page of usual objects."""


class _Body(aiohttp.BytesPayload):
    """Request body that is not sent after its deadline; checked once more before its first byte leaves.

    If the process is stopped, or the machine suspended, between asking the write gate and sending, the write must not
    be sent: another replica may be the leader (D10). The check uses the gate's clock, which advances during suspend.
    aiohttp sends headers and the first piece of the body together, after this check.
    """

    def __init__(self, content: bytes, clock: Clock, timeout_s: float) -> None:
        super().__init__(content)
        self._clock = clock
        self._send_before = clock.boottime() + timeout_s
        self.may_have_been_sent = False
        """The first byte may have left: from here on the outcome of the request may be unknown."""

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Send the body unless its deadline has passed while the connection was opened; aiohttp calls this then."""
        if self._clock.boottime() >= self._send_before:
            raise TimeoutError("the request timed out before it was sent")
        self.may_have_been_sent = True
        await super().write_with_length(writer, content_length)


class HttpTransport:
    """One API server behind an aiohttp session.

    - Every answer of the server is a `Response`; its header names are lower-case.
    - No answer within `timeout_s`, and a connection that is refused, reset or closed half-way, are `ApiUnavailableError`.
    - The outcome of a write is unknown exactly if its first byte had left before the error; without a body, always.
    - An answer of more than 16 MiB is not read to its end: `TooLargeError`, and the outcome of a write is unknown.
    - No body is sent after `timeout_s`, even if the process was stopped or the machine suspended in between.
    - A stream yields an empty chunk when it is open, then bytes, and ends when the server ends it. It is `ApiUnavailableError`
      if not opened within ten seconds, after `silence_s` without bytes, or if it breaks, and `StreamStatusError` with the
      answer on a status other than 200.
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
        except TooLargeError as error:
            error.is_outcome_unknown = method != "GET"
            raise
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            is_unknown = method != "GET" and (sending is None or sending.may_have_been_sent)
            raise ApiUnavailableError(_error_text(error, timeout_s), is_outcome_unknown=is_unknown) from error

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
            async with asyncio.timeout(OPEN_STREAM_S):  # streams open at once, then may be silent
                response = await self._session.get(
                    self._url(path, query), headers=headers, timeout=patience, allow_redirects=False
                )
            async with response:
                if response.status != 200:
                    async with asyncio.timeout(OPEN_STREAM_S):
                        error_response = await _whole(response)
                    raise StreamStatusError(error_response)
                try:
                    yield b""
                    async for chunk in response.content.iter_any():
                        yield chunk
                finally:
                    _abort(response)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ApiUnavailableError(_error_text(error, silence_s)) from error

    async def close(self) -> None:
        """See `Transport`."""
        await self._session.close()

    def _url(self, path: str, query: Mapping[str, str] | None) -> URL:
        """Build the URL as text: yarl would parse every part again for every request."""
        asked = f"?{urlencode(query, quote_via=quote)}" if query else ""
        return URL(f"{self._server}/{path.removeprefix('/')}{asked}", encoded=True)


def _abort(response: aiohttp.ClientResponse) -> None:
    """Close the connection of an unfinished answer without TLS close_notify.

    A silent server would not answer it, and asyncio keeps the socket for 30 s to wait for it. No effect on an answer
    that was read to its end: its connection is reused.
    """
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()


async def _whole(response: aiohttp.ClientResponse) -> Response:
    pieces, size = [], 0
    if (response.content_length or 0) <= MAX_BYTES:
        async for piece in response.content.iter_any():
            size += len(piece)
            if size > MAX_BYTES:
                break
            pieces.append(piece)
        else:
            return _response(response, b"".join(pieces))
    response.close()  # the connection cannot be reused without reading the rest
    raise TooLargeError(f"the response is larger than {MAX_BYTES >> 20} MiB", is_answer=True)


def _response(response: aiohttp.ClientResponse, body: bytes) -> Response:
    return Response(response.status, body, {name.lower(): value for name, value in response.headers.items()})


def _error_text(error: Exception, patience_s: float) -> str:
    """Describe the error; time-outs of asyncio and aiohttp have no message, and those of connects the address twice."""
    if isinstance(error, TimeoutError) and not str(error):
        return f"no response within {patience_s:.0f} s"
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, aiohttp.ClientSSLError):
        number, text = error.os_error.errno, error.os_error.strerror
        return f"cannot connect to {error.host}:{error.port}: {os.strerror(number) if number and number > 0 else text}"
    return str(error) or type(error).__name__
