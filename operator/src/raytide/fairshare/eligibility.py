"""Eligibility: whether a TrainingJob takes part in sharing now, at which size, and whether it may be resized.

Input: a job, the sharing record on it, its live pods and the time. Output: a `JobDemand` and its cool-downs (`Cooldowns`). A
smaller size in the spec than the record's counts at once, a larger one is a request (size_requests.py); a gang that has not
been admitted has size 0. Pure; called by snapshot.py and patch_plan.py (TJ §3 rows 11, 17 and 21, §7.10).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from raytide.api import trainingjob_constants
from raytide.api.conditions import is_condition_true, parse_timestamp
from raytide.api.config import RESERVATION_S
from raytide.api.gang_admission import (
    FIRST_READMISSION_DELAY_S,
    LONGEST_READMISSION_DELAY_S,
    admission_revoked_at,
    is_admitted,
    is_forbidden,
    is_repeatedly_forbidden,
    may_await_nodes_at,
    may_be_admitted_at,
)
from raytide.api.index_ranges import indices_in
from raytide.api.sharing_record import (
    ADMITTED,
    AWAITING_NODES,
    CREATION_FORBIDDEN,
    REACHING_MINIMUM,
    UNSCHEDULABLE,
    ResizeNote,
    SharingRecord,
)
from raytide.api.training_resources import is_gang
from raytide.api.trainingjob import TrainingJob
from raytide.fairshare.size_requests import (
    CLOCK_TOLERANCE,
    changes_at,
    is_for_more,
    last_request,
    pause_until,
    requested_size,
)

_ENDED: Final = (trainingjob_constants.SUCCEEDED, trainingjob_constants.FAILED)
_LONGEST_S: Final = 10**9
_IN_VAIN: Final = frozenset({UNSCHEDULABLE, CREATION_FORBIDDEN})
IN_A_ROW: Final = timedelta(seconds=2 * LONGEST_READMISSION_DELAY_S)
"""Failed attempts further apart than this do not lengthen the wait."""
SOON: Final = timedelta(minutes=1)
"""How long capacity is kept at most for a job whose cooldown has to end first."""
LAPSE_FACTOR: Final = 8
"""How long a reservation lapses, in reservations. Were it one, two jobs that wait for long-running ones would always have a
reservation in turn, and those behind them would never start."""
_NO_RESIZE: Final = frozenset({ADMITTED, AWAITING_NODES, REACHING_MINIMUM})
"""Reasons that start no cool-down: a starting job may grow as soon as its pods exist."""


@dataclass(frozen=True, slots=True)
class JobDemand:
    """One job that takes part."""

    job: TrainingJob
    record: SharingRecord | None
    """None if the job has no record with its own uid."""
    is_gang: bool
    current: int
    """The ordered size, possibly outside the bounds; 0 for a gang that may not start."""
    requested: int | None = None
    """The size that another client wrote, if it is larger (size_requests.py)."""
    live: int = 0
    """Trainer pods that exist and are not terminating."""
    has_succeeded: bool = False
    """Whether a trainer has succeeded: from then on no trainer is started and none is removed."""
    is_forbidden: bool = False
    """Whether the API server rejected its pods at the last attempt."""
    is_repeatedly_forbidden: bool = False
    """Whether it rejected them several times in a row."""
    given_up: int = 0
    """Trainers that failed permanently: they have no pod, and are not replaced."""

    @property
    def has_started(self) -> bool:
        """Whether it may have pods."""
        return self.current > 0 or not self.is_gang

    @property
    def wanted(self) -> int:
        """Its size within its bounds, as its controller reads it: a size below the minimum means the minimum."""
        return self.job.spec.trainer.clamp(self.current)

    @property
    def trainers(self) -> int:
        """How many trainer pods its controller keeps now."""
        return min(self.wanted, self.live) if self.has_succeeded else self.trainers_at(self.wanted)

    def trainers_at(self, size: int) -> int:
        """How many trainer pods its controller keeps at that size.

        A trainer that failed permanently is not replaced, and is the first that a smaller job does without
        (trainingjob/trainer_indices.py).
        """
        return max(0, min(size, self.live), size - self.given_up)

    @property
    def is_changed(self) -> bool:
        """Whether another client wrote a size that counts at once, and the record does not have it yet (TJ §3 row 21)."""
        return self.record is not None and self.has_started and self.current != self.record.replicas


def is_eligible(job: TrainingJob) -> bool:
    """Whether the job takes part: not while it is terminating, suspended or invalid, nor after it has ended."""
    return not is_going(job) and not _is_invalid(job)


def is_going(job: TrainingJob) -> bool:
    """Whether its pods are being removed: the job is terminating, suspended or has ended."""
    return job.metadata.deletion_timestamp is not None or job.spec.suspend or _has_ended(job)


def job_demand(job: TrainingJob, *, live_trainers: int, gpus: frozenset[str]) -> JobDemand:
    """The claim of a job that takes part and has `live_trainers` live trainer pods."""
    record, gang = job.record, is_gang(job, gpus)
    begins = not gang or is_admitted(job, record) or _has_pods_without_record(job, record, live_trainers)
    return JobDemand(
        job=job,
        record=record,
        is_gang=gang,
        # `kubectl scale --replicas=0` of a running gang asks for its minimum, as for any job; it does not end it.
        current=max(ordered_replicas(job), int(gang)) if begins else 0,
        requested=requested_size(job) if begins else None,
        live=live_trainers,
        has_succeeded=bool(_trainer_status(job).get("succeeded")),
        is_forbidden=is_forbidden(job),
        is_repeatedly_forbidden=is_repeatedly_forbidden(job),
        given_up=given_up(job),
    )


def size_for_trainers(job: TrainingJob, trainers: int, live: int) -> int:
    """The size at which the job has so many trainers, of which `live` exist already: the inverse of `JobDemand.trainers_at`."""
    failed = given_up(job)
    if not failed:
        return trainers
    return max(trainers if trainers <= live else trainers + failed, job.spec.trainer.min_instance)


def given_up(job: TrainingJob) -> int:
    """Number of trainers that failed permanently."""
    return len(indices_in(_trainer_status(job).get("failedIndexes")))


def ordered_replicas(job: TrainingJob) -> int:
    """The ordered size, and at least 0."""
    return max(0, job.ordered_replicas())


def admission_waits_until(job: TrainingJob, now: datetime) -> datetime | None:
    """Until when a gang that released its capacity is not admitted again; None if it may be."""
    until = may_be_admitted_at(job)
    return until if until is not None and until > now else None


# --- cool-downs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cooldowns:
    """Until when a job may not grow and may not shrink; None: no such limit now. Likewise its reservation."""

    growth_until: datetime | None = None
    grows_soon: bool = False
    """Whether it may grow within `SOON`, unless it waits because its last growth found no node."""
    has_failed: bool = False
    """Whether a growth found no node within `IN_A_ROW`."""
    retries: bool = False
    """Whether that was its last resize."""
    shrinking_until: datetime | None = None
    reservation_until: datetime | None = None
    """Until when it may have a reservation, or may have none (`is_reservation_lapsed`)."""
    is_reservation_lapsed: bool = False
    reserved_nodes: tuple[str, ...] = ()
    """Nodes of the reservation that it has."""
    answers_request: bool = False
    """Whether it may grow in its cooldown, into free capacity, because a client requests that."""
    request_until: datetime | None = None
    """When time alone changes what becomes of a request."""
    awaits_nodes_at: datetime | None = None
    """Until when a gang that is not admitted has no pods without capacity."""

    @property
    def until(self) -> datetime | None:
        """When the first of them ends; None if there is none."""
        moments = (
            self.growth_until,
            self.shrinking_until,
            self.reservation_until,
            self.request_until,
            self.awaits_nodes_at,
        )
        return min((moment for moment in moments if moment is not None), default=None)


def cooldowns_of(claim: JobDemand, now: datetime, *, reservation_s: float = RESERVATION_S) -> Cooldowns:
    """When the job may grow and shrink again: cooldowns count from its last resize, the minimum run time from its start.

    A reservation lasts `reservation_s` seconds. Then jobs behind it come first for a while (`reservation_turn`): the
    capacity that it waits for may belong to jobs that run for days. TJ §7.10.
    """
    scaling, resized_at = claim.job.spec.scaling, _resized_at(claim, now)
    began_at = _moment(claim.job.status.get("startTime")) or now
    record, last = claim.record, last_request(claim.job, now)
    answers = claim.requested is not None and (last is None or pause_until(last) <= now)
    cooldown = None if answers else _future([_later(resized_at, scaling.grow_cooldown_seconds)], now)
    pause = pause_until(last) if last is not None and record is not None and not is_for_more(last, record) else None
    retry = _future([_tries_again_at(claim, now), pause], now)
    notes = _resizes(claim, now)
    has_failed = any(note.reason in _IN_VAIN and note.at > now - IN_A_ROW for note in notes)
    shrinking = [_later(resized_at, scaling.shrink_cooldown_seconds)]
    if scaling.min_runtime_seconds > 0:
        shrinking.append(_later(began_at, scaling.min_runtime_seconds))
    since = reserved_since(claim.record, now)
    turn = None if since is None or not reservation_s else reservation_turn(since, now, reservation_s)
    waiting = claim.record.waiting if claim.record is not None else None
    return Cooldowns(
        growth_until=max(filter(None, (cooldown, retry)), default=None),
        grows_soon=cooldown is not None and retry is None and cooldown <= now + SOON,
        has_failed=has_failed,
        retries=has_failed and notes[-1].reason in _IN_VAIN,
        shrinking_until=_future(shrinking, now),
        reservation_until=None if turn is None else turn.until,
        is_reservation_lapsed=not reservation_s or (turn is not None and turn.is_lapsed),
        reserved_nodes=() if waiting is None else waiting.reserved_nodes,
        answers_request=answers,
        request_until=None if last is None or record is None else changes_at(last, record, now),
        awaits_nodes_at=None if claim.has_started else _future([may_await_nodes_at(claim.job)], now),
    )


def reserved_since(record: SharingRecord | None, now: datetime) -> datetime | None:
    """When capacity was first reserved for the job that waits; None: never, or a clock that was set back recorded it."""
    note = record.waiting if record is not None else None
    since = note.reserved_since if note is not None and note.is_below_minimum else None
    return since if since is not None and since <= now + CLOCK_TOLERANCE else None


@dataclass(frozen=True, slots=True)
class ReservationTurn:
    """Whether a job that waits may have a reservation now, and until when."""

    is_lapsed: bool
    until: datetime


def reservation_turn(since: datetime, now: datetime, reservation_s: float) -> ReservationTurn:
    """The present one of the reservations of `reservation_s` seconds that began at `since`, or the lapse after it."""
    elapsed_s = max(0.0, (now - since).total_seconds()) % ((1 + LAPSE_FACTOR) * reservation_s)
    is_lapsed = elapsed_s >= reservation_s
    left_s = (1 + LAPSE_FACTOR * is_lapsed) * reservation_s - elapsed_s
    return ReservationTurn(is_lapsed, now + timedelta(seconds=left_s))


def _tries_again_at(claim: JobDemand, now: datetime) -> datetime | None:
    """When it may grow again after releasing instances it could not use; the wait doubles each time (FD:SH-B6).

    Failures before a gap of more than `IN_A_ROW` do not count: the nodes of today may differ.
    """
    in_vain = sorted((note.at for note in _resizes(claim, now) if note.reason in _IN_VAIN), reverse=True)
    if not in_vain:
        return None
    times = 1
    for later, earlier in pairwise(in_vain):
        if later - earlier > IN_A_ROW:
            break
        times += 1
    return in_vain[0] + timedelta(seconds=min(LONGEST_READMISSION_DELAY_S, FIRST_READMISSION_DELAY_S * 2.0**times))


def _resized_at(claim: JobDemand, now: datetime) -> datetime | None:
    if claim.is_changed:
        return now
    return next((note.at for note in reversed(_resizes(claim, now)) if note.reason not in _NO_RESIZE), None)


def _resizes(claim: JobDemand, now: datetime) -> tuple[ResizeNote, ...]:
    notes = claim.record.resizes if claim.record is not None else ()
    return tuple(note for note in notes if note.at <= now + CLOCK_TOLERANCE)


def _later(moment: datetime | None, seconds: int) -> datetime | None:
    """The moment plus `seconds`, plus one because moments are stored without fractions; None if there is none."""
    if moment is None or seconds <= 0:
        return None
    return moment + timedelta(seconds=min(seconds, _LONGEST_S) + 1)


def _future(moments: Iterable[datetime | None], now: datetime) -> datetime | None:
    return max((moment for moment in moments if moment is not None and moment > now), default=None)


# --- helpers -----------------------------------------------------------------------------------------------------------


def _has_ended(job: TrainingJob) -> bool:
    conditions = job.status.get("conditions") or ()
    return any(is_condition_true(conditions, kind) for kind in _ENDED)


def _is_invalid(job: TrainingJob) -> bool:
    trainer = job.spec.trainer
    has_bounds = 0 <= trainer.min_instance <= trainer.ceiling
    return not has_bounds or is_condition_true(job.status.get("conditions") or (), trainingjob_constants.INVALID)


def _has_pods_without_record(job: TrainingJob, record: SharingRecord | None, live_trainers: int) -> bool:
    """Whether the record was lost (`kubectl replace`) before the status had it; live pods show that it was admitted."""
    return record is None and admission_revoked_at(job) is None and live_trainers > 0


def _trainer_status(job: TrainingJob) -> Mapping[str, Any]:
    found = job.status.get("trainer")
    return found if isinstance(found, Mapping) else {}


def _moment(found: object) -> datetime | None:
    return parse_timestamp(found) if isinstance(found, str) else None
