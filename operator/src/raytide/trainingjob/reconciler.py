"""Reconciler of TrainingJobs.

Observes the children of a job without an await, plans, and computes the status; what a pass does besides is in
controller/reconciler.py. It contains no policy, and never changes the spec, because sizes come from the sharing pass.
Rules D2, D5–D8, TJ §3, §8.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import ValidationError

from raytide.api import trainingjob_constants as constants
from raytide.api.actions import EventSpec, Outcome
from raytide.api.base_model import faults_of
from raytide.api.config import JobConfig
from raytide.api.meta import Key, Manifest
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_object import JobObject
from raytide.api.trainingjob_pod import JobPod
from raytide.api.violations import Violation
from raytide.controller.child_lister import ChildLister
from raytide.controller.create_backoff import BackoffEntry, CreateBackoff
from raytide.controller.reconciler import BaseReconciler, ComputedStatus, Dependencies
from raytide.runtime.backoff import backoff_s
from raytide.trainingjob import messages
from raytide.trainingjob.metrics import Measures
from raytide.trainingjob.observed import Observed, observe
from raytide.trainingjob.plan import plan, plan_unreadable
from raytide.trainingjob.plan_types import TrainingJobPlan
from raytide.trainingjob.status import requeue_after_s, status
from raytide.trainingjob.unreadable import as_suspended, unreadable_patch

log = logging.getLogger(__name__)

LONGEST_WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class TrainingJobSources:
    """What the reconciler observes besides the TrainingJob."""

    pods: ChildLister[JobPod]
    services: ChildLister[JobObject]
    config_maps: ChildLister[JobObject]
    unready_nodes: Callable[[Key], frozenset[str]]
    """Nodes of that job's pods that are not Ready or are gone; empty where nodes cannot be read."""


class TrainingJobReconciler(BaseReconciler[TrainingJob, Observed, TrainingJobPlan, ComputedStatus]):
    """Reconciles TrainingJobs.

    - A rejected create is repeated after 1 s, 2 s, 4 s … 30 s, one of a trainer after 30 s; other roles continue.
    - Nothing is reported for a job that is being deleted, whether it can be parsed or not.
    """

    def __init__(
        self, deps: Dependencies, sources: TrainingJobSources, *, config: JobConfig, measures: Measures
    ) -> None:
        super().__init__(deps, CreateBackoff(BackoffEntry, wait_s=_wait_s, message_of=_message_of))
        self._sources = sources
        self._config = config
        self._measures = measures
        self._known_since: dict[Key, tuple[str, float]] = {}

    async def _reconcile_object(self, obj: Manifest, key: Key) -> float | None:
        try:
            job = TrainingJob.parse(obj)
        except ValidationError as error:
            return await self._hold_unreadable(obj, key, faults_of(error))
        await asyncio.sleep(0)  # parsing a large object takes as long as planning: let other tasks run in between
        seen_at = self._clock.now()
        planned = plan(job, self._observe(job, seen_at), self._config)
        return await self._carry_out(job, seen_at, planned)

    async def _hold_unreadable(self, obj: Manifest, key: Key, violations: Sequence[Violation]) -> float | None:
        """Report a job that cannot be parsed, unless it is being deleted; only a suspension is carried out."""
        if obj["metadata"].get("deletionTimestamp"):
            self._deps.ignore_resource_version(key, obj["metadata"].get("resourceVersion", ""))
            return None
        log.warning(messages.CANNOT_BE_PARSED, key, "; ".join(map(str, violations)))
        job, seen_at = as_suspended(obj), self._clock.now()
        if job is not None:
            planned = plan_unreadable(job, self._observe(job, seen_at), self._config, violations)
            return await self._carry_out(job, seen_at, planned)
        events = [EventSpec(constants.INVALID_SPEC, str(violation)) for violation in violations]
        await self._report_unreadable(obj, key, unreadable_patch(obj, violations, seen_at), events)
        return None

    def _observe(self, job: TrainingJob, seen_at: datetime) -> Observed:
        key, uid, sources = job.key, job.metadata.uid, self._sources
        return observe(
            uid,
            pods=sources.pods.expected(key, uid),
            services=sources.services.expected(key, uid),
            config_maps=sources.config_maps.expected(key, uid),
            unready_nodes=sources.unready_nodes(key),
            pending_retries=self._create_backoff.waiting(key, uid, job.metadata.generation, self._clock.monotonic()),
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

    def _compute_status(
        self, job: TrainingJob, observed: Observed, planned: TrainingJobPlan, outcomes: Sequence[Outcome], now: datetime
    ) -> ComputedStatus:
        computed = status(job, observed, planned, outcomes, now)
        return ComputedStatus(computed, requeue_after_s(job, observed, computed, now), now)

    def _record_status(self, job: TrainingJob, computed: ComputedStatus, *, is_written: bool) -> None:
        if is_written:
            self._measures.record_written_status(job.key, job.status, computed.status)
        self._measures.update(job.key, computed.status)

    def _forget(self, key: Key) -> None:
        super()._forget(key)
        self._measures.forget(key)
        self._known_since.pop(key, None)


def _wait_s(rejection: Outcome, times: int) -> float:
    is_soon = rejection.action.group != constants.TRAINER
    return backoff_s(times, first_s=1.0, longest_s=LONGEST_WAIT_S) if is_soon else LONGEST_WAIT_S


def _message_of(rejection: Outcome) -> str:
    return rejection.message or rejection.reason
