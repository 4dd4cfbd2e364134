"""When does an object of ours need work?

kopf watches our kinds in a thread and an event loop of its own and rings: one call per event, with the key and the version
seen. It never writes anything, neither finalizer nor annotation nor event; if it is silent about a change that our own
informers have seen for ten seconds, it is ended and started anew, as it is when another kind is served. Run by main.py;
D1, D11. The only file besides main and admission that knows kopf.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import kopf

from raytide.api.meta import Key, Resource
from raytide.api.names import OPERATOR
from raytide.metrics import DOORBELL_RESTARTS, DOORBELL_RINGS
from raytide.runtime.backoff import Backoff
from raytide.runtime.clock import Clock
from raytide.runtime.trailing import Trailing

log = logging.getLogger(__name__)

TRAILING_TOLERANCE_S: Final = 10.0
LONGEST_TOLERANCE_S: Final = 320.0
"""A kopf that needs long for its first list must not be started anew for ever."""
LOGINS_APART_S: Final = 300.0
"""Logins further apart than this have nothing to do with each other."""
CHECK_EVERY_S: Final = 2.0
KIND_CHECK_EVERY_S: Final = 0.1
KOPF_IDENTITY: Final[Any] = OPERATOR
"""Without one kopf asks for the user's name, and ends where the user has none, as in a container that runs as 65532."""
LIVED_S: Final = 60.0
ENDS_IN_S: Final = 5.0
LEFT_BEHIND: Final = 3
METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1, application/json"


class Login:
    """An API server's address and a session for it; `open` is called in kopf's own event loop."""

    def __init__(self, server: str, open_session: Callable[..., Awaitable[aiohttp.ClientSession]]) -> None:
        self.server = server
        self.open_session = open_session


class NullDiffBase(kopf.DiffBaseStorage):
    """Keeps nothing: kopf has no business on our objects."""

    def build(self, **_: Any) -> Any:
        """No essence."""
        return {}

    def fetch(self, **_: Any) -> Any:
        """Nothing was ever stored."""
        return None

    def store(self, **_: Any) -> None:
        """Nowhere."""


