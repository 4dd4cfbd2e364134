"""How does one TrainingJob take part in sharing now?

Takes a job, the record on it, its live pods and the time; says whether it takes part at all, which size is wanted of it
now, and whether it may grow or shrink, or why it rests. A size in the spec that the record does not know is somebody's
request and counts at once; a gang that was not admitted has size 0. Pure; called by pools.py and orders.py
(TJ §3 rows 11, 17 and 21, §7.10).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

from raytide.api import training_names
from raytide.api.conditions import is_condition_true, moment_of
from raytide.api.index_ranges import indices_in
from raytide.api.job_admission import (
    FIRST_DISTANCE_S,
    LONGEST_DISTANCE_S,
    given_back_at,
    is_admitted,
    is_forbidden,
    is_repeatedly_forbidden,
    may_be_admitted_at,
)
from raytide.api.sharing import SharingRecord, parse_record
from raytide.api.training_resources import is_gang
from raytide.api.trainingjob import TrainingJob
from raytide.elastic.model import ADMITTED, CREATION_FORBIDDEN, REACHING_MINIMUM, UNSCHEDULABLE

_ENDED: Final = (training_names.SUCCEEDED, training_names.FAILED)
_LONGEST_S: Final = 10**9
FRESH_S: Final = 60
"""So long after a resize small differences to others count too: a crowd that arrives has met to the last step a minute
later (SC:S25), and each correction of it makes the next ones smaller."""
_IN_VAIN: Final = frozenset({UNSCHEDULABLE, CREATION_FORBIDDEN})
IN_A_ROW: Final = timedelta(seconds=2 * LONGEST_DISTANCE_S)
"""Tries in vain that lie further apart do not lengthen the wait."""
_NO_RESIZE: Final = frozenset({ADMITTED, REACHING_MINIMUM})
"""A job that begins has not been resized: it may grow as soon as its pods are there."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One job that takes part."""

    job: TrainingJob
    record: SharingRecord | None
    """None where there is none of this very job."""
    is_gang: bool
    current: int
    """What is wanted now, as written: perhaps outside the bounds; 0 for a gang that may not begin."""
    live: int = 0
    """Trainer pods that there are and that nobody told to go."""
    has_succeeded: bool = False
    """Whether a trainer has ended well: from then on nobody begins and nobody is told to go."""
    is_forbidden: bool = False
    """Whether the API refused its pods when they were last asked for."""
    is_repeatedly_forbidden: bool = False
    """Whether it did so several times in a row."""
    given_up: int = 0
    """Trainers that failed for good: they have a place in the size, and no pod."""

    @property
    def has_begun(self) -> bool:
        """Whether it may have pods."""
        return self.current > 0 or not self.is_gang

    @property
    def wanted(self) -> int:
        """Its size within its bounds, as its controller reads it: below its minimum it has its minimum all the same."""
        trainer = self.job.spec.trainer
        return min(max(self.current, trainer.min_instance), trainer.ceiling)

    @property
    def trainers(self) -> int:
        """How many trainer pods its controller keeps now."""
        return min(self.wanted, self.live) if self.has_succeeded else max(0, self.wanted - self.given_up)

    @property
    def is_requested(self) -> bool:
        """Whether somebody else wrote the size, and nobody has noted it yet (TJ §3 row 21)."""
        return self.record is not None and self.has_begun and self.current != self.record.replicas


def record_of(job: TrainingJob) -> SharingRecord | None:
    """The record on the job, if it was made for this very job."""
    record = _parsed(job.metadata.annotations.get(training_names.SHARING_ANNOTATION))
    return record if record is not None and record.uid == job.metadata.uid else None


def takes_part(job: TrainingJob) -> bool:
    """Whether it gets anything: not while it is deleted, suspended or invalid, nor when it has ended."""
    return not is_going(job) and not _is_invalid(job)


def is_going(job: TrainingJob) -> bool:
    """Whether its pods are on their way out."""
    return job.metadata.deletion_timestamp is not None or job.spec.suspend or _has_ended(job)


def claim_of(job: TrainingJob, *, live_trainers: int, gpus: frozenset[str]) -> Claim:
    """The claim of a job that takes part and has so many live trainer pods."""
    record, gang = record_of(job), is_gang(job, gpus)
    begins = not gang or is_admitted(job, record) or _has_pods_without_record(job, record, live_trainers)
    return Claim(
        job=job,
        record=record,
        is_gang=gang,
        # `kubectl scale --replicas=0` of a gang that runs asks for its minimum, as of any job, and not for its end.
        current=max(ordered_size(job), int(gang)) if begins else 0,
        live=live_trainers,
        has_succeeded=bool(_trainer_status(job).get("succeeded")),
        is_forbidden=is_forbidden(job),
        is_repeatedly_forbidden=is_repeatedly_forbidden(job),
        given_up=given_up(job),
    )


