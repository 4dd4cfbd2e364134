"""How do requests travel to an API server over HTTP?

The aiohttp form of `Transport`: connections are reused, every call has a deadline, streams are given up when silent. It
turns every trouble of a network into `Unavailable` and says honestly whether a write may have reached the server. Made
by `kube/connect`; knows nothing of credentials, which the session adds by itself.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from types import SimpleNamespace
from typing import Any, Final

import aiohttp
from yarl import URL

from raytide.api.errors import Unavailable
from raytide.kube.transport import Response, StreamRefused

OPEN_STREAM_S: Final = 10.0


def sending_trace() -> aiohttp.TraceConfig:
    """Notes in a request's context that its first byte has left: from here on its outcome may be unknown."""

    async def note(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: Any) -> None:
        sent = context.trace_request_ctx
        if sent is not None:
            sent.append(True)

    config = aiohttp.TraceConfig()
    config.on_request_headers_sent.append(note)
    return config


class HttpTransport:
    """One API server behind an aiohttp session.

    - Whatever the server answers is a `Response`; its header names are lower-case.
    - No answer in `timeout_s`, a connection refused, reset or closed half-way are `Unavailable`.
    - The outcome of a write is unknown exactly if its first byte had left before the trouble.
    - A stream gives bytes as they come, ends when the server ends it, and is `Unavailable` after `silence_s` of silence
      or when it breaks; a stream that is answered with something else than 200 is `StreamRefused` with that answer.
    """

    def __init__(self, session: aiohttp.ClientSession, server: str) -> None:
        """The session needs `sending_trace()` among its trace configurations."""
        self._session = session
        self._server = URL(server.rstrip("/"))

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
        sent: list[bool] = []
        try:
            async with self._session.request(
                method,
                self._url(path),
                params=query,
                headers=headers,
                data=body,
                timeout=aiohttp.ClientTimeout(total=timeout_s),
                allow_redirects=False,
                trace_request_ctx=sent,
            ) as response:
                return await _whole(response)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            is_unknown = bool(sent) and method != "GET"
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
            async with self._session.get(
                self._url(path), params=query, headers=headers, timeout=patience, allow_redirects=False
            ) as response:
                if response.status != 200:
                    async with asyncio.timeout(OPEN_STREAM_S):
                        refusal = await _whole(response)
                    raise StreamRefused(refusal)
                async for chunk in response.content.iter_any():
                    yield chunk
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Unavailable(_words(error, silence_s)) from error

    async def close(self) -> None:
        """See `Transport`."""
        await self._session.close()

    def _url(self, path: str) -> URL:
        return self._server.joinpath(path.removeprefix("/"), encoded=True)


async def _whole(response: aiohttp.ClientResponse) -> Response:
    body = await response.read()
    return Response(response.status, body, {name.lower(): value for name, value in response.headers.items()})


def _words(error: Exception, patience_s: float) -> str:
    """Time-outs of asyncio and aiohttp have no words of their own."""
    if isinstance(error, TimeoutError) and not str(error):
        return f"no answer in {patience_s:.0f} s"
    return f"{type(error).__name__}: {error}"