class NullProgress(kopf.ProgressStorage):
    """Keeps nothing either."""

    def fetch(self, **_: Any) -> Any:
        """Nothing was ever stored."""
        return None

    def store(self, **_: Any) -> None:
        """Nowhere."""

    def purge(self, **_: Any) -> None:
        """Nothing to purge."""

    def touch(self, **_: Any) -> None:
        """Nothing to touch."""

    def clear(self, *, essence: Any) -> Any:
        """Nothing to clear."""
        return essence


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind that kopf watches while it is served."""

    resource: Resource
    ring: Callable[[Key, str], None]
    is_served: Callable[[], bool | None]
    """None as long as nobody knows."""
    trailing: Trailing


class Doorbell:
    """kopf in its own thread, replaced when it falls asleep.

    - Every event of a kind rings once, in the loop that called `run`, with the version seen.
    - kopf is started when it is known which kinds are served, and one is: it looks only once which kinds there are. It is
      started anew, at once, when others are.
    - A kopf that ends by itself is started anew after 1 s, 2 s, … 60 s; one that lived for a minute starts that anew.
    - A kopf that trails an informer by more than 10 s is started anew. Each one that trailed gives its successor twice
      the time, until one has caught up: starting anew costs the API server a list.
    - A kopf that does not end when told to is left behind; three of them are trouble that only a restart ends.
    - `run` ends only by being cancelled, or by that trouble, and gives the thread five seconds to end.
    """

    def __init__(self, login: Login, kinds: Iterable[Kind], *, clock: Clock, namespaces: tuple[str, ...] = ()) -> None:
        self._login = login
        self._kinds = {kind.resource: kind for kind in kinds}
        self._clock = clock
        self._namespaces = namespaces
        self._left_behind = 0

    async def run(self) -> None:
        """Ring until cancelled."""
        deaths = Backoff(first_s=1.0, longest_s=60.0)
        tolerance_s = TRAILING_TOLERANCE_S
        while True:
            served = await self._wait_for_kinds()
            for kind in self._kinds.values():
                kind.trailing.start_over()
            kopf_thread = self._start(asyncio.get_running_loop(), served)
            born_at = self._clock.monotonic()
            try:
                while not (kopf_thread.ended.is_set() or self._behind_s() > tolerance_s or self._served() != served):
                    if not any(kind.trailing.has_debts for kind in self._kinds.values()):
                        tolerance_s = TRAILING_TOLERANCE_S
                    await _wait_for(kopf_thread.ended, CHECK_EVERY_S)
                has_died = kopf_thread.ended.is_set()
                has_trailed = not has_died and self._served() == served
                why = "it ended" if has_died else f"it trails by {self._behind_s():.0f} s"
            finally:
                await self._end(kopf_thread)
            if not (has_died or has_trailed):
                log.info("other kinds are served than before, kopf is started anew for them")
                continue
            log.warning("kopf is started anew: %s", why)
            DOORBELL_RESTARTS.inc()
            if has_trailed:
                tolerance_s = min(LONGEST_TOLERANCE_S, tolerance_s * 2)
            if has_trailed or self._clock.monotonic() - born_at > LIVED_S:
                deaths.reset()
            await asyncio.sleep(deaths.next_s())

    def _served(self) -> frozenset[Resource]:
        return frozenset(resource for resource, kind in self._kinds.items() if kind.is_served())

    async def _wait_for_kinds(self) -> frozenset[Resource]:
        """The kinds that are served, once there is one and all are known; not for longer than kopf may trail."""
        began_at = self._clock.monotonic()
        while True:
            served = self._served()
            are_known = all(kind.is_served() is not None for kind in self._kinds.values())
            if served and (are_known or self._clock.monotonic() - began_at > TRAILING_TOLERANCE_S):
                return served
            await asyncio.sleep(KIND_CHECK_EVERY_S)

    def _behind_s(self) -> float:
        return max(kind.trailing.behind_s() for kind in self._kinds.values())

    async def _end(self, kopf_thread: "_Thread") -> None:
        """Tell it to stop, and give it a moment."""
        kopf_thread.stop.set()
        await _wait_for(kopf_thread.ended, ENDS_IN_S)
        if not kopf_thread.ended.is_set():
            self._left_behind += 1
            log.warning("kopf does not end although it was told to")
        if self._left_behind >= LEFT_BEHIND:
            raise RuntimeError(f"{self._left_behind} threads of kopf do not end")

    def _start(self, loop: asyncio.AbstractEventLoop, served: frozenset[Resource]) -> "_Thread":
        """A fresh kopf."""
        kopf_thread = _Thread(threading.Event(), asyncio.Event())

        def rang(resource: Resource, key: Key, version: str, is_gone: bool) -> None:  # noqa: FBT001 - posted between threads by position
            # A kopf that was told to stop may still have words: a ring too many does no harm.
            DOORBELL_RINGS.labels(resource.plural).inc()
            kind = self._kinds[resource]
            kind.trailing.kopf_rang(key, version, is_gone=is_gone)
            kind.ring(key, version)

        def work() -> None:
            try:
                told = (self._login, served, self._namespaces, kopf_thread.stop)
                asyncio.run(_operate(*told, lambda *a: _post(loop, rang, *a)))
            except BaseException:
                if not kopf_thread.stop.is_set():
                    log.exception("kopf ended")
            finally:
                _post(loop, kopf_thread.ended.set)

        threading.Thread(target=work, name="kopf", daemon=True).start()
        return kopf_thread


@dataclass(frozen=True, slots=True)
class _Thread:
    """One kopf: how to tell it to stop, and whether it has ended."""

    stop: threading.Event
    ended: asyncio.Event


def _post(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: Any) -> None:
    """Call it in that loop, unless the loop is closed by now."""
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:
        log.debug("the loop is closed")


async def _wait_for(event: asyncio.Event, timeout_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):  # wait_for may swallow a cancellation before Python 3.12
            await event.wait()


async def _operate(
    login: Login,
    resources: Collection[Resource],
    namespaces: tuple[str, ...],
    stop: threading.Event,
    rang: Callable[[Resource, Key, str, bool], None],
) -> None:
    """Kopf itself, in the thread's own loop."""
    registry = kopf.OperatorRegistry()

    rest = LoginRest()

    @kopf.on.login(registry=registry)
    async def give_session(**_: Any) -> kopf.AiohttpSession:
        await rest.before_next()
        session = await login.open_session(trace_configs=[metadata_only(resources)], response_class=NoNullItems)
        return kopf.AiohttpSession(aiohttp_session=session, server=login.server)

    for resource in resources:
        _ring_for(resource, registry, rang)
    await kopf.operator(
        registry=registry,
        settings=quiet_settings(),
        identity=KOPF_IDENTITY,
        clusterwide=not namespaces,
        namespaces=namespaces,
        standalone=True,
        stop_flag=stop,
    )


