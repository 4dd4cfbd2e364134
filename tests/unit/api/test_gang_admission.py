"""When a gang may have pods, as both controllers compute it."""

from datetime import UTC, datetime, timedelta

import pytest

from raytide.api.gang_admission import admission_revoked_at, gang_timeouts, is_admitted, may_be_admitted_at
from raytide.api.sharing_record import SharingRecord
from support.training_builders import JOB_UID, parsed_job

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_TEXT = "2026-01-01T12:00:00Z"


def job(reason=None, *, status="False", at=NOON_TEXT, timeouts=0):
    condition = {"type": "Admitted", "status": status, "reason": reason, "lastTransitionTime": at}
    return parsed_job({"conditions": [condition] if reason else [], "admission": {"timeouts": timeouts}})


def record(minutes=1, *, uid=JOB_UID, admitted=True):
    return SharingRecord(uid, 2, is_admitted=admitted, admitted_at=NOON + timedelta(minutes=minutes))


@pytest.mark.rule("TJ:3.11")
@pytest.mark.parametrize(
    ("of", "admitted_at", "admitted"),
    [
        pytest.param(job(), None, False, id="no record"),
        pytest.param(job(), record(), True, id="admitted"),
        pytest.param(job(), record(admitted=False), False, id="a record without admission"),
        pytest.param(job(), record(uid="another"), False, id="another job's record"),
        pytest.param(job("Waiting"), record(-1), True, id="it never gave anything back"),
        pytest.param(job("GangTimeout"), record(-1), False, id="admitted before it timed out"),
        pytest.param(job("GangTimeout"), record(0), False, id="in that very second"),
        pytest.param(job("GangTimeout"), record(1), True, id="admitted after it timed out"),
        pytest.param(job("Suspended"), record(-1), False, id="admitted before it was suspended"),
        pytest.param(job("GangReady", status="True"), record(-1), True, id="it runs"),
        pytest.param(job("GangReady", status="True"), None, True, id="it runs and has lost its record"),
        pytest.param(
            job("Admitted", status="True"), record(uid="another"), True, id="it starts, with another's record"
        ),
        pytest.param(job("GangReady", status="True"), record(admitted=False), False, id="its admission was taken back"),
        pytest.param(job("GangTimeout"), None, False, id="it timed out and has lost its record"),
    ],
)
def test_only_an_admission_after_the_last_giving_back_counts(of, admitted_at, admitted):
    assert is_admitted(of, admitted_at) is admitted


@pytest.mark.rule("TJ:6-258")
@pytest.mark.parametrize(
    ("timeouts", "distance_s"), [(0, 1), (1, 60), (2, 120), (3, 240), (5, 960), (6, 1800), (10**6, 1800)]
)
def test_the_distance_to_the_next_admission_doubles(timeouts, distance_s):
    assert may_be_admitted_at(job("GangTimeout", timeouts=timeouts)) == NOON + timedelta(seconds=distance_s)


def test_a_gang_that_never_timed_out_may_be_admitted_at_any_time():
    assert may_be_admitted_at(job()) is None
    assert may_be_admitted_at(job("GangReady", status="True")) is None


def test_invalid_values_in_the_status_are_ignored():
    assert admission_revoked_at(job("GangTimeout", at="yesterday")) is None
    assert gang_timeouts(job(timeouts="many")) == 0
