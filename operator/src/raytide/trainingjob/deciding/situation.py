"""What do all decisions about one TrainingJob start from?

Takes the job, what is observed of it and the settings, and works out once what every step asks: the sharing pass's
record, whether the job may have pods, who has ended, which trainers and how many parameter servers are wanted, and how
the job ends, if it does. It decides nothing beyond that. Made by plan and by status, so that they cannot differ.
"""

from dataclasses import dataclass

from raytide.api import training_names as names
from raytide.api.config import JobConfig
from raytide.api.job_admission import given_back_at, is_admitted
from raytide.api.job_shape import Size
from raytide.api.sharing import SharingRecord, parse_record
from raytide.api.training_resources import is_gang
from raytide.api.trainingjob import TrainingJob
from raytide.trainingjob.deciding.lifecycle import Verdict, is_over, verdict
from raytide.trainingjob.deciding.ranks import Roster, roster
from raytide.trainingjob.deciding.restarts import Tally, tally
from raytide.trainingjob.observed import Observed


@dataclass(frozen=True, slots=True)
class Situation:
    """What every step may look at."""

    job: TrainingJob
    observed: Observed
    config: JobConfig
    record: SharingRecord | None
    """None where there is none of this very job."""
    is_gang: bool
    may_have_pods: bool
    counts: Tally
    wanted: Roster
    pservers: int
    """How many go with the trainers wanted."""
    verdict: Verdict | None
    """How it ends now; None while it goes on, and when it ended before."""

    @property
    def size(self) -> Size:
        """What pods and membership are built by."""
        return Size(len(self.wanted.members), self.pservers, self.wanted.members)

    @property
    def has_given_back(self) -> bool:
        """Whether a gang gave its room back and has not been admitted since."""
        return self.is_gang and not self.may_have_pods and given_back_at(self.job) is not None


def situation_of(job: TrainingJob, observed: Observed, config: JobConfig) -> Situation:
    """Work it all out."""
    found = parse_record(job.metadata.annotations.get(names.SHARING_ANNOTATION))
    record = found if found is not None and found.uid == job.metadata.uid else None
    gang = is_gang(job, config.gpus)
    counts = tally(job, observed, record)
    wanted = roster(job, observed, counts)
    return Situation(
        job=job,
        observed=observed,
        config=config,
        record=record,
        is_gang=gang,
        may_have_pods=not job.spec.suspend and (not gang or is_admitted(job, record)),
        counts=counts,
        wanted=wanted,
        pservers=0 if job.spec.pserver is None else max(0, job.spec.pserver.count_for(job.trainers_wanted())),
        verdict=None if is_over(job.status) or job.spec.suspend else verdict(job, observed, counts, wanted),
    )
