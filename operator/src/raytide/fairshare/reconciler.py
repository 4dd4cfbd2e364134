"""Fair-share reconciler: the loop of sharing passes.

A pass runs one second after the first of a burst of changes, and every 30 s. It takes one frozen copy of the caches
without an await in it, has a thread plan what to write, because tenants decide how much there is to plan and the event
loop serves all controllers and probes (FD:SEC3-1), and writes each changed job with one patch that the API server rejects
if the job has changed; scale-downs first. A broken or rejected job affects no other job; while the API server is
unavailable, no pass completes. controller.py runs it for one term of leadership (architecture §5 flow c; TJ §3 row 19, §4
step 4).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Protocol, TypeAlias

from raytide.api.capacity import CapacityNode, CapacityPod, CapacityQuota, Priority
from raytide.api.config import SharingConfig
from raytide.api.errors import ApiUnavailableError
from raytide.api.meta import Key
from raytide.api.trainingjob import TrainingJob
from raytide.fairshare import messages
from raytide.fairshare.algorithm.model import NODES_HELP, Allocation, ClusterSnapshot
from raytide.fairshare.metrics import PassMetrics, expose, measure
from raytide.fairshare.node_autoscaler import NodeAutoscalerDetector
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


@dataclass(frozen=True, slots=True)
class Inputs:
    """What one pass reads, as it was at one moment."""

    jobs: Sequence[TrainingJob]
    pods: Sequence[CapacityPod]
    nodes: Sequence[CapacityNode]
    quotas: Sequence[CapacityQuota]
    priorities: Mapping[str, Priority]
    tenants: Mapping[str, str]
    error: str
    """The API server's error if pods or nodes may not be read."""
    has_node_autoscaler: bool
    now: datetime


Planned: TypeAlias = tuple[PatchPlan, PassMetrics]
Run: TypeAlias = Callable[[Callable[[], Planned]], Awaitable[Planned]]


async def run_at_once(plan: Callable[[], Planned]) -> Planned:
    """Plan in the event loop, for virtual time; `asyncio.to_thread` is the other one."""
    return plan()


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

    def priorities(self) -> dict[str, Priority]:
        """Name of a PriorityClass -> its priority."""
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
        self, client: Client, *, clock: Clock, config: SharingConfig, seen: SnapshotSource, divide: Divide, run: Run
    ) -> None:
        self.passes = 0
        self._clock = clock
        self._config = config
        self._seen = seen
        self._divide = divide
        self._run = run
        self._planning: asyncio.Future[Planned] | None = None
        self._writing = JobPatcher(client, clock=clock)
        self._pools = SnapshotBuilder(config)
        self._node_autoscaler = NodeAutoscalerDetector(client, clock=clock, presence=config.node_autoscaler)
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
        await self._node_autoscaler.refresh()
        orders = await self._plan()
        if await self._writing.write(orders.patches):
            self.enqueue()
        self._is_settled = not orders.patches and not orders.has_stale_message
        return orders.patches

    async def _plan(self) -> PatchPlan:
        """The orders for one moment, planned in a thread; a thread whose term has ended finishes first."""
        while self._planning is not None and not self._planning.done():
            await asyncio.wait([self._planning])
        begun_at = self._clock.monotonic()
        self.passes += 1
        self._planning = asyncio.ensure_future(self._run(partial(self._allocate, self._inputs())))
        orders, metrics = await asyncio.shield(self._planning)
        expose(metrics, self._clock.monotonic() - begun_at)
        return orders

    def _inputs(self) -> Inputs:
        seen = self._seen
        return Inputs(
            jobs=tuple(self._writing.overlay_own_writes(seen.jobs(), seen.version_in)),
            pods=tuple(seen.pods()),
            nodes=() if seen.error else tuple(seen.nodes()),
            quotas=tuple(seen.quotas()),
            priorities=seen.priorities(),
            tenants=seen.tenants(),
            error=seen.error,
            has_node_autoscaler=self._node_autoscaler.is_present,
            now=self._clock.now(),
        )

    def _allocate(self, inputs: Inputs) -> Planned:
        """Compute the orders; one call at a time, and nothing else changes what it uses."""
        now = inputs.now
        shared, sound = self._pooled(inputs)
        division = clamp_to_bounds(shared, inputs.error) if inputs.error else self._divide(shared)
        orders = plan_patches(
            sound,
            shared,
            division,
            now,
            trainers=self._pools.trainers,
            reservation_s=self._config.reservation_s,
        )
        self._doubts.learn(division, now)
        self._node_autoscaler.is_wanted = any(
            each.is_below_floor and each.reason in NODES_HELP for each in division.waiting
        )
        moments = (
            self._pools.changes_at,
            self._doubts.changes_at,
            orders.changes_at,
            self._node_autoscaler.changes_at,
        )
        self._changes_at = min((moment for moment in moments if moment is not None), default=None)
        return orders, measure(shared, division)

    def _pooled(self, inputs: Inputs) -> tuple[ClusterSnapshot, Sequence[TrainingJob]]:
        """The pool and the jobs in it, without jobs for which building it fails."""
        try:
            return self._pool(inputs.jobs, inputs), inputs.jobs
        except Exception:
            log.exception(messages.SNAPSHOT_FAILED)
        sound = [job for job in inputs.jobs if self._is_sound(job, inputs.now)]
        return self._pool(sound, inputs), sound

    def _pool(self, jobs: Sequence[TrainingJob], inputs: Inputs) -> ClusterSnapshot:
        found = self._pools.build(
            jobs,
            inputs.pods,
            inputs.nodes,
            quotas=inputs.quotas,
            priorities=inputs.priorities,
            tenants=inputs.tenants,
            has_node_autoscaler=inputs.has_node_autoscaler,
            now=inputs.now,
        )
        return self._doubts.with_mismatches(found, inputs.now)

    def _is_sound(self, job: TrainingJob, now: datetime) -> bool:
        try:
            build_snapshot([job], (), (), config=self._config, now=now)
        except Exception:
            log.exception(messages.JOB_EXCLUDED, job.key)
            return False
        return True
