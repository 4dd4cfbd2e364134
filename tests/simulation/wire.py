"""How do requests travel in the simulation?

`InProcess` carries them to the sandbox's routes without sockets or threads, so that virtual time moves everything;
watch lines come late by the lag of the moment, in order, as from a slow watch cache, and may be spoiled. `Faulty` stands
before it and, when its script says so, loses a request, loses an answer after the commit, commits long after everybody
gave up, answers an error, kills the operator at a write, or lets nobody through for a while. Both speak the product's
Transport protocol (D17); the world hands them to the operator.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field

from raytide.api.errors import Unavailable
from raytide.kube.transport import Response, StreamRefused, Transport
from raytide.sandbox.apiserver.routes import Api, Request, WatchCursor

BOOKMARK_S = 60.0
"""How often a real API server tells an idle watch how far the world is."""
WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
EXPIRED = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'
SPOILS = ("expired", "garbage", "no-utf-8", "half-line", "twice")
"""What may happen to a watch line. None is lost for good: an API server never does that to a watch it keeps open."""


class InProcess:
    """The sandbox's API, reached by function calls.

    - A request takes `latency_s` each way in virtual time.
    - A watch line is delivered `lag_s()` after it happened, never before an earlier one.
    """

    def __init__(self, api: Api, *, latency_s: float = 0.001, lag_s: Callable[[], float] = lambda: 0.0) -> None:
        self._api = api
        self._latency_s = latency_s
        self._lag_s = lag_s
        self._open: set[WatchCursor] = set()
        self.spoils: list[str] = []
        """What happens to the next lines of any watch, one each."""

    def cut(self) -> None:
        """Every open watch ends, as when a load balancer restarts."""
        for cursor in tuple(self._open):
            cursor.close()

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
        del timeout_s
        await asyncio.sleep(self._latency_s)
        answer = self._api.handle(Request(method, path, dict(query or {}), dict(headers or {}), body or b""))
        assert not isinstance(answer, WatchCursor), "watches go through stream()"
        await asyncio.sleep(self._latency_s)
        return Response(answer.status, answer.body, answer.headers)

    async def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        silence_s: float,
    ) -> AsyncIterator[bytes]:
        await asyncio.sleep(self._latency_s)
        cursor = self._api.handle(Request("GET", path, dict(query or {}), dict(headers or {}), b""))
        if not isinstance(cursor, WatchCursor):
            raise StreamRefused(Response(cursor.status, cursor.body, cursor.headers))
        loop = asyncio.get_running_loop()
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        def collect() -> None:
            for line in cursor.take():
                late.put_nowait((loop.time() + self._lag_s(), line))

        cursor.on_ready(collect)
        collect()
        self._open.add(cursor)
        try:
            while not (cursor.is_closed and late.empty()):
                try:
                    due_at, line = await asyncio.wait_for(late.get(), min(BOOKMARK_S, silence_s))
                except TimeoutError:
                    cursor.add_bookmark()
                    continue
                await asyncio.sleep(max(0.0, due_at - loop.time()))
                for piece in spoiled(line, self.spoils.pop(0) if self.spoils else ""):
                    yield piece
        finally:
            self._open.discard(cursor)
            cursor.close()

    async def close(self) -> None:
        """Nothing is open."""


def spoiled(line: bytes, how: str) -> tuple[bytes, ...]:
    """The line as it arrives."""
    pieces = {
        "expired": (EXPIRED,),
        "garbage": (b"}{" + line,),
        "no-utf-8": (b'{"type":"\xff\xfe"}\n',),
        "half-line": (line[: len(line) // 2], line[len(line) // 2 :]),
        "twice": (line, line),
    }
    return pieces.get(how, (line,))


@dataclass
class Fault:
    """One trouble: what happens to the write it meets."""

    kind: str
    """kill-before, kill-after, lost-request, lost-answer, late-commit, or an HTTP status such as 409, 429, 500, 503."""


@dataclass
class Script:
    """Which of the coming writes meet trouble; consumed in order, None lets a write pass."""

    coming: list[Fault | None] = field(default_factory=list)
    met: list[str] = field(default_factory=list)
    away_until: float = 0.0
    """Until then nobody answers anything."""
    reads_sick_until: float = 0.0
    """Until then every read is answered 503."""
    delay_s: float = 0.0
    """How long after everybody gave up a late commit comes."""
    on_late_commit: Callable[[bytes | None], None] = lambda _body: None

    def next(self) -> Fault | None:
        if not self.coming:
            return None
        fault = self.coming.pop(0)
        if fault:
            self.met.append(fault.kind)
        return fault


class Faulty:
    """A transport that does to requests and streams what its script says."""

    def __init__(self, inner: Transport, script: Script, *, kill: Callable[[], None]) -> None:
        self._inner = inner
        self._script = script
        self._kill = kill
        self.close = inner.close
        self._late: set[asyncio.Task[object]] = set()

    async def stream(self, path: str, **rest: object) -> AsyncIterator[bytes]:
        self._refuse_if_away()
        async with aclosing(self._inner.stream(path, **rest)) as chunks:
            async for chunk in chunks:
                yield chunk

    def _refuse_if_away(self) -> None:
        if asyncio.get_running_loop().time() < self._script.away_until:
            raise Unavailable("connection refused")

    async def _commit_late(self, method: str, path: str, **rest: object) -> None:
        await asyncio.sleep(self._script.delay_s)
        self._script.on_late_commit(rest.get("body"))
        await self._inner.request(method, path, **rest)

    async def request(self, method: str, path: str, *, timeout_s: float, **rest: object) -> Response:
        self._refuse_if_away()
        if method == "GET" and asyncio.get_running_loop().time() < self._script.reads_sick_until:
            return refusal(503)
        fault = self._script.next() if method in WRITES and "/events" not in path else None
        if fault is None:
            return await self._inner.request(method, path, timeout_s=timeout_s, **rest)
        if fault.kind == "kill-before":
            self._kill()
            await asyncio.Event().wait()
        if fault.kind == "lost-request":
            await asyncio.sleep(timeout_s)
            raise Unavailable("timed out", is_outcome_unknown=True)
        if fault.kind == "late-commit":
            late = asyncio.ensure_future(self._commit_late(method, path, timeout_s=timeout_s, **rest))
            self._late.add(late)
            late.add_done_callback(self._late.discard)
            await asyncio.sleep(timeout_s)
            raise Unavailable("timed out", is_outcome_unknown=True)
        if fault.kind.isdigit():
            return refusal(int(fault.kind))
        await self._inner.request(method, path, timeout_s=timeout_s, **rest)
        if fault.kind == "kill-after":
            self._kill()
            await asyncio.Event().wait()
        await asyncio.sleep(timeout_s)
        raise Unavailable("timed out", is_outcome_unknown=True)


def refusal(status: int) -> Response:
    """What an API server in trouble answers."""
    reasons = {409: "Conflict", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}
    body = f'{{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"{reasons[status]}","message":"","code":{status}}}'
    return Response(status, body.encode(), {"retry-after": "1"} if status == 429 else {})
