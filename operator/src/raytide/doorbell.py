"""When does a RayCluster need work?

kopf watches RayClusters in a thread and an event loop of its own and rings: one call per event, with the key and the
version seen. It never writes anything, neither finalizer nor annotation nor event; if it is silent about a change that our
own informer has seen for ten seconds, it is ended and started anew. Run by main.py; D1, D11. The only file besides main
and admission that knows kopf.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import kopf

from raytide.api.meta import RAYCLUSTERS, Key
from raytide.api.names import OPERATOR
from raytide.metrics import DOORBELL_RESTARTS, DOORBELL_RINGS
from raytide.runtime.backoff import Backoff
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

TRAILING_TOLERANCE_S: Final = 10.0
LONGEST_TOLERANCE_S: Final = 320.0
"""A kopf that needs long for its first list must not be started anew for ever."""
LOGINS_APART_S: Final = 300.0
"""Logins further apart than this have nothing to do with each other."""
CHECK_EVERY_S: Final = 2.0
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


class Trailing:
    """How far kopf is behind the informer.

    - A version the informer has seen is owed until kopf rings with it or a later one.
    - What is deleted is owed no more, and nothing is kept of it once both have said so.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._owed: dict[Key, tuple[str, float]] = {}
        self._rung: dict[Key, str] = {}

    def informer_saw(self, key: Key, version: str) -> None:
        """The informer shows that version."""
        if not _is_at_least(self._rung.get(key, ""), version):
            self._owed[key] = (version, self._owed.get(key, ("", self._clock.monotonic()))[1])

    def informer_lost(self, key: Key) -> None:
        """The informer says that it is gone."""
        self._owed.pop(key, None)
        self._rung.pop(key, None)

    def kopf_rang(self, key: Key, version: str, *, is_gone: bool = False) -> None:
        """Kopf has seen that version, or that the object is gone."""
        if is_gone:
            self._rung.pop(key, None)
        else:
            self._rung[key] = version
        owed = self._owed.get(key)
        if owed is not None and _is_at_least(version, owed[0]):
            del self._owed[key]

    def start_over(self) -> None:
        """Kopf starts anew and gets the full time for everything it owes."""
        now = self._clock.monotonic()
        self._owed = {key: (version, now) for key, (version, _) in self._owed.items()}

    def __len__(self) -> int:
        """How many objects are remembered."""
        return len(self._owed.keys() | self._rung.keys())

    @property
    def has_debts(self) -> bool:
        """Whether kopf owes anything."""
        return bool(self._owed)

    def behind_s(self) -> float:
        """Age of the oldest debt; 0 when there is none."""
        now = self._clock.monotonic()
        return now - min((since for _, since in self._owed.values()), default=now)


def _is_at_least(version: str, other: str) -> bool:
    if version.isdigit() and other.isdigit():
        return int(version) >= int(other)
    return version == other


async def _at_once() -> None:
    return


