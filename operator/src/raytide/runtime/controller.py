"""When is a key reconciled, and what if that goes wrong?

Rings go in from doorbells and informers; `reconcile(key)` is called by a few workers, never twice at once for one key,
and says when to look again. It promises that the first ring of an idle key is answered at once, that followers are
bundled, and that no trouble of one key stops another. Wired in `main.py`; knows neither Ray nor Kubernetes (D4).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from zlib import crc32

from raytide.api.errors import Refused, Unavailable
from raytide.api.meta import Key
from raytide.runtime.clock import Clock
from raytide.runtime.logs import PASS
from raytide.runtime.workqueue import WorkQueue

log = logging.getLogger(__name__)

RESYNC_SLOTS = 60
LONGEST_AWAY_S = 10.0
"""Fifteen seconds after an outage everything has to be in work again (SC:S18)."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a controller may go; every field in seconds unless its name says otherwise."""

    bundle_s: float = 0.2
    """`ring_soon` works on a key at most once in this time …"""
    bundle_factor: float = 10.0
    """… or in this many times its last pass, whichever is longer (D4) …"""
    bundle_longest_s: float = 2.0
    """… but no longer than this: a pass that spent its 2 s waiting for the API must not make readiness 20 s late."""
    resync_s: float = 1800.0
    drain_s: float = 10.0


