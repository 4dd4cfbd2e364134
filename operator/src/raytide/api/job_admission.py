"""May a gang have pods now, and when may it be admitted again?

A gang begins when the sharing pass has admitted it (TJ §3 row 11). When its pods do not all run in time, or the job is
suspended, the job's controller gives the room back and says so in the condition `Admitted`: False, `GangTimeout` or
`Suspended`, at that moment. From then on only a later admission counts, and after time-outs the next one has to keep a
distance that doubles. A job that began on the chance of room, and found none for its minimum in time, gives its pods back
in the same way and begins as a gang from then on. Both rooms ask here, the one that admits and the one that begins, so that they cannot differ.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from raytide.api import training_names as names
from raytide.api.conditions import find_condition, is_condition_true, moment_of
from raytide.api.sharing import SharingRecord
from raytide.api.trainingjob import TrainingJob

FIRST_DISTANCE_S: Final = 60.0
LONGEST_DISTANCE_S: Final = 1800.0
GIVES_BACK: Final = frozenset({names.GANG_TIMEOUT, names.SUSPENDED})
"""Reasons of a False `Admitted` with which a gang gives its room back."""


def is_admitted(job: TrainingJob, record: SharingRecord | None) -> bool:
    """Whether its gang may have pods: admitted, as this very job, and since it gave its room back last.

    A record that is lost (`kubectl replace`), or comes from another job's manifest, takes back nothing: what the status
    says of this very job counts then.
    """
    if record is None or record.uid != job.metadata.uid:
        return is_condition_true(job.status.get("conditions") or (), names.ADMITTED)
    if not record.is_admitted:
        return False
    given_back = given_back_at(job)
    return given_back is None or (record.admitted_at is not None and record.admitted_at > given_back)


def given_back_at(job: TrainingJob) -> datetime | None:
    """When its gang gave its room back, if it has not been admitted since."""
    condition = find_condition(job.status.get("conditions") or (), names.ADMITTED)
    if condition is None or condition.get("status") == "True" or condition.get("reason") not in GIVES_BACK:
        return None
    return moment_of(str(condition.get("lastTransitionTime")))


def gang_timeouts(job: TrainingJob) -> int:
    """How often in a row its gang did not come together in time."""
    admission = job.status.get("admission")
    times = admission.get("timeouts") if isinstance(admission, Mapping) else 0
    return times if isinstance(times, int) else 0


def is_forbidden(job: TrainingJob) -> bool:
    """Whether the API server refused its pods when they were last asked for, for another reason than a quota (FD:SEC-F3)."""
    admission = job.status.get("admission")
    return isinstance(admission, Mapping) and admission.get("forbidden") is True


def is_repeatedly_forbidden(job: TrainingJob) -> bool:
    """Whether it refused them several times in a row: a single refusal may be gone at the next try."""
    admission = job.status.get("admission")
    return isinstance(admission, Mapping) and admission.get("repeatedlyForbidden") is True


def may_be_admitted_at(job: TrainingJob) -> datetime | None:
    """Before which moment its gang should not be admitted; None when nothing is in the way.

    Never the second in which it gave its room back: stamps are whole seconds, and an admission in that same second would
    count as one from before.
    """
    given_back, times = given_back_at(job), gang_timeouts(job)
    if given_back is None:
        return None
    distance_s = min(LONGEST_DISTANCE_S, FIRST_DISTANCE_S * 2.0 ** min(times - 1, 30)) if times > 0 else 1.0
    return given_back + timedelta(seconds=distance_s)
