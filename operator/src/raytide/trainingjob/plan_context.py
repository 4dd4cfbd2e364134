"""Common input of all decisions about one TrainingJob.

Takes the job, its observed state and the settings, and computes once what every step needs: the sharing pass's record,
whether the job may have pods, which pods ended, how many trainers and parameter servers are wanted, and the verdict, if
there is one. It decides nothing else. Made by plan and by status in the same way, so that they cannot differ.
"""

from dataclasses import dataclass

from raytide.api.config import JobConfig
from raytide.api.gang_admission import admission_revoked_at, is_admitted
from raytide.api.sharing_record import SharingRecord, victims_of
from raytide.api.training_resources import is_gang
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_pods import Size
from raytide.trainingjob.lifecycle import JobResult, is_over, job_result
from raytide.trainingjob.observed import Observed
from raytide.trainingjob.restart_policy import TerminationCounts, count_terminations
from raytide.trainingjob.trainer_indices import TrainerAssignment, assign_trainers


@dataclass(frozen=True, slots=True)
class PlanContext:
    """The input of every step."""

    job: TrainingJob
    observed: Observed
    config: JobConfig
    record: SharingRecord | None
    """The sharing pass's record; None unless its uid is this job's."""
    is_gang: bool
    may_have_pods: bool
    counts: TerminationCounts
    wanted: TrainerAssignment
    pservers: int
    """The number of parameter servers for the wanted trainers."""
    result: JobResult | None
    """How the job ends now; None while it continues, while suspended, and when it had ended before."""

    @property
    def size(self) -> Size:
        """The size from which pods and membership are built."""
        return Size(len(self.wanted.members), self.pservers, self.wanted.members)

    @property
    def admission_revoked(self) -> bool:
        """Whether a gang released its capacity and has not been admitted since."""
        return self.is_gang and not self.may_have_pods and admission_revoked_at(self.job) is not None


def build_context(job: TrainingJob, observed: Observed, config: JobConfig) -> PlanContext:
    """Compute the situation."""
    record, gang = job.record, is_gang(job, config.gpus)
    counts = count_terminations(job, observed, record)
    wanted = assign_trainers(job, observed, counts, victims_of(record, job.ordered_replicas()))
    return PlanContext(
        job=job,
        observed=observed,
        config=config,
        record=record,
        is_gang=gang,
        may_have_pods=not job.spec.suspend and (not gang or is_admitted(job, record)),
        counts=counts,
        wanted=wanted,
        pservers=0 if job.spec.pserver is None else max(0, job.spec.pserver.count_for(job.desired_replicas())),
        result=None if is_over(job.status) or job.spec.suspend else job_result(job, observed, counts, wanted),
    )
