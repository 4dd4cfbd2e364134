"""Kopf watch source: enqueues keys for the watch events of our kinds.

kopf watches our kinds in its own thread and event loop and makes one call per event, with the key and the version. It
writes nothing: no finalizer, annotation or event. It is restarted if it misses a change that our informers received ten
seconds ago, and when other kinds are served. Run by main.py; D1, D11. The only module that imports kopf.
"""

import asyncio
import logging
import sys
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from raytide.api.constants import OPERATOR
from raytide.api.meta import Key, Resource
from raytide.controller.watch_lag import WatchLag
from raytide.metrics import KOPF_EVENTS, KOPF_RESTARTS
from raytide.runtime.backoff import Backoff
from raytide.runtime.clock import Clock

# kopf accepts objects of the Kubernetes client library and imports it for that where it is installed: 20 MiB of memory and
# 0.1 s of CPU time for classes that this operator never passes to it.
_is_hidden = sys.modules.setdefault("kubernetes", None) is None  # type: ignore[arg-type]
import kopf  # noqa: E402 - after the line above

if _is_hidden:
    del sys.modules["kubernetes"]

log = logging.getLogger(__name__)

LAG_TOLERANCE_S: Final = 10.0
LONGEST_TOLERANCE_S: Final = 320.0
"""Limit of the tolerated lag: a kopf whose first list takes long must not be restarted forever."""
LOGINS_APART_S: Final = 300.0
"""Logins further apart than this are unrelated."""
CHECK_EVERY_S: Final = 2.0
KIND_CHECK_EVERY_S: Final = 0.1
KOPF_IDENTITY: Final[Any] = OPERATOR
"""Without it kopf looks up the user's name, and fails if the user has none, as in a container running as 65532."""
STABLE_S: Final = 60.0
ENDS_IN_S: Final = 5.0
MAX_UNSTOPPED_THREADS: Final = 3
METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1, application/json"


class KopfLogin:
    """Address of an API server and a session factory; `open` is called in kopf's event loop."""

    def __init__(self, server: str, open_session: Callable[..., Awaitable[aiohttp.ClientSession]]) -> None:
        self.server = server
        self.open_session = open_session


class NullDiffBase(kopf.DiffBaseStorage):
    """Stores nothing: kopf must not write to our objects."""

    def build(self, **_: Any) -> Any:
        """Return an empty essence."""
        return {}

    def fetch(self, **_: Any) -> Any:
        """Return None: nothing is stored."""
        return None

    def store(self, **_: Any) -> None:
        """Store nothing."""


class NullProgress(kopf.ProgressStorage):
    """Stores no progress."""

    def fetch(self, **_: Any) -> Any:
        """Return None: nothing is stored."""
        return None

    def store(self, **_: Any) -> None:
        """Store nothing."""

    def purge(self, **_: Any) -> None:
        """Purge nothing."""

    def touch(self, **_: Any) -> None:
        """Touch nothing."""

    def clear(self, *, essence: Any) -> Any:
        """Clear nothing."""
        return essence


@dataclass(frozen=True, slots=True)
class WatchedKind:
    """One kind that kopf watches while it is served."""

    resource: Resource
    enqueue: Callable[[Key, str], None]
    is_served: Callable[[], bool | None]
    """None until it is known."""
    watch_lag: WatchLag


