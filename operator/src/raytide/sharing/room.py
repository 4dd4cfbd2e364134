"""What runs, so that everything elastic shares the cluster?

Ties sharing together over one client: an informer of whole TrainingJobs, the capacity informers while there is a job, and
the loop of passes. It decides nothing; following goes on all the time, passes happen only while this process leads (D10).
Started by main.py beside the rooms of single kinds, and by simulations without sockets or threads (D3, D16).
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from raytide.api.capacity import CapacityNode, CapacityPod, CapacityQuota
from raytide.api.config import SharingConfig
from raytide.api.meta import TRAININGJOBS, Key
from raytide.api.trainingjob import TrainingJob
from raytide.elastic.fairness import divide as fairly
from raytide.kube.client import Client
from raytide.kube.informer import Informer
from raytide.kube.reflector import SILENCE_S
from raytide.kube.room import never_ending
from raytide.runtime.clock import Clock
from raytide.sharing.controller import Divide, SharingController
from raytide.sharing.following import Capacity
from raytide.sharing.shared_job import SharedJob, decode_shared_job

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SharingOptions:
    """How the room is run."""

    namespaces: tuple[str, ...] = ()
    """Whose jobs share; empty means all. Room is counted in all namespaces."""
    silence_s: float = SILENCE_S
    """After so long without a word a watch counts as dead."""
    divide: Divide = fairly


class SharingRoom:
    """Everything that runs for sharing.

    - `follow` keeps the informers warm, whoever leads; `lead` shares for one term of leadership. `run` is both at once,
      for whoever is alone.
    - A term begins with nothing remembered and a list of all jobs that began in it (D6).
    - Pods and nodes are followed only while there is a TrainingJob, and may be unreadable: then everybody gets their minimum.
    - `stop` lets the running pass end; then `lead` and `run` return. `lead` that is cancelled ends at once.
    - Trouble in any part ends `follow`, `lead` and `run` with that trouble.
    """

    def __init__(
        self, client: Client, *, clock: Clock, config: SharingConfig, options: SharingOptions | None = None
    ) -> None:
        options = options or SharingOptions()
        self._stopping = asyncio.Event()
        self.jobs: Informer[SharedJob] = Informer(
            client,
            TRAININGJOBS,
            clock=clock,
            decoder=decode_shared_job,
            on_change=self._on_job,
            namespaces=options.namespaces or None,
            silence_s=options.silence_s,
            name="shared-trainingjobs",
        )
        self.capacity = Capacity(
            client,
            clock=clock,
            silence_s=options.silence_s,
            on_change=self._ring,
            namespaces=options.namespaces,
        )
        self.streams = (self.jobs, CapacityStream(self.capacity))
        """What readiness and liveness look at; capacity is well while nobody wants it."""
        self.controller = SharingController(
            client, clock=clock, config=config, seen=Seen(self.jobs, self.capacity), divide=options.divide
        )

    async def run(self) -> None:
        """Follow, and lead one term that lasts until stopped."""
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(self.follow())
            await self.lead()
            following.cancel()

    async def follow(self) -> None:
        """Know what there is, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(never_ending("informer of shared-trainingjobs", self.jobs.run()))
            tasks.create_task(never_ending("following of capacity", self.capacity.follow()))

    async def lead(self) -> None:
        """One term: share until stopped."""
        await self._relisted_or_stopped()
        if not self._stopping.is_set():
            await self.controller.run()

    async def stop(self) -> None:
        """No more passes; a running one ends."""
        self._stopping.set()
        await self.controller.stop()

    @property
    def is_synced(self) -> bool:
        """Whether everything a pass looks at has been listed."""
        return all(stream.is_synced for stream in self.streams)

    def check(self) -> tuple[bool, str]:
        """For readiness: always yes, and what may not be read."""
        missing = filter(None, (self.capacity.trouble, *self.capacity.unreadable))
        return True, "; ".join(missing) or "everything that it needs can be read"

    async def _relisted_or_stopped(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            relisted = tasks.create_task(self._relist())
            stopped = tasks.create_task(self._stopping.wait())
            await asyncio.wait([relisted, stopped], return_when=asyncio.FIRST_COMPLETED)
            relisted.cancel()
            stopped.cancel()

    async def _relist(self) -> None:
        await asyncio.gather(self.jobs.refresh(), self.capacity.refresh())

    def _on_job(self, old: SharedJob | None, new: SharedJob | None) -> None:
        self.capacity.want(is_wanted=len(self.jobs) > 0)
        if old is None or new is None or old.concern != new.concern:
            self._ring()

    def _ring(self) -> None:
        self.controller.ring()


class Seen:
    """The informers of a room as the controller asks them."""

    def __init__(self, jobs: Informer[SharedJob], capacity: Capacity) -> None:
        self._jobs = jobs
        self._capacity = capacity

    def jobs(self) -> Iterable[tuple[Key, TrainingJob | None]]:
        """Every TrainingJob that is known."""
        return ((view.key, view.job) for view in self._jobs.all())

    def version_in(self, namespace: str) -> int:
        """Up to which version the jobs of a namespace are known."""
        return self._jobs.version_in(namespace)

    def pods(self) -> Iterable[CapacityPod]:
        """All that have not ended."""
        return self._capacity.pods.all()

    def nodes(self) -> Iterable[CapacityNode]:
        """All."""
        return self._capacity.nodes.all()

    def quotas(self) -> Iterable[CapacityQuota]:
        """As far as they may be read."""
        return self._capacity.quotas.all()

    def priorities(self) -> dict[str, int]:
        """Name of a PriorityClass -> its value."""
        return self._capacity.priorities

    @property
    def is_known(self) -> bool:
        """Whether everything that may be read has been read."""
        return self._jobs.is_synced and (len(self._jobs) == 0 or self._capacity.is_known)

    @property
    def trouble(self) -> str:
        """Why pods or nodes may not be read; empty when they may."""
        return self._capacity.trouble


class CapacityStream:
    """The capacity informers as one stream for probes: well while nobody wants them, or they may not be read."""

    name = "capacity"

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity

    @property
    def age_s(self) -> float:
        """Seconds since the quietest of them gave a sign of life."""
        return self._capacity.age_s

    @property
    def is_synced(self) -> bool:
        """Whether all of it has been seen once, as far as it is wanted."""
        return self._capacity.is_known or not self._capacity.is_wanted

    @property
    def trouble(self) -> str:
        """Never in the way of readiness: without it everybody still gets their minimum."""
        return ""
