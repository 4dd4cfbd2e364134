"""Simulation of the next sharing pass on a snapshot.

Takes a snapshot, jobs to submit and the sharing configuration, builds the operator's pool and runs its planner with and
without those jobs. Invalid jobs take no part and are reported as waiting. Pure: the same snapshot and time give the
same result. Called by `raytide plan`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from raytide.api.capacity import priorities_of, tenants_of
from raytide.api.config import SharingConfig
from raytide.api.meta import Key
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_constants import INVALID_SPEC
from raytide.cli.plan.assumed_pods import assumed_pods, with_placeholder_uid
from raytide.cli.plan.from_files import PlanInputs
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.algorithm.model import Allocation, ClusterSnapshot, ParticipantId, Waiting
from raytide.fairshare.participants import id_of
from raytide.fairshare.pod_placement import RolePods
from raytide.fairshare.snapshot import SnapshotBuilder
from raytide.trainingjob.validation import violations


@dataclass(frozen=True, slots=True)
class PlanResult:
    """A plan, and the snapshot it was computed from."""

    snapshot: ClusterSnapshot
    allocation: Allocation
    invalid: tuple[Waiting, ...] = ()
    """Jobs that take no part because their spec is invalid."""
    submitted: tuple[ParticipantId, ...] = ()
    before: tuple[ClusterSnapshot, Allocation] | None = None
    """The plan without the submitted jobs; None if there are none."""
    trainers: Mapping[ParticipantId, RolePods] = field(default_factory=dict)
    """The trainers of the jobs in the snapshot: those that a scale-down removes are named."""

    @property
    def waiting(self) -> tuple[Waiting, ...]:
        """Every participant that waits, and every invalid job, in the order of ids."""
        return tuple(sorted((*self.allocation.waiting, *self.invalid), key=lambda each: each.id))


def plan_next_pass(
    snapshot: PlanInputs, submitted: Iterable[TrainingJob], *, config: SharingConfig, now: datetime
) -> PlanResult:
    """The plan of the next sharing pass if the submitted jobs existed."""
    new = tuple(with_placeholder_uid(job) for job in submitted)
    invalid = {job.key: problem for job in snapshot.jobs if (problem := invalid_reason(job))}
    valid = tuple(job for job in snapshot.jobs if job.key not in invalid)
    inputs = _with_assumed_pods(snapshot, valid, config, now)
    invalid_jobs = [
        *((id_of(Key(namespace, name)), problem) for namespace, name, problem in snapshot.unreadable),
        *((id_of(key), problem) for key, problem in invalid.items()),
    ]
    invalid_waiting = tuple(Waiting(id_, INVALID_SPEC, problem) for id_, problem in invalid_jobs)
    before, trainers = _snapshot_of(inputs, config, now)
    if not new:
        return PlanResult(before, allocate(before), invalid_waiting, trainers=trainers)
    submitted_inputs = replace(inputs, jobs=(*inputs.jobs, *new))
    submitted_inputs = replace(
        submitted_inputs, pods=(*submitted_inputs.pods, *assumed_pods(new, (), before.nodes, config.gpus))
    )
    after, trainers = _snapshot_of(submitted_inputs, config, now)
    submitted_ids = tuple(id_of(job.key) for job in new)
    return PlanResult(after, allocate(after), invalid_waiting, submitted_ids, (before, allocate(before)), trainers)


def _with_assumed_pods(
    snapshot: PlanInputs, jobs: tuple[TrainingJob, ...], config: SharingConfig, now: datetime
) -> PlanInputs:
    """The existing objects; adds assumed pods to snapshots from files, which may omit pods."""
    shown = replace(snapshot, jobs=jobs)
    if snapshot.is_live:
        return shown
    nodes = _snapshot_of(shown, config, now)[0].nodes
    return replace(shown, pods=(*shown.pods, *assumed_pods(jobs, shown.pods, nodes, config.gpus)))


def invalid_reason(job: TrainingJob) -> str:
    """Why the job is invalid, in one line; empty if it is valid."""
    return "; ".join(str(each) for each in violations(job))


def _snapshot_of(
    snapshot: PlanInputs, config: SharingConfig, now: datetime
) -> tuple[ClusterSnapshot, Mapping[ParticipantId, RolePods]]:
    """The snapshot, and the trainers of the jobs in it."""
    builder = SnapshotBuilder(config)
    pool = builder.build(
        snapshot.jobs,
        snapshot.pods,
        snapshot.nodes,
        quotas=snapshot.quotas,
        priorities=priorities_of(snapshot.priority_classes),
        tenants=tenants_of(snapshot.namespaces),
        now=now,
    )
    return pool, builder.trainers