class KopfEventSource:
    """kopf in its own thread, restarted when it stops delivering events.

    - Every event of a kind enqueues once, in the event loop that called `run`, with the version.
    - kopf is started when it is known which kinds are served and at least one is: it discovers kinds only once. It is
      restarted at once when the served kinds change.
    - A kopf that ends by itself is restarted after 1 s, 2 s, … 60 s; one that ran for a minute resets that.
    - A kopf that lags an informer by more than 10 s is restarted. Each lagging one doubles the tolerance of its
      successor, until one has caught up: a restart costs the API server a list.
    - A kopf that does not stop is abandoned; three of them are an error that only a process restart resolves.
    - `run` ends only by cancellation or by that error, and gives the thread five seconds to end.
    """

    def __init__(
        self, login: KopfLogin, kinds: Iterable[WatchedKind], *, clock: Clock, namespaces: tuple[str, ...] = ()
    ) -> None:
        self._login = login
        self._kinds = {kind.resource: kind for kind in kinds}
        self._clock = clock
        self._namespaces = namespaces
        self._unstopped_threads = 0

    async def run(self) -> None:
        """Enqueue keys until cancelled."""
        deaths = Backoff(first_s=1.0, longest_s=60.0)
        tolerance_s = LAG_TOLERANCE_S
        while True:
            served = await self._wait_for_kinds()
            for kind in self._kinds.values():
                kind.watch_lag.reset()
            kopf_thread = self._start(asyncio.get_running_loop(), served)
            started_at = self._clock.monotonic()
            try:
                while not (kopf_thread.ended.is_set() or self._lag_s() > tolerance_s or self._served() != served):
                    if not any(kind.watch_lag.has_pending_versions for kind in self._kinds.values()):
                        tolerance_s = LAG_TOLERANCE_S
                    await _wait_for(kopf_thread.ended, CHECK_EVERY_S)
                has_ended = kopf_thread.ended.is_set()
                has_trailed = not has_ended and self._served() == served
                why = "it ended" if has_ended else f"its watch is {self._lag_s():.0f} s behind"
            finally:
                await self._end(kopf_thread)
            if not (has_ended or has_trailed):
                log.info("restarting kopf: %s", "the API server serves other kinds than before")
                continue
            log.warning("restarting kopf: %s", why)
            KOPF_RESTARTS.inc()
            if has_trailed:
                tolerance_s = min(LONGEST_TOLERANCE_S, tolerance_s * 2)
            if has_trailed or self._clock.monotonic() - started_at > STABLE_S:
                deaths.reset()
            await asyncio.sleep(deaths.next_s())

    def _served(self) -> frozenset[Resource]:
        return frozenset(resource for resource, kind in self._kinds.items() if kind.is_served())

    async def _wait_for_kinds(self) -> frozenset[Resource]:
        """The served kinds, once there is one and all are known; waits at most as long as kopf may lag."""
        began_at = self._clock.monotonic()
        while True:
            served = self._served()
            are_known = all(kind.is_served() is not None for kind in self._kinds.values())
            if served and (are_known or self._clock.monotonic() - began_at > LAG_TOLERANCE_S):
                return served
            await asyncio.sleep(KIND_CHECK_EVERY_S)

    def _lag_s(self) -> float:
        return max(kind.watch_lag.lag_s() for kind in self._kinds.values())

    async def _end(self, kopf_thread: "_Thread") -> None:
        """Stop it, and wait a few seconds."""
        kopf_thread.stop.set()
        await _wait_for(kopf_thread.ended, ENDS_IN_S)
        if not kopf_thread.ended.is_set():
            self._unstopped_threads += 1
            log.warning("kopf did not stop within %.0f s", ENDS_IN_S)
        if self._unstopped_threads >= MAX_UNSTOPPED_THREADS:
            raise RuntimeError(f"{self._unstopped_threads} kopf threads did not stop")

    def _start(self, loop: asyncio.AbstractEventLoop, served: frozenset[Resource]) -> "_Thread":
        """Start a new kopf."""
        kopf_thread = _Thread(threading.Event(), asyncio.Event())

        def on_event(resource: Resource, key: Key, version: str, is_gone: bool) -> None:  # noqa: FBT001 - posted between threads by position
            # A stopped kopf may still report events: an extra pass is harmless.
            KOPF_EVENTS.labels(resource.plural).inc()
            kind = self._kinds[resource]
            kind.watch_lag.kopf_delivered(key, version, is_gone=is_gone)
            kind.enqueue(key, version)

        def work() -> None:
            try:
                common = (self._login, served, self._namespaces, kopf_thread.stop)
                asyncio.run(_operate(*common, lambda *a: _post(loop, on_event, *a)))
            except BaseException:
                if not kopf_thread.stop.is_set():
                    log.exception("kopf ended")
            finally:
                _post(loop, kopf_thread.ended.set)

        threading.Thread(target=work, name="kopf", daemon=True).start()
        return kopf_thread


@dataclass(frozen=True, slots=True)
class _Thread:
    """One kopf thread: stop flag, and whether it has ended."""

    stop: threading.Event
    ended: asyncio.Event


def _post(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: Any) -> None:
    """Call in the operator's event loop from kopf's thread; nothing once the loop is closed."""
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:
        log.debug("the event loop is closed")


async def _wait_for(event: asyncio.Event, timeout_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):  # wait_for may swallow a cancellation before Python 3.12
            await event.wait()


