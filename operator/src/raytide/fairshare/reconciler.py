"""Fair-share reconciler: the loop of sharing passes.

A pass runs one second after the first of a burst of changes, and every 30 s. It takes one frozen snapshot without an
await in it, has the planner divide it, and writes each changed job with one patch that the API server rejects if the
job has changed; scale-downs first. What is written is `plan_patches` the division. A broken or rejected job affects no
other job; while the API server is unavailable, no pass completes. controller.py runs it for one term of leadership
(architecture §5 flow c; TJ §3 row 19, §4 step 4).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeAlias

from raytide.api.capacity import CapacityNode, CapacityPod, CapacityQuota
from raytide.api.config import SharingConfig
from raytide.api.errors import ApiUnavailableError
from raytide.api.meta import Key
from raytide.api.trainingjob import TrainingJob
from raytide.fairshare import messages
from raytide.fairshare.algorithm.model import Allocation, ClusterSnapshot
from raytide.fairshare.metrics import measure
from raytide.fairshare.patch_plan import JobPatch, PatchPlan, plan_patches
from raytide.fairshare.patcher import JobPatcher
from raytide.fairshare.scheduler_mismatch import SchedulerMismatches
from raytide.fairshare.snapshot import SnapshotBuilder, build_snapshot
from raytide.fairshare.unknown_capacity import clamp_to_bounds
from raytide.kube.client import Client
from raytide.runtime.backoff import Backoff
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

Divide: TypeAlias = Callable[[ClusterSnapshot], Allocation]

LONGEST_AWAY_S: Final = 10.0
LONGEST_BUG_S: Final = 300.0


class SnapshotSource(Protocol):
    """The contents of the informers' caches; no method awaits."""

    def jobs(self) -> Iterable[tuple[Key, TrainingJob | None]]:
        """Every TrainingJob; None for one that has no view."""

    def version_in(self, namespace: str) -> int:
        """The resource version up to which the jobs of a namespace are known."""
        ...

    def pods(self) -> Iterable[CapacityPod]:
        """All pods that have not ended, in all namespaces."""
        ...

    def nodes(self) -> Iterable[CapacityNode]:
        """All nodes."""
        ...

    def quotas(self) -> Iterable[CapacityQuota]:
        """The ResourceQuotas that may be read."""
        ...

    def priorities(self) -> dict[str, int]:
        """Name of a PriorityClass -> its value."""
        ...

    def tenants(self) -> dict[str, str]:
        """Namespace -> the tenant that its label names; empty unless tenants are configured."""
        ...

    @property
    def is_known(self) -> bool:
        """Whether everything that may be read has been listed."""

    @property
    def error(self) -> str:
        """The API server's error if pods or nodes may not be read; empty if they may."""