def given_up(job: TrainingJob) -> int:
    """How many trainers failed for good: the size of the job counts them, though they have no pod."""
    return len(indices_in(_trainer_status(job).get("failedIndexes")))


def ordered_size(job: TrainingJob) -> int:
    """What the spec says, as written; what was ordered last where it says nothing."""
    return max(0, job.size_ordered())


def admission_waits_until(job: TrainingJob, now: datetime) -> datetime | None:
    """Until when a gang that gave its room back is not admitted again; None when it may be."""
    until = may_be_admitted_at(job)
    return until if until is not None and until > now else None


@lru_cache(maxsize=4096)
def _parsed(text: str | None) -> SharingRecord | None:
    return parse_record(text)


# --- resting -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rest:
    """Until when a job neither grows nor shrinks, and counts as resized lately; None: it may, and it does not."""

    growth_until: datetime | None = None
    shrinking_until: datetime | None = None
    fresh_until: datetime | None = None

    @property
    def until(self) -> datetime | None:
        """When the first of them ends; None where it does not rest."""
        moments = (self.growth_until, self.shrinking_until, self.fresh_until)
        return min((moment for moment in moments if moment is not None), default=None)


def rest_of(claim: Claim, now: datetime) -> Rest:
    """Cool-downs since its last resize, and its minimum run time since it began to run (TJ §7.10)."""
    scaling, resized_at = claim.job.spec.scaling, _resized_at(claim, now)
    began_at = _moment(claim.job.status.get("startTime")) or now
    growth = max(
        filter(None, (_later(resized_at, scaling.grow_cooldown_seconds), _tries_again_at(claim))), default=None
    )
    shrinking = [_later(resized_at, scaling.shrink_cooldown_seconds)]
    if scaling.min_runtime_seconds > 0:
        shrinking.append(_later(began_at, scaling.min_runtime_seconds))
    return Rest(_future([growth], now), _future(shrinking, now), _future([_later(resized_at, FRESH_S)], now))


def _tries_again_at(claim: Claim) -> datetime | None:
    """When it may grow again after what it got was taken back, because it could not use it: ever later (FD:SH-B6).

    What was longer ago than a whole try and its wait says nothing about the nodes of today.
    """
    notes = claim.record.resizes if claim.record is not None else ()
    in_vain = sorted((note.at for note in notes if note.reason in _IN_VAIN), reverse=True)
    if not in_vain:
        return None
    times = 1
    for later, earlier in pairwise(in_vain):
        if later - earlier > IN_A_ROW:
            break
        times += 1
    return in_vain[0] + timedelta(seconds=min(LONGEST_DISTANCE_S, FIRST_DISTANCE_S * 2.0**times))


def _resized_at(claim: Claim, now: datetime) -> datetime | None:
    if claim.is_requested:
        return now
    notes = claim.record.resizes if claim.record is not None else ()
    return next((note.at for note in reversed(notes) if note.reason not in _NO_RESIZE), None)


def _later(moment: datetime | None, seconds: int) -> datetime | None:
    """That much later; one second more, because moments are written without their fractions."""
    if moment is None or seconds <= 0:
        return None
    return moment + timedelta(seconds=min(seconds, _LONGEST_S) + 1)


def _future(moments: Iterable[datetime | None], now: datetime) -> datetime | None:
    return max((moment for moment in moments if moment is not None and moment > now), default=None)


# --- inside ------------------------------------------------------------------------------------------------------------


def _has_ended(job: TrainingJob) -> bool:
    conditions = job.status.get("conditions") or ()
    return any(is_condition_true(conditions, kind) for kind in _ENDED)


def _is_invalid(job: TrainingJob) -> bool:
    trainer = job.spec.trainer
    has_bounds = 0 <= trainer.min_instance <= trainer.ceiling
    return not has_bounds or is_condition_true(job.status.get("conditions") or (), training_names.INVALID)


def _has_pods_without_record(job: TrainingJob, record: SharingRecord | None, live_trainers: int) -> bool:
    """A record that got lost (`kubectl replace`) before the status told of it: its pods say that it was admitted."""
    return record is None and given_back_at(job) is None and live_trainers > 0


def _trainer_status(job: TrainingJob) -> Mapping[str, Any]:
    found = job.status.get("trainer")
    return found if isinstance(found, Mapping) else {}


def _moment(found: object) -> datetime | None:
    return moment_of(found) if isinstance(found, str) else None
