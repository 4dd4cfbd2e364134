"""What has to be written so that a TrainingJob is what its spec and its size say?

Takes the job, what is observed of it and the settings, and lists the writes in order: service, membership, master,
parameter servers, trainers. It is a pure function: the same input gives the same plan, and once everything asked for is
there the plan is empty. It never touches the spec: sizes come from the sharing pass. Called by the controller; rules
TJ §3, §6, §8, D5.
"""

from raytide.api.config import JobConfig
from raytide.api.trainingjob import TrainingJob
from raytide.trainingjob.observed import Observed
from raytide.trainingjob.todo import NOTHING, Plan

__all__ = ["Plan", "plan"]


def plan(job: TrainingJob, observed: Observed, config: JobConfig) -> Plan:  # noqa: ARG001 - the first steps follow
    """Walk through the steps; each may add writes, and may be the last."""
    return Plan(is_reported=False, is_last=True) if job.metadata.deletion_timestamp else NOTHING