class FairShareReconciler:
    """The loop of passes.

    - `enqueue` requests a pass; it runs after `settle_s`, however many requests arrive until then.
    - Without requests a pass runs every `period_s` and when a cool-down ends; it is skipped if it could find nothing
      new.
    - `passes` counts passes that planned; `oldest_running_s` is for liveness.
    - `run` works until stopped; the state of an earlier term is dropped.
    """

    def __init__(
        self, client: Client, *, clock: Clock, config: SharingConfig, seen: SnapshotSource, divide: Divide
    ) -> None:
        self.passes = 0
        self._clock = clock
        self._config = config
        self._seen = seen
        self._divide = divide
        self._writing = JobPatcher(client, clock=clock)
        self._pools = SnapshotBuilder(config)
        self._doubts = SchedulerMismatches()
        self._rung = asyncio.Event()
        self._stopping = asyncio.Event()
        self._backoff = Backoff(first_s=1.0, longest_s=LONGEST_AWAY_S)
        self._bugs = Backoff(first_s=1.0, longest_s=LONGEST_BUG_S)
        self._changes_at: datetime | None = None
        self._started_at: float | None = None
        self._is_settled = False
        """Whether the last pass found nothing to write, now or later."""

    def enqueue(self) -> None:
        """Request a pass: something that matters for sharing has changed."""
        self._rung.set()

    async def stop(self) -> None:
        """Start no more passes; the running one ends by itself, and in time, because each write has a deadline."""
        self._stopping.set()
        self._rung.set()  # wakes `run`

    def oldest_running_s(self) -> float:
        """Seconds since the running pass started; 0 when idle."""
        return 0.0 if self._started_at is None else self._clock.monotonic() - self._started_at

    async def run(self) -> None:
        """Run passes until stopped."""
        self._writing.reset_for_new_term()
        self._doubts = SchedulerMismatches()
        self.enqueue()
        while not self._stopping.is_set():
            await self._wait(self._rung, self._until_next_s())
            await self._wait(self._stopping, self._config.settle_s)
            if self._stopping.is_set():
                return
            if not self._seen.is_known:
                self.enqueue()  # try again after `settle_s`
                continue
            if self._is_settled and not self._rung.is_set() and not self._is_due():
                continue  # the same snapshot would be divided in the same way
            self._rung.clear()
            self._started_at = self._clock.monotonic()
            try:
                await self._guarded_pass()
            finally:
                self._started_at = None

    # --- timing --------------------------------------------------------------------------------------------------------

    def _until_next_s(self) -> float:
        if self._changes_at is None:
            return self._config.period_s
        left_s = (self._changes_at - self._clock.now()).total_seconds()
        return min(self._config.period_s, max(0.0, left_s))

    def _is_due(self) -> bool:
        return self._changes_at is not None and self._changes_at <= self._clock.now()

    async def _wait(self, event: asyncio.Event, timeout_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await event.wait()

    # --- a pass --------------------------------------------------------------------------------------------------------

    async def _guarded_pass(self) -> None:
        try:
            await self.reconcile()
        except ApiUnavailableError as error:
            self._again_in(self._backoff.next_s(), error.retry_after_s or 0.0)
            log.info(messages.SHARING_POSTPONED, error)
        except Exception:
            self._again_in(self._bugs.next_s())
            log.exception(messages.SHARING_FAILED)
        else:
            self._backoff.reset()
            self._bugs.reset()

    def _again_in(self, *seconds: float) -> None:
        self._changes_at = self._clock.now() + timedelta(seconds=max(seconds))

    async def reconcile(self) -> tuple[JobPatch, ...]:
        """Run one pass and return its orders; raises Unavailable if the API server does not answer."""
        self._is_settled = False
        await self._writing.read_again()
        orders = self._allocate()
        if await self._writing.write(orders.patches):
            self.enqueue()
        self._is_settled = not orders.patches and not orders.has_stale_message
        return orders.patches

    def _allocate(self) -> PatchPlan:
        """Compute the orders from the snapshot, without an await: nothing changes in between."""
        now, begun_at = self._clock.now(), self._clock.monotonic()
        self.passes += 1
        jobs = self._writing.overlay_own_writes(self._seen.jobs(), self._seen.version_in)
        shared, sound = self._pooled(jobs, now)
        division = clamp_to_bounds(shared, self._seen.error) if self._seen.error else self._divide(shared)
        orders = plan_patches(
            sound,
            shared,
            division,
            now,
            trainers=self._pools.trainers,
            reservation_s=self._config.reservation_s,
        )
        self._doubts.learn(division, now)
        moments = (self._pools.changes_at, self._doubts.changes_at, orders.changes_at)
        self._changes_at = min((moment for moment in moments if moment is not None), default=None)
        measure(shared, division, self._clock.monotonic() - begun_at)
        return orders

    def _pooled(self, jobs: Sequence[TrainingJob], now: datetime) -> tuple[ClusterSnapshot, Sequence[TrainingJob]]:
        """The pool and the jobs in it, without jobs for which building it fails."""
        try:
            return self._pool(jobs, now), jobs
        except Exception:
            log.exception(messages.SNAPSHOT_FAILED)
        sound = [job for job in jobs if self._is_sound(job, now)]
        return self._pool(sound, now), sound

    def _pool(self, jobs: Sequence[TrainingJob], now: datetime) -> ClusterSnapshot:
        seen, is_known = self._seen, not self._seen.error
        found = self._pools.build(
            jobs,
            seen.pods(),
            seen.nodes() if is_known else (),
            quotas=seen.quotas(),
            priorities=seen.priorities(),
            tenants=seen.tenants(),
            now=now,
        )
        return self._doubts.with_mismatches(found, now)

    def _is_sound(self, job: TrainingJob, now: datetime) -> bool:
        try:
            build_snapshot([job], (), (), config=self._config, now=now)
        except Exception:
            log.exception(messages.JOB_EXCLUDED, job.key)
            return False
        return True
