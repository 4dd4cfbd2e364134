"""Reconcile loop: workers that call `reconcile(key)` for queued keys.

Informers and kopf enqueue keys; a few workers take them and call `reconcile`, never twice concurrently for one key. Its
return value is the requeue delay. An idle key is reconciled at once, bursts of changes are batched, and a failing key
does not block others. Wired in `manager/main.py`; independent of Ray and Kubernetes (D4).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias
from zlib import crc32

from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.api.meta import Key
from raytide.controller.workqueue import WorkQueue
from raytide.metrics import RECONCILE_ERRORS, RECONCILE_SECONDS
from raytide.runtime.clock import Clock
from raytide.runtime.logs import PASS

log = logging.getLogger(__name__)

RESYNC_SLOTS = 60
UNAVAILABLE, REJECTED, UNEXPECTED = ERROR_REASONS = ("unavailable", "rejected", "unexpected")
"""Values of the label `reason` of `raytide_reconcile_errors_total`."""
LONGEST_BACKOFF_S = 10.0
"""Longest backoff while the API server is away: 15 s after an outage all keys must be reconciled again (SC:S18)."""


Reconcile: TypeAlias = Callable[[Key], Awaitable[float | None]]


@dataclass(frozen=True, slots=True)
class Pace:
    """Rate limits of a controller, in seconds unless the field name says otherwise."""

    batch_s: float = 0.2
    """Minimum delay between the end of a pass and the next pass enqueued by `enqueue_coalesced` (D4)."""
    batch_factor: float = 10.0
    """The delay is this multiple of the duration of the last pass if that is longer than `batch_s` (D4)."""
    batch_longest_s: float = 2.0
    """Upper bound of the delay: a pass that waited 2 s for the API server must not delay readiness by 20 s."""
    resync_s: float = 1800.0
    drain_s: float = 10.0


async def _not_set(_: Key) -> float | None:
    raise RuntimeError("no function to reconcile with")


class ReconcileLoop:
    """N workers on one work queue.

    - `run` enqueues every key from `keys`; keys enqueued before that are dropped because `keys` contains them.
    - `run` may be called again after `stop` or cancellation; it starts with empty state.
    - `enqueue` of an idle key is processed at once; so is the first `enqueue_coalesced`.
    - `enqueue_coalesced` after a pass waits max(0.2 s, 10 × duration of that pass), at most 2 s, from the end of the pass.
    - `enqueue` with a version that was passed to `ignore_resource_version` is a known change and is dropped, also during the pass.
    - `reconcile` returns the requeue delay in seconds; 0 appends the key to the queue; None does not requeue.
    - `ApiUnavailableError` backs off from 0.2 to 10 s, and at least for the server's Retry-After; it is logged at info level.
    - `ApiStatusError` backs off from 5 to 60 s.
    - Any other exception is a bug: its traceback is logged, the key backs off from 1 to 300 s, other keys continue.
    - Each pass counts in `raytide_reconcile_seconds`, one with an error also in `raytide_reconcile_errors_total` by its reason.
    - Resync: every key is enqueued once per `resync_s`, at a time derived from its name, which spreads the load.
    - `stop` accepts no more keys, lets running passes finish for 10 s, then cancels them; `run` returns.
    - `oldest_running_s` is the duration of the longest running pass, for liveness (D9).
    """

    def __init__(
        self,
        name: str,
        reconcile: Reconcile | None = None,
        *,
        clock: Clock,
        keys: Callable[[], Iterable[Key]],
        workers: int = 8,
        pace: Pace | None = None,
    ) -> None:
        """`reconcile` may be set later, before `run`: what it needs may need the loop."""
        self.name = name
        self.passes = 0
        self.reconcile: Reconcile = reconcile or _not_set
        self._clock = clock
        self._keys = keys
        self._worker_count = workers
        self._duration = RECONCILE_SECONDS.labels(name)
        # All series exist from the start: Prometheus sees no increase in the first sample of a series.
        self._errors = {reason: RECONCILE_ERRORS.labels(name, reason) for reason in ERROR_REASONS}
        self._pace = pace or Pace()
        self._queue: WorkQueue[Key] = WorkQueue()
        self._queue.shut_down()
        self._workers: list[asyncio.Task[None]] = []
        self._resyncing: asyncio.Task[None] | None = None
        self._started_at: dict[Key, float] = {}
        self._batched_until: dict[Key, float] = {}
        self._seen: dict[Key, tuple[str, ...]] = {}
        self._versions_while_running: dict[Key, set[str]] = {}
        self._is_soon: set[Key] = set()

    def enqueue(self, key: Key, version: str = "") -> None:
        """Enqueue the key, for example after a spec change; `version` is its resourceVersion, if known."""
        if not version or not self._queue.is_running(key):
            if not version or version not in self._seen.get(key, ()):
                self._queue.put(key)
        else:  # possibly an own write whose answer is still in flight: decided when the pass ends
            self._versions_while_running.setdefault(key, set()).add(version)

    def enqueue_coalesced(self, key: Key) -> None:
        """Enqueue the key with batching, for frequent changes such as those of its pods."""
        if self._queue.is_running(key):
            self._is_soon.add(key)
        else:
            self._queue.put_after(key, self._batched_until.get(key, 0.0) - self._clock.monotonic())

    def ignore_resource_version(self, key: Key, *versions: str) -> None:
        """Record versions that the pass has read or written: `enqueue` drops keys that carry one of them.

        Pass the version of an own write only if the answer differs from what was read by nothing but that write.
        """
        self._seen[key] = versions

    def forget(self, key: Key) -> None:
        """Drop the state of a deleted object; its batching delay stays, because its pods are deleted in a burst."""
        self._queue.forget(key)
        self._seen.pop(key, None)
        self._versions_while_running.pop(key, None)
        self._is_soon.discard(key)

    def oldest_running_s(self) -> float:
        """Duration of the longest running pass in seconds; 0 when idle."""
        return self._clock.monotonic() - min(self._started_at.values(), default=self._clock.monotonic())

    def has_concurrent_passes(self) -> bool:
        """Whether several objects are being reconciled at this moment."""
        return len(self._started_at) > 1

    @property
    def is_at_work(self) -> bool:
        """Whether any worker is running."""
        return any(not worker.done() for worker in self._workers)

    def waiting(self) -> int:
        """Number of due keys that no worker has taken."""
        return len(self._queue)

    async def run(self) -> None:
        """Process keys until stopped."""
        self._reset_for_new_term()
        for key in self._keys():
            self._queue.put(key)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._workers = [tasks.create_task(self._work()) for _ in range(self._worker_count)]
                self._resyncing = tasks.create_task(self._resync())
        finally:
            self._queue.shut_down()

    def _reset_for_new_term(self) -> None:
        self._queue = WorkQueue()
        for memory in (self._batched_until, self._seen, self._versions_while_running, self._is_soon):
            memory.clear()

    async def stop(self) -> None:
        """Shut down: start no new passes, wait for the running ones, then cancel them."""
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
            requeue_after_s = await self.reconcile(key)
        except ApiUnavailableError as error:
            wait_s = error.retry_after_s or 0.0
            delay_s = self._queue.put_backed_off(key, longest_s=LONGEST_BACKOFF_S, at_least_s=wait_s)
            self._errors[UNAVAILABLE].inc()
            log.info("reconcile interrupted, requeued after %.1f s: %s", delay_s, error)
        except ApiStatusError as error:
            delay_s = self._queue.put_backed_off(key, first_s=5.0, longest_s=60.0)
            self._errors[REJECTED].inc()
            log.warning(
                "request rejected by the API server (%s), requeued after %.0f s: %s", error.reason, delay_s, error
            )
        except Exception:
            delay_s = self._queue.put_backed_off(key, first_s=1.0, longest_s=300.0)
            self._errors[UNEXPECTED].inc()
            log.exception("unexpected exception, this is a bug; requeued after %.0f s", delay_s)
        else:
            self._queue.succeeded(key)
            if requeue_after_s is not None:
                self._queue.put_after(key, requeue_after_s)

    def _end(self, key: Key, took_s: float) -> None:
        self._duration.observe(took_s)
        pace = self._pace
        batch_s = min(pace.batch_longest_s, max(pace.batch_s, pace.batch_factor * took_s))
        self._batched_until[key] = self._clock.monotonic() + batch_s
        if self._versions_while_running.pop(key, set()) - set(self._seen.get(key, ())):
            self._queue.put(key)
        self._queue.done(key)
        if key in self._is_soon:
            self._is_soon.discard(key)
            self._queue.put_after(key, batch_s)

    async def _resync(self) -> None:
        """Enqueue one sixtieth of the keys per slot."""
        slot = 0
        while True:
            await asyncio.sleep(self._pace.resync_s / RESYNC_SLOTS)
            now = self._clock.monotonic()
            self._batched_until = {key: until for key, until in self._batched_until.items() if until > now}
            for key in self._keys():
                if crc32(str(key).encode()) % RESYNC_SLOTS == slot:
                    self.enqueue(key)
            slot = (slot + 1) % RESYNC_SLOTS
