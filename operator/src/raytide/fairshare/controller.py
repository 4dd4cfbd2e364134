"""Fair-share controller: informers of all TrainingJobs and of capacity, and the loop of passes over them.

The informers run all the time, those of capacity while a TrainingJob exists; passes run only while this process leads
(D10). Decisions are made elsewhere. manager/main.py starts it beside the controllers of single kinds; simulations run
it without sockets or threads (D3, D16).
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from raytide.api.capacity import CapacityNode, CapacityPod, CapacityQuota, Priority
from raytide.api.config import SharingConfig
from raytide.api.meta import TRAININGJOBS, Key
from raytide.api.trainingjob import TrainingJob
from raytide.controller.base import fail_if_it_returns, until_stopped
from raytide.fairshare import messages, metrics
from raytide.fairshare.algorithm.allocate import allocate as fairly
from raytide.fairshare.capacity_cache import CapacityCache
from raytide.fairshare.job_view import SharedJob, decode_shared_job
from raytide.fairshare.reconciler import Divide, FairShareReconciler, Run
from raytide.kube.client import Client
from raytide.kube.informer import Informer
from raytide.kube.shared_watch import SharedWatches
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FairShareOptions:
    """Options of the fair-share controller."""

    namespaces: tuple[str, ...] = ()
    """Namespaces whose jobs take part; empty means all. Capacity is counted in all namespaces."""
    watches: SharedWatches | None = None
    """Shared with the other controllers of the process; None: this controller has its own."""
    divide: Divide = fairly
    run: Run = asyncio.to_thread
    """How a pass plans; in virtual time `run_at_once`."""


class FairShareController:
    """Everything that runs for fair sharing.

    - `run_informers` keeps the informers running regardless of leadership; `run_reconcilers` runs passes for one term. `run` does both,
      for a process without leader election.
    - A term starts without state of earlier terms, after a list of all jobs that began in it (D6).
    - Pods and nodes are followed only while a TrainingJob exists. If they may not be read, jobs are only kept within
      their bounds.
    - `stop` lets the running pass finish; then `run_reconcilers` and `run` return. A cancelled `run_reconcilers` ends at once.
    - An error in any part ends `run_informers`, `run_reconcilers` or `run` with that error.
    """

    def __init__(
        self, client: Client, *, clock: Clock, config: SharingConfig, options: FairShareOptions | None = None
    ) -> None:
        options = options or FairShareOptions()
        watches = options.watches or SharedWatches(client, clock=clock)
        self._stopping = asyncio.Event()
        self.jobs: Informer[SharedJob] = Informer(
            watches,
            TRAININGJOBS,
            decoder=decode_shared_job,
            on_change=self._on_job,
            namespaces=options.namespaces or None,
            name="shared-trainingjobs",
        )
        self.capacity = CapacityCache(
            client,
            watches,
            on_change=self._enqueue,
            namespaces=options.namespaces,
            has_tenants=bool(config.tenants),
        )
        self.streams = (self.jobs, CapacityStream(self.capacity))
        """Streams that readiness and liveness check; capacity counts as healthy while it is not wanted."""
        self.reconciler = FairShareReconciler(
            client,
            clock=clock,
            config=config,
            seen=InformerSnapshot(self.jobs, self.capacity),
            divide=options.divide,
            run=options.run,
        )

    async def run(self) -> None:
        """Run the informers and one term of passes, until stopped."""
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(self.run_informers())
            await self.run_reconcilers()
            following.cancel()

    async def run_informers(self) -> None:
        """Run the informers until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail_if_it_returns("informer of shared-trainingjobs", self.jobs.run()))
            tasks.create_task(fail_if_it_returns("capacity cache", self.capacity.run()))

    async def run_reconcilers(self) -> None:
        """Run passes for one term, until stopped; metrics of capacity are exposed by the leader only."""
        try:
            await until_stopped(self._relist(), self._stopping)
            if not self._stopping.is_set():
                await self.reconciler.run()
        finally:
            metrics.clear()

    async def stop(self) -> None:
        """Start no more passes; a running pass finishes."""
        self._stopping.set()
        await self.reconciler.stop()

    @property
    def is_synced(self) -> bool:
        """Whether everything a pass reads has been listed."""
        return all(stream.is_synced for stream in self.streams)

    def check(self) -> tuple[bool, str]:
        """Readiness: always true, with a message about what may not be read."""
        missing = filter(None, (self.capacity.error, *self.capacity.unreadable))
        return True, "; ".join(missing) or messages.ALL_READABLE

    async def _relist(self) -> None:
        await asyncio.gather(self.jobs.refresh(), self.capacity.refresh())

    def _on_job(self, old: SharedJob | None, new: SharedJob | None) -> None:
        self.capacity.want(is_wanted=len(self.jobs) > 0)
        if old is None or new is None or old.concern != new.concern:
            self._enqueue()

    def _enqueue(self) -> None:
        self.reconciler.enqueue()


class InformerSnapshot:
    """The informers as the `SnapshotSource` that the reconciler reads."""

    def __init__(self, jobs: Informer[SharedJob], capacity: CapacityCache) -> None:
        self._jobs = jobs
        self._capacity = capacity

    def jobs(self) -> Iterable[tuple[Key, TrainingJob | None]]:
        """Every TrainingJob in the cache."""
        return ((view.key, view.job) for view in self._jobs.all())

    def version_in(self, namespace: str) -> int:
        """The resource version up to which the jobs of a namespace are known."""
        return self._jobs.version_in(namespace)

    def pods(self) -> Iterable[CapacityPod]:
        """All pods that have not ended."""
        return self._capacity.pods.all()

    def nodes(self) -> Iterable[CapacityNode]:
        """All nodes."""
        return self._capacity.nodes.all()

    def quotas(self) -> Iterable[CapacityQuota]:
        """The ResourceQuotas that may be read."""
        return self._capacity.quotas.all()

    def priorities(self) -> dict[str, Priority]:
        """Name of a PriorityClass -> its priority."""
        return self._capacity.priorities

    def tenants(self) -> dict[str, str]:
        """Namespace -> the tenant that its label names; empty unless tenants are configured."""
        return self._capacity.tenants

    @property
    def is_known(self) -> bool:
        """Whether everything that may be read has been listed."""
        return self._jobs.is_synced and (len(self._jobs) == 0 or self._capacity.is_known)

    @property
    def error(self) -> str:
        """The API server's error if pods or nodes may not be read; empty if they may."""
        return self._capacity.error


class CapacityStream:
    """The capacity informers as one stream for probes: healthy while they are not wanted or may not be read."""

    name = "capacity"

    def __init__(self, capacity: CapacityCache) -> None:
        self._capacity = capacity

    @property
    def age_s(self) -> float:
        """Seconds since the least recently active informer received data."""
        return self._capacity.age_s

    @property
    def is_synced(self) -> bool:
        """Whether everything that is wanted has been listed once."""
        return self._capacity.is_known or not self._capacity.is_wanted

    @property
    def error(self) -> str:
        """Always empty: unreadable capacity does not block readiness, because jobs still get their minimum."""
        return ""
