"""How does one pass over a TrainingJob go?

Takes a key, reads the job live, looks at its children without awaiting anything, asks `plan` what to do, has it done, and
writes what `status` says. It awaits but never chooses; it never changes the spec, sizes come from the sharing pass; it
writes status only when it differs and at most every half second (D8), and tells events afterwards. Called by
`runtime/controller`, one pass per key at a time; rules D2, D5–D8, TJ §3, §8.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Protocol, TypeVar

from pydantic import ValidationError

from raytide.api import training_names as names
from raytide.api.actions import Outcome, Refusal, Remark
from raytide.api.config import JobConfig
from raytide.api.job_object import JobObject
from raytide.api.job_pod import JobPod
from raytide.api.meta import Key, Manifest
from raytide.api.trainingjob import TrainingJob
from raytide.api.value import faults_of
from raytide.kube.acting import Acting
from raytide.kube.apply import Applied
from raytide.kube.expectations import Expectations
from raytide.kube.reading import LiveReader
from raytide.kube.refusals import Held, Refusals
from raytide.kube.status_writing import StatusWriting
from raytide.kube.telling import Telling
from raytide.runtime.backoff import backoff_s
from raytide.runtime.clock import Clock
from raytide.trainingjob.deciding.todo import Plan, sooner
from raytide.trainingjob.observed import Observed, observe
from raytide.trainingjob.plan import plan
from raytide.trainingjob.status import look_again_in, status, status_patch
from raytide.trainingjob.telling.measuring import Measures
from raytide.trainingjob.telling.unreadable import unreadable_patch

log = logging.getLogger(__name__)

LONGEST_WAIT_S = 30.0

C = TypeVar("C", bound=JobPod | JobObject)


class Children(Protocol):
    """What the informers show of a job's children."""

    def pods(self, key: Key) -> Sequence[JobPod]:
        """Pods whose label names that job."""
        ...

    def services(self, key: Key) -> Sequence[JobObject]:
        """Services whose label names that job."""
        ...

    def config_maps(self, key: Key) -> Sequence[JobObject]:
        """ConfigMaps whose label names that job."""
        ...

    def job_version(self, key: Key) -> int | None:
        """The version at which the informer shows the TrainingJob; None when it shows none."""
        ...

    def relist_jobs(self) -> None:
        """Have the informer of TrainingJobs list again, soon."""
        ...

    def unready_nodes(self, key: Key) -> frozenset[str]:
        """Nodes of that job's pods that are known to be away or gone; empty where nodes cannot be read."""
        ...


@dataclass(frozen=True, slots=True)
class Wires:
    """What a pass needs to reach the world."""

    reading: LiveReader
    children: Children
    pods_in_flight: Expectations[JobPod]
    services_in_flight: Expectations[JobObject]
    config_maps_in_flight: Expectations[JobObject]
    acting: Acting
    writing: StatusWriting
    telling: Telling
    measures: Measures


