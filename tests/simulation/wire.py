"""How do requests travel in the simulation?

`InProcess` carries them to the sandbox's routes without sockets or threads, so that virtual time moves everything;
watch lines come late by the lag of the moment, in order, as from a slow watch cache. `Faulty` stands before it and, when
its script says so, loses a request, loses an answer after the commit, answers an error, or kills the operator at a
write. Both speak the product's Transport protocol (D17); the world hands them to the operator.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field

from raytide.api.errors import Unavailable
from raytide.kube.transport import Response, StreamRefused, Transport
from raytide.sandbox.apiserver.routes import Api, Request, WatchCursor

BOOKMARK_S = 60.0
"""How often a real API server tells an idle watch how far the world is."""
WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


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
                yield line
        finally:
            self._open.discard(cursor)
            cursor.close()

    async def close(self) -> None:
        """Nothing is open."""


@dataclass
class Fault:
    """One trouble: what happens to the write it meets."""

    kind: str
    """kill-before, kill-after, lost-request, lost-answer, or an HTTP status such as 409, 429, 500, 503."""


@dataclass
class Script:
    """Which of the coming writes meet trouble; consumed in order, None lets a write pass."""

    coming: list[Fault | None] = field(default_factory=list)
    met: list[str] = field(default_factory=list)

    def next(self) -> Fault | None:
        if not self.coming:
            return None
        fault = self.coming.pop(0)
        if fault:
            self.met.append(fault.kind)
        return fault


class Faulty:
    """A transport that does to writes what its script says; reads and streams pass."""

    def __init__(self, inner: Transport, script: Script, *, kill: Callable[[], None]) -> None:
        self._inner = inner
        self._script = script
        self._kill = kill
        self.stream = inner.stream
        self.close = inner.close

    async def request(self, method: str, path: str, *, timeout_s: float, **rest: object) -> Response:
        fault = self._script.next() if method in WRITES and "/events" not in path else None
        if fault is None:
            return await self._inner.request(method, path, timeout_s=timeout_s, **rest)
        if fault.kind == "kill-before":
            self._kill()
            await asyncio.Event().wait()
        if fault.kind == "lost-request":
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
