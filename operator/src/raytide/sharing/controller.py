"""How is the cluster shared, again and again?

Rings come in, passes go out: one second after the first of a flock of changes, and every 30 s. A pass takes one frozen
snapshot without an await in it, has the planner divide it, and writes each changed job with one patch that the API refuses
if the job is another by then; shrinks first. It chooses nothing: what is written is `orders_of` the division. A job that is
broken, or refused, stops nobody else; an API that is away stops everything until it answers. Run by room.py for one term of
leadership (architecture §5 flow c; TJ §3 row 19, §4 step 4).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeAlias

from raytide.api.capacity import CapacityNode, CapacityPod, CapacityQuota
from raytide.api.config import SharingConfig
from raytide.api.errors import Unavailable
from raytide.api.meta import Key
from raytide.api.trainingjob import TrainingJob
from raytide.elastic.model import Division, Pool
from raytide.kube.client import Client
from raytide.runtime.backoff import Backoff
from raytide.runtime.clock import Clock
from raytide.sharing.doubts import Doubts
from raytide.sharing.measuring import measure
from raytide.sharing.orders import Order, Orders, orders_of
from raytide.sharing.pools import Pools, pool
from raytide.sharing.unknown import within_bounds
from raytide.sharing.writing import Writing

log = logging.getLogger(__name__)

Divide: TypeAlias = Callable[[Pool], Division]

LONGEST_AWAY_S: Final = 10.0
LONGEST_BUG_S: Final = 300.0


class Snapshot(Protocol):
    """What the informers show; nothing in it awaits."""

    def jobs(self) -> Iterable[tuple[Key, TrainingJob | None]]:
        """Every TrainingJob; None where one makes no sense."""

    def version_in(self, namespace: str) -> int:
        """Up to which version the jobs of a namespace are known."""
        ...

    def pods(self) -> Iterable[CapacityPod]:
        """All that have not ended, in all namespaces."""
        ...

    def nodes(self) -> Iterable[CapacityNode]:
        """All."""
        ...

    def quotas(self) -> Iterable[CapacityQuota]:
        """As far as they may be read."""
        ...

    def priorities(self) -> dict[str, int]:
        """Name of a PriorityClass -> its value."""
        ...

    @property
    def is_known(self) -> bool:
        """Whether everything that may be read has been read."""

    @property
    def trouble(self) -> str:
        """Why pods or nodes may not be read; empty when they may."""


class SharingController:
    """The loop of passes.

    - `ring` says that something changed: a pass follows after `settle_s`, however many rings come until then.
    - Without rings a pass comes every `period_s`, and when a cool-down ends; one that could find nothing new costs nothing.
    - `passes` counts those that planned; `oldest_running_s` is for liveness.
    - `run` works until stopped; what an earlier term has written or owed is forgotten.
    """

    def __init__(self, client: Client, *, clock: Clock, config: SharingConfig, seen: Snapshot, divide: Divide) -> None:
        self.passes = 0
        self._clock = clock
        self._config = config
        self._seen = seen
        self._divide = divide
        self._writing = Writing(client, clock=clock)
        self._pools = Pools(config)
        self._doubts = Doubts()
        self._rung = asyncio.Event()
        self._stopping = asyncio.Event()
        self._trouble = Backoff(first_s=1.0, longest_s=LONGEST_AWAY_S)
        self._bugs = Backoff(first_s=1.0, longest_s=LONGEST_BUG_S)
        self._changes_at: datetime | None = None
        self._started_at: float | None = None
        self._is_settled = False
        """Whether the last pass found nothing to write, now or later."""

    def ring(self) -> None:
        """Something that matters for sharing has changed."""
        self._rung.set()

    async def stop(self) -> None:
        """No more passes; the running one ends by itself, and in time, because each write has a deadline."""
        self._stopping.set()
        self._rung.set()  # whoever waits for news need not wait any longer

    def oldest_running_s(self) -> float:
        """Age of the running pass; 0 when idle."""
        return 0.0 if self._started_at is None else self._clock.monotonic() - self._started_at

    async def run(self) -> None:
        """Pass after pass, until stopped."""
        self._writing.start_over()
        self._doubts = Doubts()
        self.ring()
        while not self._stopping.is_set():
            await self._wait(self._rung, self._until_next_s())
            await self._wait(self._stopping, self._config.settle_s)
            if self._stopping.is_set():
                return
            if not self._seen.is_known:
                self.ring()  # look again after the next breath
                continue
            if self._is_settled and not self._rung.is_set() and not self._is_due():
                continue  # the same snapshot would be divided in the same way
            self._rung.clear()
            self._started_at = self._clock.monotonic()
            try:
                await self._guarded_pass()
            finally:
                self._started_at = None

    # --- when ----------------------------------------------------------------------------------------------------------

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
            await self.share()
        except Unavailable as trouble:
            self._again_in(self._trouble.next_s(), trouble.retry_after_s or 0.0)
            log.info("sharing waits for the API server: %s", trouble)
        except Exception:
            self._again_in(self._bugs.next_s())
            log.exception("a sharing pass broke; this is a bug")
        else:
            self._trouble.reset()
            self._bugs.reset()

    def _again_in(self, *seconds: float) -> None:
        self._changes_at = self._clock.now() + timedelta(seconds=max(seconds))

    async def share(self) -> tuple[Order, ...]:
        """One pass; raises Unavailable when nobody answers. Returns what was decided."""
        self._is_settled = False
        await self._writing.read_again()
        orders = self._decide()
        if await self._writing.write(orders.given):
            self.ring()
        self._is_settled = not orders.given and not orders.has_older_words
        return orders.given

    def _decide(self) -> Orders:
        """From the snapshot to the orders, without an await: nothing changes in between."""
        now, begun_at = self._clock.now(), self._clock.monotonic()
        self.passes += 1
        jobs = self._writing.laid_over(self._seen.jobs(), self._seen.version_in)
        shared, sound = self._pooled(jobs, now)
        division = within_bounds(shared, self._seen.trouble) if self._seen.trouble else self._divide(shared)
        orders = orders_of(sound, shared, division, now)
        self._doubts.learn(division, now)
        moments = (self._pools.changes_at, self._doubts.changes_at)
        self._changes_at = min((moment for moment in moments if moment is not None), default=None)
        measure(shared, division, self._clock.monotonic() - begun_at)
        return orders

    def _pooled(self, jobs: Sequence[TrainingJob], now: datetime) -> tuple[Pool, Sequence[TrainingJob]]:
        """The pool, and the jobs in it: one that breaks everything is left out."""
        try:
            return self._pool(jobs, now), jobs
        except Exception:
            log.exception("a job breaks sharing; looking for it")
        sound = [job for job in jobs if self._is_sound(job, now)]
        return self._pool(sound, now), sound

    def _pool(self, jobs: Sequence[TrainingJob], now: datetime) -> Pool:
        seen, is_known = self._seen, not self._seen.trouble
        found = self._pools.pool(
            jobs,
            seen.pods(),
            seen.nodes() if is_known else (),
            quotas=seen.quotas(),
            priorities=seen.priorities(),
            now=now,
        )
        return self._doubts.laid_over(found, now)

    def _is_sound(self, job: TrainingJob, now: datetime) -> bool:
        try:
            pool([job], (), (), config=self._config, now=now)
        except Exception:
            log.exception("%s takes no part in sharing, because it breaks it", job.key)
            return False
        return True