class TrainingJobReconciler:
    """The passes over all TrainingJobs.

    - A job that is not there any more is forgotten once the informer does not show it either; nothing is made for it
      meanwhile.
    - The snapshot is taken and the plan made without an await in between.
    - Status is computed after acting and written only if it differs: half a second after the last write, or after the
      pass that acted, at the earliest.
    - What was refused is asked for again after 1 s, 2 s, 4 s … 30 s, trainers after 30 s; other roles go on.
    - A spec that cannot be read is told so in its status; no other job notices.
    """

    def __init__(
        self,
        wires: Wires,
        *,
        clock: Clock,
        config: JobConfig,
        saw: Callable[..., None],
        forgotten: Callable[[Key], None],
    ) -> None:
        """`saw(key, *versions)` learns which versions are no news, `forgotten(key)` that a job is gone."""
        self._wires = wires
        self._clock = clock
        self._config = config
        self._saw = saw
        self._forgotten = forgotten
        self._refusals: Refusals[Held] = Refusals(Held, wait_s=_wait_s, words=_words)
        self._known_since: dict[Key, tuple[str, float]] = {}

    async def reconcile(self, key: Key) -> float | None:
        """One pass; returns in how many seconds to look again, None when only news matter."""
        children = self._wires.children
        shown = partial(children.job_version, key)
        obj = await self._wires.reading.read(key, shown=shown, relist=children.relist_jobs)
        if obj is None:
            self._forget(key)
            return None
        try:
            job = TrainingJob.parse(obj)
        except ValidationError as error:
            await self._report_unreadable(obj, key, error)
            return None
        await asyncio.sleep(0)  # a large object takes as long to read as to plan for: others have their turn in between
        seen_at = self._clock.now()
        observed = self._observe(job, seen_at)
        todo = plan(job, observed, self._config)
        if not todo.is_reported:
            self._saw(key, job.metadata.resource_version)
            return None
        applied = await self._apply(job, todo)
        look_again = await self._report(job, seen_at, todo, applied)
        return self._wires.acting.look_again_in(
            key, applied, (look_again, todo.look_again_in), is_continued=todo.is_continued
        )

    # --- observe, apply ----------------------------------------------------------------------------------------------

    def _observe(self, job: TrainingJob, seen_at: datetime) -> Observed:
        """Everything at this instant: no await in here. `seen_at` is one moment for the whole pass."""
        key, uid, wires = job.key, job.metadata.uid, self._wires
        return observe(
            uid,
            pods=_overlaid(wires.pods_in_flight, key, uid, wires.children.pods(key)),
            services=_overlaid(wires.services_in_flight, key, uid, wires.children.services(key)),
            config_maps=_overlaid(wires.config_maps_in_flight, key, uid, wires.children.config_maps(key)),
            unready_nodes=wires.children.unready_nodes(key),
            refusals=self._waiting(job),
            seen_at=seen_at,
            known_for_s=self._known_for_s(key, uid),
        )

    def _known_for_s(self, key: Key, uid: str) -> float:
        """Seconds since this process met the job, on a clock that nobody sets."""
        now = self._clock.monotonic()
        known_uid, since = self._known_since.get(key, ("", now))
        if known_uid != uid:
            since = now
            self._known_since[key] = (uid, since)
        return now - since

    def _waiting(self, job: TrainingJob) -> tuple[Refusal, ...]:
        metadata = job.metadata
        return self._refusals.waiting(job.key, metadata.uid, metadata.generation, self._clock.monotonic())

    async def _apply(self, job: TrainingJob, todo: Plan) -> Applied:
        key, uid, acting = job.key, job.metadata.uid, self._wires.acting
        again = await acting.again(key, uid, todo.actions, todo.unwanted, may_create=not todo.violations)
        applied = await acting.apply(key, uid, todo.actions, again)
        self._refusals.note(key, uid, job.metadata.generation, applied.outcomes, self._clock.monotonic())
        return applied

    # --- report ------------------------------------------------------------------------------------------------------

    async def _report(self, job: TrainingJob, seen_at: datetime, todo: Plan, applied: Applied) -> float | None:
        """Write the status if it differs, then tell; returns when the status has to be looked at again."""
        now = self._clock.now()
        observed = self._observe(job, seen_at)
        computed = status(job, observed, todo, applied.outcomes, now)
        patch = status_patch(job, computed)
        writing = self._wires.writing
        wait_s = writing.wait_s(job.key, has_acted=bool(applied.outcomes)) if patch else 0.0
        if not patch:
            writing.note_equal(job.key, job.metadata.resource_version)
        try:
            if patch and wait_s <= 0:
                await writing.write(job.raw, job.key, patch)
                self._wires.measures.note_written(job.status, computed)
        finally:  # what was done is told even if the status could not be
            self._wires.telling.tell(job.raw, applied.outcomes, todo.remarks)
        self._wires.measures.note(job.key, computed)
        return sooner(wait_s if wait_s > 0 else None, look_again_in(job, observed, computed, now))

    async def _report_unreadable(self, obj: Manifest, key: Key, error: ValidationError) -> None:
        if obj["metadata"].get("deletionTimestamp"):
            self._saw(key, obj["metadata"].get("resourceVersion", ""))
            return
        faults = faults_of(error)
        log.warning("cannot be read: %s", "; ".join(str(fault) for fault in faults))
        patch = unreadable_patch(obj, faults, self._clock.now())
        try:
            if patch:
                await self._wires.writing.write(obj, key, patch)
            else:
                self._wires.writing.note_equal(key, obj["metadata"].get("resourceVersion", ""))
        finally:  # where even the status is refused, the event is all that the user gets
            self._wires.telling.tell(obj, (), [Remark(names.INVALID_SPEC, str(fault)) for fault in faults])

    # --- end ---------------------------------------------------------------------------------------------------------

    def _forget(self, key: Key) -> None:
        """The job is gone: its children go by garbage collection, we keep nothing."""
        self._wires.acting.forget(key)
        self._wires.telling.forget(key)
        self._wires.writing.forget(key)
        self._wires.measures.forget(key)
        self._refusals.forget(key)
        self._known_since.pop(key, None)
        self._forgotten(key)


def _overlaid(in_flight: Expectations[C], key: Key, uid: str, seen: Sequence[C]) -> tuple[C, ...]:
    """What is seen, with ours in flight laid over what is ours: an earlier job's children have the same names."""
    mine: list[C] = [view for view in seen if view.owner_uid == uid]
    return (*in_flight.overlay(key, uid, mine), *(view for view in seen if view.owner_uid != uid))


def _wait_s(refused: Outcome, times: int) -> float:
    is_soon = refused.action.group != names.TRAINER
    return backoff_s(times, first_s=1.0, longest_s=LONGEST_WAIT_S) if is_soon else LONGEST_WAIT_S


def _words(refused: Outcome) -> str:
    return refused.message or refused.reason