class Doorbell:
    """kopf in its own thread, replaced when it falls asleep.

    - Every event of a RayCluster rings once, in the loop that called `run`, with the version seen.
    - kopf is started when its kind is served: it looks only once which kinds there are.
    - A kopf that ends by itself is started anew after 1 s, 2 s, … 60 s; one that lived for a minute starts that anew.
    - A kopf that trails the informer by more than 10 s is started anew. Each one that trailed gives its successor twice
      the time, until one has caught up: starting anew costs the API server a list.
    - A kopf that does not end when told to is left behind; three of them are trouble that only a restart ends.
    - `run` ends only by being cancelled, or by that trouble, and gives the thread five seconds to end.
    """

    def __init__(
        self,
        login: Login,
        ring: Callable[[Key, str], None],
        *,
        clock: Clock,
        namespaces: tuple[str, ...] = (),
        kind_is_served: Callable[[], Awaitable[None]] = _at_once,
    ) -> None:
        """`kind_is_served` returns when it is."""
        self.trailing = Trailing(clock)
        self._login = login
        self._ring = ring
        self._clock = clock
        self._namespaces = namespaces
        self._kind_is_served = kind_is_served
        self._left_behind = 0

    async def run(self) -> None:
        """Ring until cancelled."""
        deaths = Backoff(first_s=1.0, longest_s=60.0)
        tolerance_s = TRAILING_TOLERANCE_S
        while True:
            await self._kind_is_served()
            self.trailing.start_over()
            kopf_thread = self._start(asyncio.get_running_loop())
            born_at = self._clock.monotonic()
            try:
                while not kopf_thread.ended.is_set() and self.trailing.behind_s() <= tolerance_s:
                    if not self.trailing.has_debts:
                        tolerance_s = TRAILING_TOLERANCE_S
                    await _wait_for(kopf_thread.ended, CHECK_EVERY_S)
                has_died = kopf_thread.ended.is_set()
                why = "it ended" if has_died else f"it trails by {self.trailing.behind_s():.0f} s"
            finally:
                await self._end(kopf_thread)
            log.warning("kopf is started anew: %s", why)
            DOORBELL_RESTARTS.inc()
            if not has_died:
                tolerance_s = min(LONGEST_TOLERANCE_S, tolerance_s * 2)
            if not has_died or self._clock.monotonic() - born_at > LIVED_S:
                deaths.reset()
            await asyncio.sleep(deaths.next_s())

    async def _end(self, kopf_thread: "_Thread") -> None:
        """Tell it to stop, and give it a moment."""
        kopf_thread.stop.set()
        await _wait_for(kopf_thread.ended, ENDS_IN_S)
        if not kopf_thread.ended.is_set():
            self._left_behind += 1
            log.warning("kopf does not end although it was told to")
        if self._left_behind >= LEFT_BEHIND:
            raise RuntimeError(f"{self._left_behind} threads of kopf do not end")

    def _start(self, loop: asyncio.AbstractEventLoop) -> "_Thread":
        """A fresh kopf."""
        kopf_thread = _Thread(threading.Event(), asyncio.Event())

        def rang(key: Key, version: str, is_gone: bool) -> None:  # noqa: FBT001 - posted between threads by position
            # A kopf that was told to stop may still have words: a ring too many does no harm.
            DOORBELL_RINGS.inc()
            self.trailing.kopf_rang(key, version, is_gone=is_gone)
            self._ring(key, version)

        def work() -> None:
            try:
                operating = _operate(self._login, self._namespaces, kopf_thread.stop, lambda *a: _post(loop, rang, *a))
                asyncio.run(operating)
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
    login: Login, namespaces: tuple[str, ...], stop: threading.Event, rang: Callable[[Key, str, bool], None]
) -> None:
    """Kopf itself, in the thread's own loop."""
    registry = kopf.OperatorRegistry()

    rest = LoginRest()

    @kopf.on.login(registry=registry)
    async def give_session(**_: Any) -> kopf.AiohttpSession:
        await rest.before_next()
        session = await login.open_session(trace_configs=[metadata_only()], response_class=NoNullItems)
        return kopf.AiohttpSession(aiohttp_session=session, server=login.server)

    @kopf.on.event(RAYCLUSTERS.group, RAYCLUSTERS.version, RAYCLUSTERS.plural, registry=registry)
    async def on_raycluster(*, namespace: str | None, name: str, meta: kopf.Meta, type: str | None, **_: Any) -> None:  # noqa: A002 - kopf's name
        rang(Key(namespace or "", name), str(meta.get("resourceVersion", "")), type == "DELETED")

    await kopf.operator(
        registry=registry,
        settings=quiet_settings(),
        identity=KOPF_IDENTITY,
        clusterwide=not namespaces,
        namespaces=namespaces,
        standalone=True,
        stop_flag=stop,
    )


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
    """A kopf that watches one kind, writes nothing and posts nothing."""
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


def metadata_only() -> aiohttp.TraceConfig:
    """Asks for PartialObjectMetadata where RayClusters are listed or watched: kopf needs no more."""

    async def on_request_start(_session: Any, _context: Any, params: aiohttp.TraceRequestStartParams) -> None:
        if params.url.path.endswith(f"/{RAYCLUSTERS.plural}"):
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
