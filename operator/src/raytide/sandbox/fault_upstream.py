"""How does the fault proxy reach the API server behind it?

Takes requests as they came from a client and carries them on over connections of its own, whole answers and endless
bodies alike; watches come as late as the proxy says, and not at all out of a black hole. Whatever happens on this side of
the proxy is an aiohttp error; `Lost` and `Refused` are what a fault script does to a stream. Used by `fault_proxy.py`
only, beneath its `Faulty`.
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

from raytide.sandbox.apiserver.messages import Response
from raytide.sandbox.certificates import Identity

_NOT_PASSED_ON: Final = frozenset(
    {"host", "connection", "keep-alive", "transfer-encoding", "content-length", "te", "trailer", "date", "server"}
)
_KEEP_ALIVE_S: Final = 60.0
"""An API server closes an idle connection after 90 s; being earlier saves a request that nobody meant to lose."""

OnOpen = Callable[[Mapping[str, str]], Awaitable[None]]
"""Told the headers of a stream that was accepted."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """The API server behind the proxy, and who the proxy is for clients that show no bearer token."""

    server: str
    authority: bytes | None = None
    token: str = ""
    identity: Identity | None = None
    """A client certificate, used if there is no token."""

    @classmethod
    def of_kubeconfig(cls, path: Path) -> Self:
        """The current context of a kubeconfig whose certificates are written inside."""
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
        """Connections to it; `is_identified` shows the client certificate, which beats any token."""
        tls: ssl.SSLContext | None = None
        if self.server.startswith("https"):
            tls = ssl.create_default_context(cadata=self.authority.decode() if self.authority else None)
            if is_identified and self.identity is not None:
                self.identity.load_into(tls)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls or True, limit=0, keepalive_timeout=_KEEP_ALIVE_S),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent", "Content-Type"),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10.0),
        )


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


@dataclass(frozen=True, slots=True)
class PassedOn:
    """One request on its way."""

    method: str
    path: str
    url: str
    """Path and query as they were sent."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names are lower-case; nothing that belongs to one connection only."""
    body: bytes | None

    @classmethod
    def of(cls, request: web.BaseRequest, body: bytes | None) -> Self:
        """As it came from the client."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        for name in _NOT_PASSED_ON & headers.keys():
            del headers[name]
        return cls(request.method, request.path, request.path_qs, request.query, headers, body)

    @property
    def is_watch(self) -> bool:
        """Whether the answer is a watch."""
        return self.method == "GET" and self.query.get("watch", "false") in ("1", "true", "")

    @property
    def is_stream(self) -> bool:
        """Whether the answer may not end."""
        return self.is_watch or (self.method == "GET" and self.query.get("follow", "false") == "true")


class Lost(Exception):  # noqa: N818 - what happened to the client
    """The script broke the connection."""


class Refused(Exception):  # noqa: N818 - an answer
    """A stream is answered with something else than 200."""

    def __init__(self, response: Response) -> None:
        super().__init__(f"refused with {response.status}")
        self.response = response


class WireTroubles:
    """The exceptions of `Faulty`, for a proxy."""

    def lost(self, message: str, *, is_outcome_unknown: bool) -> Exception:
        """No complete answer is to reach the client."""
        del is_outcome_unknown
        return Lost(message)

    def refused(self, response: Response) -> Exception:
        """The client gets this answer."""
        return Refused(response)


class Hole:
    """A black hole for watches: opened and closed by people, any number of times."""

    def __init__(self) -> None:
        self.is_open = False
        self.number = 0
        """How many times it was opened."""

    def open(self) -> None:
        """From now on no watch hears anything."""
        self.is_open = True
        self.number += 1

    def close(self) -> None:
        """New watches are answered again; those that were in the hole never are."""
        self.is_open = False


class UpstreamWire:
    """Carries requests to one API server (the shape that `Faulty` wants)."""

    def __init__(self, upstream: Upstream, *, lag_s: Callable[[], float], hole: Hole) -> None:
        self._upstream = upstream
        self._lag_s = lag_s
        self._hole = hole
        self._plain = upstream.open_session(is_identified=False)
        self._identified = upstream.open_session(is_identified=True)

    async def close(self) -> None:
        """Let go of every connection."""
        await self._plain.close()
        await self._identified.close()

    def _opened(self, call: PassedOn, headers: dict[str, str]) -> Any:
        """The request with the client's credentials, or ours where it shows none."""
        session = self._plain
        if "authorization" not in headers:
            session = self._identified if not self._upstream.token else self._plain
            if self._upstream.token:
                headers["authorization"] = f"Bearer {self._upstream.token}"
        url = URL(self._upstream.server + call.url, encoded=True)
        return session.request(call.method, url, headers=headers, data=call.body, allow_redirects=False)

    async def request(self, method: str, path: str, *, timeout_s: float, **rest: Any) -> Response:
        """One request, one whole answer."""
        del method, path, timeout_s  # the client has its own patience
        call: PassedOn = rest["call"]
        async with self._opened(call, dict(call.headers)) as response:
            return Response(response.status, await response.read(), _passed_back(response))

    async def stream(self, path: str, *, silence_s: float, **rest: Any) -> AsyncGenerator[bytes, None]:
        """A body that may not end, as late as it has to be."""
        del path, silence_s
        call: PassedOn = rest["call"]
        on_open: OnOpen = rest["on_open"]
        await self._not_in_a_hole(self._hole.number)
        number = self._hole.number
        headers = {k: v for k, v in call.headers.items() if k != "accept-encoding"}
        if call.is_watch and "protobuf" in headers.get("accept", ""):
            headers["accept"] = "application/json"  # lines are what the script can do something to
        async with self._opened(call, headers) as response:
            if response.status != 200:
                raise Refused(Response(response.status, await response.read(), _passed_back(response)))
            await on_open(_passed_back(response))
            async for chunk in self._late(response.content):
                await self._not_in_a_hole(number)
                yield chunk
            await self._not_in_a_hole(number)

    async def _not_in_a_hole(self, number: int) -> None:
        """Return, unless there is or was a black hole."""
        if self._hole.is_open or self._hole.number != number:
            await asyncio.Event().wait()

    async def _late(self, content: aiohttp.StreamReader) -> AsyncGenerator[bytes, None]:
        """Each chunk as late as the lag was when it came, never before an earlier one."""
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