async def _operate(
    login: KopfLogin,
    resources: Collection[Resource],
    namespaces: tuple[str, ...],
    stop: threading.Event,
    on_event: Callable[[Resource, Key, str, bool], None],
) -> None:
    """Run kopf in the thread's own event loop."""
    registry = kopf.OperatorRegistry()

    rest = LoginBackoff()

    @kopf.on.login(registry=registry)
    async def give_session(**_: Any) -> kopf.AiohttpSession:
        await rest.before_next()
        session = await login.open_session(trace_configs=[metadata_only(resources)], response_class=NoNullItems)
        return kopf.AiohttpSession(aiohttp_session=session, server=login.server)

    for resource in resources:
        _handler_for(resource, registry, on_event)
    await kopf.operator(
        registry=registry,
        settings=read_only_kopf_settings(),
        identity=KOPF_IDENTITY,
        clusterwide=not namespaces,
        namespaces=namespaces,
        standalone=True,
        stop_flag=stop,
    )


def _handler_for(
    resource: Resource, registry: kopf.OperatorRegistry, on_event: Callable[[Resource, Key, str, bool], None]
) -> None:
    @kopf.on.event(resource.group, resource.version, resource.plural, registry=registry, id=resource.plural)
    async def on_change(*, namespace: str | None, name: str, meta: kopf.Meta, type: str | None, **_: Any) -> None:  # noqa: A002 - kopf's name
        on_event(resource, Key(namespace or "", name), str(meta.get("resourceVersion", "")), type == "DELETED")


class LoginBackoff:
    """Backoff of logins: kopf logs in again, at once and forever, when its session is answered with 401.

    - The first login does not wait, nor does one five minutes after the last.
    - Consecutive ones wait 1 s, 2 s, … 60 s.
    """

    def __init__(self) -> None:
        self._backoff = Backoff(first_s=1.0, longest_s=60.0)
        self._last_at: float | None = None

    async def before_next(self) -> None:
        """Wait for the backoff."""
        loop = asyncio.get_running_loop()
        if self._last_at is not None:
            if loop.time() - self._last_at > LOGINS_APART_S:
                self._backoff.reset()
            else:
                wait_s = self._backoff.next_s()
                log.warning("the API server rejected kopf's session, logging in again in %.0f s", wait_s)
                await asyncio.sleep(wait_s)
        self._last_at = loop.time()


def read_only_kopf_settings() -> kopf.OperatorSettings:
    """Settings for a kopf that watches our kinds, writes nothing and posts nothing."""
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.persistence.diffbase_storage = NullDiffBase()
    settings.persistence.progress_storage = NullProgress()
    settings.persistence.finalizer = "raytide.io/no-finalizer-of-kopf"
    settings.watching.server_timeout = 300
    settings.watching.reconnect_backoff = 1.0
    settings.networking.request_timeout = 30
    settings.execution.max_workers = 1
    settings.queueing.error_delays = (1, 2, 5, 10, 30, 60)
    return settings


class NoNullItems(aiohttp.ClientResponse):
    """Response class for empty metadata lists with `"items": null`, on which kopf fails."""

    async def json(self, **options: Any) -> Any:
        """Decode the body, with null `items` replaced by an empty list."""
        answer = await super().json(**options)
        if isinstance(answer, dict) and answer.get("items", ()) is None:
            return {**answer, "items": []}
        return answer


def metadata_only(resources: Iterable[Resource]) -> aiohttp.TraceConfig:
    """Request PartialObjectMetadata for lists and watches of these kinds: kopf needs no more."""
    ends = tuple(f"/{resource.plural}" for resource in resources)

    async def on_request_start(_session: Any, _context: Any, params: aiohttp.TraceRequestStartParams) -> None:
        if params.url.path.endswith(ends):
            is_watch = "watch" in params.url.query
            params.headers["Accept"] = METADATA_ONLY.format("" if is_watch else "List")

    config = aiohttp.TraceConfig()
    config.on_request_start.append(on_request_start)
    return config


class _Translated(logging.Handler):
    """Logs kopf's messages at debug level.

    kopf logs an unavailable API server as an error with a traceback, once per attempt. Our informers log that in one
    line, and the restart of a kopf that ended or lags is logged here.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Log the record in one line at debug level."""
        log.debug("kopf (%s): %s", record.levelname.lower(), record.getMessage())


def redirect_kopf_logs() -> None:
    """Send kopf's log messages to our log at debug level."""
    kopf_logger = logging.getLogger("kopf")
    kopf_logger.handlers[:] = [_Translated()]
    kopf_logger.propagate = False
    kopf_logger.setLevel(logging.WARNING)
