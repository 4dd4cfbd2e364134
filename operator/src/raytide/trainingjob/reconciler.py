"""Reconciler of TrainingJobs.

Takes a key, reads the job live, observes its children without an await, plans, executes the plan, and writes the
computed status. It contains no policy; it never changes the spec, because sizes come from the sharing pass; it writes
status only when it differs and at most every half second (D8), and emits events afterwards. Called by
`controller/controller`, one reconcile per key at a time; rules D2, D5–D8, TJ §3, §8.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Protocol, TypeVar

from pydantic import ValidationError

from raytide.api import trainingjob_constants as constants
from raytide.api.actions import EventSpec, Outcome, PendingRetry
from raytide.api.base_model import faults_of
from raytide.api.config import JobConfig
from raytide.api.meta import Key, Manifest
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_object import JobObject
from raytide.api.trainingjob_pod import JobPod
from raytide.controller.action_runner import ActionRunner
from raytide.controller.create_backoff import BackoffEntry, CreateBackoff
from raytide.controller.event_correlator import EventCorrelator
from raytide.controller.executor import ApplyResult
from raytide.controller.expectations import Expectations
from raytide.controller.read_live import LiveReader
from raytide.controller.status_writer import StatusWriter
from raytide.runtime.backoff import backoff_s
from raytide.runtime.clock import Clock
from raytide.trainingjob import messages
from raytide.trainingjob.metrics import Measures
from raytide.trainingjob.observed import Observed, observe
from raytide.trainingjob.plan import plan
from raytide.trainingjob.plan_types import Plan, earliest
from raytide.trainingjob.status import requeue_after_s, status, status_patch
from raytide.trainingjob.unreadable import unreadable_patch

log = logging.getLogger(__name__)

LONGEST_WAIT_S = 30.0

C = TypeVar("C", bound=JobPod | JobObject)


class ChildLister(Protocol):
    """Listers of a job's children."""

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
        """The resourceVersion of the TrainingJob in the informer cache; None when it is not there."""
        ...

    def relist_jobs(self) -> None:
        """Ask the informer for a new list of TrainingJobs."""
        ...

    def unready_nodes(self, key: Key) -> frozenset[str]:
        """Nodes of that job's pods that are not Ready or are gone; empty where nodes cannot be read."""
        ...


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Dependencies of the reconciler for reads and writes."""

    live_reader: LiveReader
    children: ChildLister
    pods_in_flight: Expectations[JobPod]
    services_in_flight: Expectations[JobObject]
    config_maps_in_flight: Expectations[JobObject]
    runner: ActionRunner
    status_writer: StatusWriter
    events: EventCorrelator
    measures: Measures


class TrainingJobReconciler:
    """Reconciles TrainingJobs.

    - A job that is not found is forgotten once the informer does not have it either; nothing is created for it
      meanwhile.
    - The snapshot is taken and the plan made without an await in between.
    - Status is computed after the writes and patched only if it differs: at the earliest half a second after the last
      patch, or after the reconcile that wrote.
    - A rejected create is repeated after 1 s, 2 s, 4 s … 30 s, one of a trainer after 30 s; other roles continue.
    - A spec that cannot be parsed is reported in its status; other jobs are not affected.
    """

    def __init__(
        self,
        deps: Dependencies,
        *,
        clock: Clock,
        config: JobConfig,
        ignore_resource_version: Callable[..., None],
        forgotten: Callable[[Key], None],
    ) -> None:
        """`ignore_resource_version(key, *versions)` records versions that need no reconcile, `forgotten(key)` that a job is gone."""
        self._deps = deps
        self._clock = clock
        self._config = config
        self._ignore_resource_version = ignore_resource_version
        self._forgotten = forgotten
        self._refusals: CreateBackoff[BackoffEntry] = CreateBackoff(BackoffEntry, wait_s=_wait_s, words=_words)
        self._known_since: dict[Key, tuple[str, float]] = {}

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile once; returns the seconds to requeue after, None when only a watch event matters."""
        children = self._deps.children
        shown = partial(children.job_version, key)
        obj = await self._deps.live_reader.read(key, shown=shown, relist=children.relist_jobs)
        if obj is None:
            self._forget(key)
            return None
        try:
            job = TrainingJob.parse(obj)
        except ValidationError as error:
            await self._report_unreadable(obj, key, error)
            return None
        await asyncio.sleep(0)  # parsing a large object takes as long as planning: let other tasks run in between
        seen_at = self._clock.now()
        observed = self._observe(job, seen_at)
        planned = plan(job, observed, self._config)
        if not planned.is_reported:
            self._ignore_resource_version(key, job.metadata.resource_version)
            return None
        applied = await self._apply(job, planned)
        requeue_after = await self._report(job, seen_at, planned, applied)
        return self._deps.runner.requeue_after_s(
            key, applied, (requeue_after, planned.requeue_after_s), is_continued=planned.is_continued
        )

    # --- observe, apply ----------------------------------------------------------------------------------------------

    def _observe(self, job: TrainingJob, seen_at: datetime) -> Observed:
        """The observed state at one instant: no await in here. `seen_at` is the same for the whole reconcile."""
        key, uid, deps = job.key, job.metadata.uid, self._deps
        return observe(
            uid,
            pods=_overlaid(deps.pods_in_flight, key, uid, deps.children.pods(key)),
            services=_overlaid(deps.services_in_flight, key, uid, deps.children.services(key)),
            config_maps=_overlaid(deps.config_maps_in_flight, key, uid, deps.children.config_maps(key)),
            unready_nodes=deps.children.unready_nodes(key),
            refusals=self._waiting(job),
            seen_at=seen_at,
            known_for_s=self._known_for_s(key, uid),
        )

    def _known_for_s(self, key: Key, uid: str) -> float:
        """Seconds since this process first reconciled the job, on the monotonic clock."""
        now = self._clock.monotonic()
        known_uid, since = self._known_since.get(key, ("", now))
        if known_uid != uid:
            since = now
            self._known_since[key] = (uid, since)
        return now - since

    def _waiting(self, job: TrainingJob) -> tuple[PendingRetry, ...]:
        metadata = job.metadata
        return self._refusals.waiting(job.key, metadata.uid, metadata.generation, self._clock.monotonic())

    async def _apply(self, job: TrainingJob, planned: Plan) -> ApplyResult:
        key, uid, acting = job.key, job.metadata.uid, self._deps.runner
        again = await acting.due_retries(key, uid, planned.actions, planned.unwanted, may_create=not planned.violations)
        applied = await acting.apply(key, uid, planned.actions, again)
        self._refusals.note(key, uid, job.metadata.generation, applied.outcomes, self._clock.monotonic())
        return applied

    # --- report ------------------------------------------------------------------------------------------------------

    async def _report(self, job: TrainingJob, seen_at: datetime, planned: Plan, applied: ApplyResult) -> float | None:
        """Patch the status if it differs, then emit events; returns the requeue delay of the status in seconds."""
        now = self._clock.now()
        observed = self._observe(job, seen_at)
        computed = status(job, observed, planned, applied.outcomes, now)
        patch = status_patch(job, computed)
        writing = self._deps.status_writer
        wait_s = writing.wait_s(job.key, has_acted=bool(applied.outcomes)) if patch else 0.0
        if not patch:
            writing.mark_up_to_date(job.key, job.metadata.resource_version)
        try:
            if patch and wait_s <= 0:
                await writing.write(job.raw, job.key, patch)
                self._deps.measures.note_written(job.status, computed)
        finally:  # emit events for the writes even if the status patch failed
            self._deps.events.emit(job.raw, applied.outcomes, planned.events)
        self._deps.measures.note(job.key, computed)
        return earliest(wait_s if wait_s > 0 else None, requeue_after_s(job, observed, computed, now))

    async def _report_unreadable(self, obj: Manifest, key: Key, error: ValidationError) -> None:
        if obj["metadata"].get("deletionTimestamp"):
            self._ignore_resource_version(key, obj["metadata"].get("resourceVersion", ""))
            return
        faults = faults_of(error)
        log.warning(messages.CANNOT_BE_PARSED, key, "; ".join(str(fault) for fault in faults))
        patch = unreadable_patch(obj, faults, self._clock.now())
        try:
            if patch:
                await self._deps.status_writer.write(obj, key, patch)
            else:
                self._deps.status_writer.mark_up_to_date(key, obj["metadata"].get("resourceVersion", ""))
        finally:  # if even the status patch is rejected, the event is the user's only report
            self._deps.events.emit(obj, (), [EventSpec(constants.INVALID_SPEC, str(fault)) for fault in faults])

    # --- end ---------------------------------------------------------------------------------------------------------

    def _forget(self, key: Key) -> None:
        """Drop all state of a deleted job; garbage collection removes its children."""
        self._deps.runner.forget(key)
        self._deps.events.forget(key)
        self._deps.status_writer.forget(key)
        self._deps.measures.forget(key)
        self._refusals.forget(key)
        self._known_since.pop(key, None)
        self._forgotten(key)


def _overlaid(in_flight: Expectations[C], key: Key, uid: str, seen: Sequence[C]) -> tuple[C, ...]:
    """The observed objects, with in-flight writes applied to those of this uid; an earlier job has the same names."""
    mine: list[C] = [view for view in seen if view.owner_uid == uid]
    return (*in_flight.overlay(key, uid, mine), *(view for view in seen if view.owner_uid != uid))


def _wait_s(refused: Outcome, times: int) -> float:
    is_soon = refused.action.group != constants.TRAINER
    return backoff_s(times, first_s=1.0, longest_s=LONGEST_WAIT_S) if is_soon else LONGEST_WAIT_S


def _words(refused: Outcome) -> str:
    return refused.message or refused.reason
