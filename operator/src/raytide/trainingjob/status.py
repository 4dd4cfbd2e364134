"""What does a TrainingJob's status say?

Takes the job as read, what is observed after acting, the plan and its outcomes, and gives the whole status; the
difference to the one read is the patch (D8). Called by the controller once per pass; writes nothing itself (TJ §8).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from raytide.api.actions import Outcome
from raytide.api.merge_patch import merge_difference
from raytide.api.trainingjob import TrainingJob
from raytide.trainingjob.observed import Observed
from raytide.trainingjob.todo import Plan

Status = dict[str, Any]


def status(job: TrainingJob, observed: Observed, todo: Plan, outcomes: Sequence[Outcome], now: datetime) -> Status:  # noqa: ARG001 - the first fields follow
    """The whole status as it should read now; equal to the one read when nothing changed."""
    return {**job.status, "observedGeneration": job.metadata.generation}


def status_patch(job: TrainingJob, computed: Mapping[str, Any]) -> Status | None:
    """The body of the status patch; None when there is nothing to write.

    Guarded by the version that was read, because a status endpoint takes no notice of a uid: a namesake, or a spec that
    changed meanwhile, is a Conflict.
    """
    difference = merge_difference(job.status, computed)
    if not difference:
        return None
    return {"metadata": {"resourceVersion": job.metadata.resource_version}, "status": difference}


def look_again_in(job: TrainingJob, observed: Observed, computed: Mapping[str, Any], now: datetime) -> float | None:  # noqa: ARG001 - the first deadlines follow
    """Seconds until the status has to change, or be acted upon, though nothing happens; None when only news matter."""
    return None