def _ring_for(
    resource: Resource, registry: kopf.OperatorRegistry, rang: Callable[[Resource, Key, str, bool], None]
) -> None:
    @kopf.on.event(resource.group, resource.version, resource.plural, registry=registry, id=resource.plural)
    async def on_change(*, namespace: str | None, name: str, meta: kopf.Meta, type: str | None, **_: Any) -> None:  # noqa: A002 - kopf's name
        rang(resource, Key(namespace or "", name), str(meta.get("resourceVersion", "")), type == "DELETED")


class LoginRest:
    """Time between logins: kopf logs in anew, at once and for ever, when its session is answered 401.

    - The first login does not wait, nor does one five minutes after the last.
    - The next in a row wait 1 s, 2 s, … 60 s.
    """

    def __init__(self) -> None:
        self._backoff = Backoff(first_s=1.0, longest_s=60.0)
        self._last_at: float | None = None

    async def before_next(self) -> None:
        """Wait as long as it takes."""
        loop = asyncio.get_running_loop()
        if self._last_at is not None:
            if loop.time() - self._last_at > LOGINS_APART_S:
                self._backoff.reset()
            else:
                wait_s = self._backoff.next_s()
                log.warning("kopf's session is not accepted, logging in again in %.0f s", wait_s)
                await asyncio.sleep(wait_s)
        self._last_at = loop.time()


def quiet_settings() -> kopf.OperatorSettings:
    """A kopf that watches our kinds, writes nothing and posts nothing."""
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
    """An empty list of metadata says `"items": null`; kopf ends when it sees that."""

    async def json(self, **options: Any) -> Any:
        """The body, with a list where a list belongs."""
        answer = await super().json(**options)
        if isinstance(answer, dict) and answer.get("items", ()) is None:
            return {**answer, "items": []}
        return answer


def metadata_only(resources: Iterable[Resource]) -> aiohttp.TraceConfig:
    """Asks for PartialObjectMetadata where these kinds are listed or watched: kopf needs no more."""
    ends = tuple(f"/{resource.plural}" for resource in resources)

    async def on_request_start(_session: Any, _context: Any, params: aiohttp.TraceRequestStartParams) -> None:
        if params.url.path.endswith(ends):
            is_watch = "watch" in params.url.query
            params.headers["Accept"] = METADATA_ONLY.format("" if is_watch else "List")

    config = aiohttp.TraceConfig()
    config.on_request_start.append(on_request_start)
    return config


class _Translated(logging.Handler):
    """What kopf says, as ours.

    To kopf an API server that is away is an error with a traceback, once per attempt. We have informers that say so in
    one line, and a kopf that ends or trails is told by its doorbell: its own words are for those who debug.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Say it, one line, for those who debug."""
        log.debug("kopf says (%s): %s", record.levelname.lower(), record.getMessage())


def hush_kopf() -> None:
    """From now on kopf's words are debug lines of ours."""
    kopfs = logging.getLogger("kopf")
    kopfs.handlers[:] = [_Translated()]
    kopfs.propagate = False
    kopfs.setLevel(logging.WARNING)
