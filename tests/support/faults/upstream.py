"""The fault proxy's client side: connections to the API server behind it.

Forwards requests as they came from a client over connections of its own, both whole answers and streams; streams are
delayed by the proxy's lag, and blocked by a black hole. Failures on this side of the proxy are aiohttp errors; `ConnectionLostError`
and `StreamRejectedError` are what a fault script does to a stream. Used only by `proxy.py`, beneath its `Faulty`.
"""

import asyncio
import base64
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
import yaml
from aiohttp import web
from yarl import URL

from raytide_sandbox.apiserver.request_response import Response
from raytide_sandbox.certificates import Identity
from raytide_sandbox.connections import ClosingConnector

_NOT_PASSED_ON: Final = frozenset(
    {"host", "connection", "keep-alive", "transfer-encoding", "content-length", "te", "trailer", "date", "server"}
)
_KEEP_ALIVE_S: Final = 60.0
"""Below the 90 s after which an API server closes idle connections, so that no request is lost to that close."""

OnOpen = Callable[[Mapping[str, str]], Awaitable[None]]
"""Called with the headers of an accepted stream."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """The API server behind the proxy, and the credentials for clients that send no bearer token."""

    server: str
    authority: bytes | None = None
    token: str = ""
    identity: Identity | None = None
    """A client certificate, used if there is no token."""

    @classmethod
    def of_kubeconfig(cls, path: Path) -> Self:
        """Read the current context of a kubeconfig with embedded certificates."""
        config = yaml.safe_load(path.read_text())
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"])["user"]
        authority = cluster.get("certificate-authority-data")
        certificate, key = user.get("client-certificate-data"), user.get("client-key-data")
        return cls(
            server=cluster["server"].rstrip("/"),
            authority=base64.b64decode(authority) if authority else None,
            token=user.get("token", ""),
            identity=Identity(base64.b64decode(certificate), base64.b64decode(key)) if certificate else None,
        )

    def open_session(self, *, is_identified: bool) -> aiohttp.ClientSession:
        """Open a session; with `is_identified` it presents the client certificate, which overrides any token."""
        tls: ssl.SSLContext | None = None
        if self.server.startswith("https"):
            tls = ssl.create_default_context(cadata=self.authority.decode() if self.authority else None)
            if is_identified and self.identity is not None:
                self.identity.load_into(tls)
        return aiohttp.ClientSession(
            connector=ClosingConnector(ssl=tls or True, limit=0, keepalive_timeout=_KEEP_ALIVE_S),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent", "Content-Type"),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10.0),
        )


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


@dataclass(frozen=True, slots=True)
class ForwardedCall:
    """One request to be forwarded."""

    method: str
    path: str
    url: str
    """Path and query as the client sent them."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Lower-case names, without the headers of a single connection."""
    body: bytes | None

    @classmethod
    def of(cls, request: web.BaseRequest, body: bytes | None) -> Self:
        """Convert the client's request."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        for name in _NOT_PASSED_ON & headers.keys():
            del headers[name]
        return cls(request.method, request.path, request.path_qs, request.query, headers, body)

    @property
    def is_watch(self) -> bool:
        """True when the answer is a watch."""
        return self.method == "GET" and self.query.get("watch", "false") in ("1", "true", "")

    @property
    def is_stream(self) -> bool:
        """True for a watch or a followed log, whose answer may not end."""
        return self.is_watch or (self.method == "GET" and self.query.get("follow", "false") == "true")


class ConnectionLostError(Exception):
    """The script broke the connection."""


class StreamRejectedError(Exception):
    """A stream is answered with a status other than 200."""

    def __init__(self, response: Response) -> None:
        super().__init__(f"rejected with {response.status}")
        self.response = response


class WireErrors:
    """The exceptions that `Faulty` raises in the proxy."""

    def lost(self, message: str, *, is_outcome_unknown: bool) -> Exception:
        """The client gets no complete answer."""
        del is_outcome_unknown
        return ConnectionLostError(message)

    def rejected(self, response: Response) -> Exception:
        """The client gets this answer."""
        return StreamRejectedError(response)


class Hole:
    """A black hole for streams; callers open and close it any number of times."""

    def __init__(self) -> None:
        self.is_open = False
        self.number = 0
        """How many times it was opened."""

    def open(self) -> None:
        """Block all streams from now on."""
        self.is_open = True
        self.number += 1

    def close(self) -> None:
        """Answer new streams again; those that were blocked stay blocked."""
        self.is_open = False


class UpstreamWire:
    """Carries requests to one API server (the `Wire` that `Faulty` needs)."""

    def __init__(self, upstream: Upstream, *, lag_s: Callable[[], float], hole: Hole) -> None:
        self._upstream = upstream
        self._lag_s = lag_s
        self._hole = hole
        self._plain = upstream.open_session(is_identified=False)
        self._identified = upstream.open_session(is_identified=True)

    async def close(self) -> None:
        """Close every connection."""
        await self._plain.close()
        await self._identified.close()

    def _opened(self, call: ForwardedCall, headers: dict[str, str]) -> Any:
        """Start the request with the client's credentials, or the upstream's where the client sends none."""
        session = self._plain
        if "authorization" not in headers:
            session = self._identified if not self._upstream.token else self._plain
            if self._upstream.token:
                headers["authorization"] = f"Bearer {self._upstream.token}"
        url = URL(self._upstream.server + call.url, encoded=True)
        return session.request(call.method, url, headers=headers, data=call.body, allow_redirects=False)

    async def request(self, method: str, path: str, *, timeout_s: float, **rest: Any) -> Response:
        """Forward one request and return its whole answer."""
        del method, path, timeout_s  # the client has its own timeout
        call: ForwardedCall = rest["call"]
        async with self._opened(call, dict(call.headers)) as response:
            return Response(response.status, await response.read(), _passed_back(response))

    async def stream(self, path: str, *, silence_s: float, **rest: Any) -> AsyncGenerator[bytes, None]:
        """Forward a request and yield its body, delayed by the lag."""
        del path, silence_s
        call: ForwardedCall = rest["call"]
        on_open: OnOpen = rest["on_open"]
        await self._not_in_a_hole(self._hole.number)
        number = self._hole.number
        headers = {k: v for k, v in call.headers.items() if k != "accept-encoding"}
        if call.is_watch and "protobuf" in headers.get("accept", ""):
            headers["accept"] = "application/json"  # faults need JSON lines
        async with self._opened(call, headers) as response:
            if response.status != 200:
                raise StreamRejectedError(Response(response.status, await response.read(), _passed_back(response)))
            await on_open(_passed_back(response))
            async for chunk in self._late(response.content):
                await self._not_in_a_hole(number)
                yield chunk
            await self._not_in_a_hole(number)

    async def _not_in_a_hole(self, number: int) -> None:
        """Return, or block for ever if a black hole is open or was opened since `number`."""
        if self._hole.is_open or self._hole.number != number:
            await asyncio.Event().wait()

    async def _late(self, content: aiohttp.StreamReader) -> AsyncGenerator[bytes, None]:
        """Yield each chunk delayed by the lag at its arrival, in order."""
        loop = asyncio.get_running_loop()
        on_the_way: asyncio.Queue[tuple[float, bytes | Exception | None]] = asyncio.Queue()

        async def read() -> None:
            end: Exception | None = None
            try:
                async for chunk in content.iter_any():
                    on_the_way.put_nowait((loop.time() + self._lag_s(), chunk))
            except (aiohttp.ClientError, OSError) as error:
                end = error
            on_the_way.put_nowait((loop.time() + self._lag_s(), end))

        reading = loop.create_task(read())
        try:
            while True:
                due_at, chunk = await on_the_way.get()
                if due_at > loop.time():
                    await asyncio.sleep(due_at - loop.time())
                if isinstance(chunk, Exception):
                    raise chunk
                if chunk is None:
                    return
                yield chunk
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading


def _passed_back(response: aiohttp.ClientResponse) -> dict[str, str]:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return {name: value for name, value in headers.items() if name not in _NOT_PASSED_ON}
