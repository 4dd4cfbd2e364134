"""Transport from the client to the sandbox's API by function calls, in virtual time.

No sockets and no threads, so virtual time moves all of it. Watch events are delivered in order, late by the current lag, as
from a slow watch cache. It loses and changes nothing: faults are injected by `support.faults.transport`, which wraps
it. This module has the errors that the client handles, and older states of the store for stale reads. Implements the
product's Transport protocol (D17).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from raytide.api.errors import ApiUnavailableError
from raytide.controller.reconcile_loop import ReconcileLoop
from raytide.kube.transport import Response, StreamStatusError
from raytide_sandbox.apiserver import read_handlers
from raytide_sandbox.apiserver.api_status import ApiStatusError
from raytide_sandbox.apiserver.request_info import Call, parse_target
from raytide_sandbox.apiserver.request_response import Response as ServerResponse
from raytide_sandbox.apiserver.routes import Api, Request, WatchCursor
from raytide_sandbox.apiserver.store import Change, Store
from support.faults import types

BOOKMARK_S = 60.0
"""Interval of the bookmarks of an idle watch of a real API server."""


class InProcessTransport:
    """The sandbox's API, reached by function calls.

    - A request takes `latency_s` each way in virtual time.
    - A watch event is delivered `lag_s()` after it happened, never before an earlier one.
    - A watch ends after the `timeoutSeconds` of its request.
    """

    def __init__(self, api: Api, *, latency_s: float = 0.001, lag_s: Callable[[], float] = lambda: 0.0) -> None:
        self._api = api
        self._latency_s = latency_s
        self._lag_s = lag_s
        self._open: dict[int, WatchCursor] = {}
        self.admission: Callable[[Request], types.Answer | None] = lambda _request: None
        """The response of a quota, a webhook or RBAC to a request; None: admitted."""
        self.mutate: Callable[[Request], Request] = lambda request: request
        """The request as a mutating webhook changes it."""
        self.on_request: Callable[[Request], None] = lambda _request: None
        """Called with every request when it is carried out."""

    @property
    def open_watches(self) -> int:
        """The number of open watches."""
        return len(self._open)

    def close_watches(self) -> None:
        """Close every open watch, as when a load balancer restarts; events in transit are still delivered."""
        for cursor in tuple(self._open.values()):
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
        request = Request(method, path, dict(query or {}), dict(headers or {}), body or b"")
        self.on_request(request)
        rejection = self.admission(request)
        answer = self._api.handle(self.mutate(request)) if rejection is None else types.answer(rejection)
        assert isinstance(answer, ServerResponse), "watches go through stream()"
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
        request = Request("GET", path, dict(query or {}), dict(headers or {}), b"")
        rejection = self.admission(request)
        cursor = self._api.handle(request) if rejection is None else types.answer(rejection)
        if not isinstance(cursor, WatchCursor):
            raise StreamStatusError(Response(cursor.status, cursor.body, cursor.headers))
        loop = asyncio.get_running_loop()
        delayed: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        def collect() -> None:
            for line in cursor.take():
                delayed.put_nowait((loop.time() + self._lag_s(), line))
            if cursor.is_closed:
                delayed.put_nowait((0.0, b""))

        def end() -> None:  # a real API server sends a bookmark shortly before it ends a watch
            cursor.add_bookmark()
            cursor.close()

        cursor.on_ready(collect)
        self._open[id(cursor)] = cursor
        end_timer = loop.call_later(cursor.options.timeout_s, end) if cursor.options.timeout_s else None
        try:
            while True:
                try:
                    async with asyncio.timeout(min(BOOKMARK_S, silence_s)):  # wait_for may swallow a cancel (3.11)
                        due_at, line = await delayed.get()
                except TimeoutError:
                    cursor.add_bookmark()
                    continue
                if not line:
                    return
                if due_at > loop.time():
                    await asyncio.sleep(due_at - loop.time())
                yield line
        finally:
            if end_timer:
                end_timer.cancel()
            self._open.pop(id(cursor), None)
            cursor.close()

    async def close(self) -> None:
        """There is nothing to close."""


class TransportErrors:
    """The errors that the product's transports raise."""

    def lost(self, message: str, *, is_outcome_unknown: bool) -> Exception:
        """No complete response was received."""
        return ApiUnavailableError(message, is_outcome_unknown=is_outcome_unknown)

    def rejected(self, response: ServerResponse) -> Exception:
        """A stream was answered with something else than 200."""
        return StreamStatusError(Response(response.status, response.body, response.headers))


class StoreHistory:
    """Responses of a server whose watch cache lags behind the store (Sieve's "time travel")."""

    def __init__(self, api: Api, store: Store, now_s: Callable[[], float]) -> None:
        self._api = api
        self._store = store
        self._now_s = now_s
        self._changes: list[tuple[float, Change]] = []
        self._before = {resource.key: dict(store.entries(resource.key)) for resource in store.resources()}
        self._version_before = store.version
        store.subscribe(lambda change: self._changes.append((now_s(), change)))

    def note(self, *_: Any) -> None:
        """Nothing to do: the changes of the store are recorded."""

    def recall(self, path: str, query: Mapping[str, str], fault: types.Stale, now_s: float) -> ServerResponse | None:
        """The response at that time; None if the path is no resource."""
        request = Request("GET", path, dict(query), {}, b"")
        try:
            target = parse_target(path)
            call = Call(request, target, self._api._registry.find(target.group, target.version, target.plural))
            old = self._store_at(self._version_at(call.key, fault, now_s))
            return read_handlers.get(old, call) if target.name else read_handlers.list_objects(old, call)
        except ApiStatusError as status:
            headers = {"content-type": "application/json"}
            return ServerResponse(status.code, read_handlers.encode(status.body()), headers)

    def _version_at(self, resource: str, fault: types.Stale, now_s: float) -> int:
        version = self._version_before
        of_kind = [change.version for _, change in self._changes if change.key.resource == resource]
        latest = of_kind[-1 - fault.lag_changes] if len(of_kind) > fault.lag_changes else self._version_before
        for at_s, change in self._changes:
            if at_s <= now_s - fault.lag_s and (not fault.lag_changes or change.version <= latest):
                version = change.version
        return version

    def _store_at(self, version: int) -> Store:
        old = Store(now=self._store.now, new_uid=lambda: "unused")
        for resource in self._store.resources():
            old.define(resource)
        for key, entries in self._before.items():
            old._tables[key].objects.update({(each.namespace, each.name): entry for each, entry in entries.items()})
        for _, change in self._changes:
            if change.version <= version:
                objects, key = old._tables[change.key.resource].objects, (change.key.namespace, change.key.name)
                if change.type == "DELETED":
                    objects.pop(key, None)
                else:
                    objects[key] = change.entry
        old.version = version
        return old


async def wait_until_at_work(controller: ReconcileLoop) -> None:
    """Wait until its workers wait for keys. Fixtures run in real time, which a busy machine may need long for."""
    async with asyncio.timeout(60):
        while not controller.is_at_work:  # noqa: ASYNC110 - the product has no event for it
            await asyncio.sleep(0.01)
