"""Gang admission: whether a gang may have pods, and when it may be admitted again.

A gang starts once fair sharing has admitted it (TJ §3 row 11). When its pods do not all run in time, or the job is
suspended, the TrainingJob controller releases the capacity and sets the condition `Admitted` to False with the reason
`GangTimeout` or `Suspended`. After that only a later admission counts, and after time-outs the next one waits for a
backoff that doubles. An optimistic job whose minimum does not run in time releases its pods in the same way and starts
as a gang afterwards. Both controllers use these functions, so that admission and start cannot disagree.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from raytide.api import trainingjob_constants as constants
from raytide.api.conditions import find_condition, is_condition_true, parse_timestamp
from raytide.api.sharing_record import AWAITING_NODES, SharingRecord
from raytide.api.trainingjob import TrainingJob

FIRST_READMISSION_DELAY_S: Final = 60.0
LONGEST_READMISSION_DELAY_S: Final = 1800.0
REVOKED_REASONS: Final = frozenset({constants.GANG_TIMEOUT, constants.SUSPENDED})
"""Reasons of a False `Admitted` with which a gang releases its capacity."""


def is_admitted(job: TrainingJob, record: SharingRecord | None) -> bool:
    """Whether its gang may have pods: admitted under this uid, and later than its last release of capacity.

    A record that is missing (`kubectl replace`) or has another job's uid does not revoke an admission: the condition in
    the job's status decides then.
    """
    if record is None or record.uid != job.metadata.uid:
        return is_condition_true(job.status.get("conditions") or (), constants.ADMITTED)
    if not record.is_admitted:
        return False
    revoked_at = admission_revoked_at(job)
    return revoked_at is None or (record.admitted_at is not None and record.admitted_at > revoked_at)


def admission_revoked_at(job: TrainingJob) -> datetime | None:
    """When its gang released its capacity; None unless `Admitted` is False for that reason."""
    condition = find_condition(job.status.get("conditions") or (), constants.ADMITTED)
    if condition is None or condition.get("status") == "True" or condition.get("reason") not in REVOKED_REASONS:
        return None
    return parse_timestamp(str(condition.get("lastTransitionTime")))


def gang_timeouts(job: TrainingJob) -> int:
    """Number of consecutive gang time-outs."""
    admission = job.status.get("admission")
    times = admission.get("timeouts") if isinstance(admission, Mapping) else 0
    return times if isinstance(times, int) else 0


def is_forbidden(job: TrainingJob) -> bool:
    """Whether the API server rejected its last pod creates for another reason than a quota (FD:SEC-F3)."""
    admission = job.status.get("admission")
    return isinstance(admission, Mapping) and admission.get("forbidden") is True


def is_repeatedly_forbidden(job: TrainingJob) -> bool:
    """Whether it rejected them several times in a row: a single rejection may be transient."""
    admission = job.status.get("admission")
    return isinstance(admission, Mapping) and admission.get("repeatedlyForbidden") is True


def may_be_admitted_at(job: TrainingJob) -> datetime | None:
    """The earliest time at which its gang may be admitted; None when there is no backoff.

    It is at least one second after the release: timestamps are whole seconds, and an admission in the same second would
    count as earlier. There is no backoff after a time in which it only waited for nodes: if there is capacity now, it starts.
    """
    return _released_at(job, 0 if awaited_nodes(job) else gang_timeouts(job))


def may_await_nodes_at(job: TrainingJob) -> datetime | None:
    """The earliest time at which its gang may have pods although there is no capacity for them; None when there is no backoff."""
    return _released_at(job, gang_timeouts(job))


def awaited_nodes(job: TrainingJob) -> bool:
    """Whether its gang was last admitted without capacity (FD:TJ3-5)."""
    record = job.record
    return record is not None and bool(record.resizes) and record.resizes[-1].reason == AWAITING_NODES


def _released_at(job: TrainingJob, timeouts: int) -> datetime | None:
    """When its gang released its capacity, plus the backoff after so many time-outs."""
    revoked_at = admission_revoked_at(job)
    if revoked_at is None:
        return None
    backoff_s = FIRST_READMISSION_DELAY_S * 2.0 ** min(timeouts - 1, 30) if timeouts > 0 else 1.0
    return revoked_at + timedelta(seconds=min(LONGEST_READMISSION_DELAY_S, backoff_s))
