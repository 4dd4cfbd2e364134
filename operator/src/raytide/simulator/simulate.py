"""Simulation of the next sharing pass on a snapshot, or of the passes that follow a submission.

Takes a snapshot, objects to submit and the sharing configuration, builds the operator's pool and runs its planner: once for the
plan of the next pass; with submitted objects until nothing changes, with and without them, because a plan for less than that is not
what the users of these jobs will see (passes.py). Invalid jobs are excluded and reported as waiting. Pure: the same
snapshot and time give the same result. Called by `raytide plan` and `raytide ui`.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from raytide.api.config import SharingConfig
from raytide.api.meta import Key
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_constants import INVALID_SPEC
from raytide.fairshare.algorithm.model import Allocation, ClusterSnapshot, ParticipantId, Waiting
from raytide.fairshare.participants import id_of
from raytide.simulator.assumed_pods import assumed_pods
from raytide.simulator.inputs import NO_SUBMISSION, PlanInputs, Submission
from raytide.simulator.passes import Passes, SharingPass, one_pass, passes_until_quiet, started
from raytide.simulator.raycluster_outcome import RayClusterOutcome, outcomes_of
from raytide.trainingjob.validation import violations


@dataclass(frozen=True, slots=True)
class PlanResult:
    """A plan, and the snapshot it was computed from."""

    snapshot: ClusterSnapshot
    allocation: Allocation
    """The resizes of all `passes` in their order, and who waits after the last one."""
    invalid: tuple[Waiting, ...] = ()
    """Jobs that take no part because their spec is invalid."""
    submitted: tuple[ParticipantId, ...] = ()
    before: tuple[ClusterSnapshot, Allocation] | None = None
    """The same without the submitted objects; None if there are none."""
    passes: tuple[SharingPass, ...] = ()
    """The passes that resize a job, at least one; with the trainers, of which those that a scale-down removes are named."""
    is_quiet: bool = True
    """Whether nothing changes after these passes; False also for a plan of one pass that resizes a job."""
    clusters: tuple[RayClusterOutcome, ...] = ()
    """The pods of the submitted RayClusters, once nothing changes."""

    @property
    def waiting(self) -> tuple[Waiting, ...]:
        """Every participant that waits, and every invalid job, in the order of ids."""
        return tuple(sorted((*self.allocation.waiting, *self.invalid), key=lambda each: each.id))


def plan_next_pass(
    snapshot: PlanInputs, submitted: Submission = NO_SUBMISSION, *, config: SharingConfig, now: datetime
) -> PlanResult:
    """The plan of the next sharing pass; with submitted objects, of all passes until nothing changes."""
    invalid = {job.key: problem for job in snapshot.jobs if (problem := invalid_reason(job))}
    valid = tuple(job for job in snapshot.jobs if job.key not in invalid)
    inputs = _with_assumed_pods(snapshot, valid, config, now)
    invalid_jobs = [
        *((id_of(Key(namespace, name)), problem) for namespace, name, problem in snapshot.unreadable),
        *((id_of(key), problem) for key, problem in invalid.items()),
    ]
    invalid_waiting = tuple(Waiting(id_, INVALID_SPEC, problem) for id_, problem in invalid_jobs)
    if not submitted.objects:
        return _result(one_pass(inputs, config, now), invalid_waiting)
    before = passes_until_quiet(inputs, config, now)
    after = passes_until_quiet(started(inputs, submitted, config), config, now)
    submitted_ids = tuple(id_of(job.key) for job in submitted.jobs)
    result = _result(after, invalid_waiting, submitted_ids, (before.snapshot, before.allocation))
    return replace(result, clusters=outcomes_of(submitted.clusters, after))


def _result(
    found: Passes,
    invalid: tuple[Waiting, ...],
    submitted: tuple[ParticipantId, ...] = (),
    before: tuple[ClusterSnapshot, Allocation] | None = None,
) -> PlanResult:
    return PlanResult(found.snapshot, found.allocation, invalid, submitted, before, found.passes, found.is_quiet)


def _with_assumed_pods(
    snapshot: PlanInputs, jobs: tuple[TrainingJob, ...], config: SharingConfig, now: datetime
) -> PlanInputs:
    """The existing objects; adds assumed pods to snapshots from files, which may omit pods."""
    shown = replace(snapshot, jobs=jobs)
    if snapshot.is_live:
        return shown
    nodes = one_pass(shown, config, now).snapshot.nodes
    return replace(shown, pods=(*shown.pods, *assumed_pods(jobs, shown.pods, nodes, config.gpus)))


def invalid_reason(job: TrainingJob) -> str:
    """Why the job is invalid, in one line; empty if it is valid."""
    return "; ".join(str(each) for each in violations(job))