class Controller:
    """N workers on one queue of keys.

    - `run` rings every key that `keys` knows; rings before it are dropped, because those keys are known by then.
    - After `stop`, or after being cancelled, it can `run` again, remembering nothing of before.
    - `ring` of an idle key is worked on at once; so is the first `ring_soon`.
    - `ring_soon` after a pass waits until max(0.2 s, 10 × that pass), at most 2 s, have gone by since its end.
    - A ring that carries a version told to `saw` is the echo of our own work and is dropped, also during the pass.
    - `reconcile` returns seconds: look again then; 0 puts the key at the tail of the queue; None: only when rung.
    - `Unavailable` backs off from 0.2 to 10 s, at least as long as the server asked, and stays quiet.
    - `Refused` backs off from 5 to 60 s.
    - Anything else is a bug: its traceback is logged, it backs off from 1 to 300 s, and other keys go on.
    - Every key is rung once per `resync_s`, at a moment fixed by its name, so that the load is spread.
    - `stop` takes no more keys, lets running passes end for 10 s, then cancels them; `run` returns.
    - `oldest_running_s` says how long the oldest running pass has been going on, for liveness (D9).
    """

    def __init__(
        self,
        name: str,
        reconcile: Callable[[Key], Awaitable[float | None]],
        *,
        clock: Clock,
        keys: Callable[[], Iterable[Key]],
        workers: int = 8,
        pace: Pace | None = None,
    ) -> None:
        self.name = name
        self.passes = 0
        self._reconcile = reconcile
        self._clock = clock
        self._keys = keys
        self._worker_count = workers
        self._pace = pace or Pace()
        self._queue: WorkQueue[Key] = WorkQueue()
        self._queue.shut_down()
        self._workers: list[asyncio.Task[None]] = []
        self._resyncing: asyncio.Task[None] | None = None
        self._started_at: dict[Key, float] = {}
        self._rests_until: dict[Key, float] = {}
        self._seen: dict[Key, tuple[str, ...]] = {}
        self._heard: dict[Key, set[str]] = {}
        self._is_soon: set[Key] = set()

    def ring(self, key: Key, version: str = "") -> None:
        """Something about it changed, for example its spec; `version` is the resourceVersion seen, if known."""
        if not version or not self._queue.is_running(key):
            if not version or version not in self._seen.get(key, ()):
                self._queue.put(key)
        else:  # perhaps the echo of a write whose answer is still on its way: decided when the pass ends
            self._heard.setdefault(key, set()).add(version)

    def ring_soon(self, key: Key) -> None:
        """Something that comes in swarms changed, for example one of its pods."""
        if self._queue.is_running(key):
            self._is_soon.add(key)
        else:
            self._queue.put_after(key, self._rests_until.get(key, 0.0) - self._clock.monotonic())

    def saw(self, key: Key, *versions: str) -> None:
        """The pass has read, or itself written, these versions: rings that carry one are no news.

        Name the version of an own write only if the answer differs from what was read in nothing but that write.
        """
        self._seen[key] = versions

    def forget(self, key: Key) -> None:
        """The object is gone: keep nothing about it (but how long it rests: its pods are still going, in a swarm)."""
        self._queue.forget(key)
        self._seen.pop(key, None)
        self._heard.pop(key, None)
        self._is_soon.discard(key)

    def oldest_running_s(self) -> float:
        """Age of the oldest running pass; 0 when idle."""
        return self._clock.monotonic() - min(self._started_at.values(), default=self._clock.monotonic())

    def running(self) -> int:
        """How many passes are under way."""
        return len(self._started_at)

    @property
    def is_at_work(self) -> bool:
        """Whether there are workers that take keys."""
        return any(not worker.done() for worker in self._workers)

    def waiting(self) -> int:
        """How many keys are due and have no worker."""
        return len(self._queue)

    async def run(self) -> None:
        """Work until stopped."""
        self._start_over()
        for key in self._keys():
            self._queue.put(key)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._workers = [tasks.create_task(self._work()) for _ in range(self._worker_count)]
                self._resyncing = tasks.create_task(self._resync())
        finally:
            self._queue.shut_down()

    def _start_over(self) -> None:
        self._queue = WorkQueue()
        for memory in (self._rests_until, self._seen, self._heard, self._is_soon):
            memory.clear()

    async def stop(self) -> None:
        """Ordered end: no new passes, time for the running ones, then the axe."""
        self._queue.shut_down()
        if self._resyncing is not None:
            self._resyncing.cancel()
        if self._workers:
            _, late = await asyncio.wait(self._workers, timeout=self._pace.drain_s)
            for worker in late:
                worker.cancel()

    async def _work(self) -> None:
        while (key := await self._queue.get()) is not None:
            self.passes += 1
            started_at = self._started_at[key] = self._clock.monotonic()
            label = f"controller={self.name} namespace={key.namespace} name={key.name} pass={self.passes}"
            token = PASS.set(label)
            try:
                await self._pass(key)
            finally:
                PASS.reset(token)
                del self._started_at[key]
                self._end(key, self._clock.monotonic() - started_at)

    async def _pass(self, key: Key) -> None:
        try:
            look_again_in = await self._reconcile(key)
        except Unavailable as trouble:
            wait_s = trouble.retry_after_s or 0.0
            delay_s = self._queue.put_backed_off(key, longest_s=LONGEST_AWAY_S, at_least_s=wait_s)
            log.info("not available, again in %.1f s: %s", delay_s, trouble)
        except Refused as refused:
            delay_s = self._queue.put_backed_off(key, first_s=5.0, longest_s=60.0)
            log.warning("refused (%s), again in %.0f s: %s", refused.reason, delay_s, refused)
        except Exception:
            delay_s = self._queue.put_backed_off(key, first_s=1.0, longest_s=300.0)
            log.exception("this is a bug, again in %.0f s", delay_s)
        else:
            self._queue.succeeded(key)
            if look_again_in is not None:
                self._queue.put_after(key, look_again_in)

    def _end(self, key: Key, took_s: float) -> None:
        pace = self._pace
        rest_s = min(pace.bundle_longest_s, max(pace.bundle_s, pace.bundle_factor * took_s))
        self._rests_until[key] = self._clock.monotonic() + rest_s
        if self._heard.pop(key, set()) - set(self._seen.get(key, ())):
            self._queue.put(key)
        self._queue.done(key)
        if key in self._is_soon:
            self._is_soon.discard(key)
            self._queue.put_after(key, rest_s)

    async def _resync(self) -> None:
        """Ring a sixtieth of the keys at a time."""
        slot = 0
        while True:
            await asyncio.sleep(self._pace.resync_s / RESYNC_SLOTS)
            now = self._clock.monotonic()
            self._rests_until = {key: until for key, until in self._rests_until.items() if until > now}
            for key in self._keys():
                if crc32(str(key).encode()) % RESYNC_SLOTS == slot:
                    self.ring(key)
            slot = (slot + 1) % RESYNC_SLOTS
