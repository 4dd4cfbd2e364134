"""Metrics of jobs, and that a deleted job leaves no series."""

from datetime import UTC, datetime

import pytest

from raytide.api import sharing_record
from raytide.api.meta import Key
from raytide.metrics import REGISTRY
from raytide.trainingjob.metrics import Measures

KEY = Key("team", "measured")
LABELS = {"namespace": "team", "name": "measured"}
SINCE = "2026-01-01T00:00:00Z"


class FakeClock:
    def now(self):
        return datetime(2026, 1, 1, 0, 1, tzinfo=UTC)


@pytest.fixture
def measures():
    measures = Measures(FakeClock())
    yield measures
    measures.clear()


def value(name, **labels):
    return REGISTRY.get_sample_value(name, {**LABELS, **labels})


def series():
    return [
        s
        for family in REGISTRY.collect()
        if family.name.startswith("trainingjob_")
        for s in family.samples
        if s.labels.get("name") == KEY.name
    ]


def resize(before, after, reason, time=SINCE):
    return {"time": time, "from": before, "to": after, "reason": reason}


def history(*resizes):
    return {"scaling": {"history": list(resizes)}}


@pytest.mark.rule("TJ §8")
def test_a_status_sets_the_gauges(measures):
    measures.update(KEY, {"trainer": {"desired": 4, "ready": 3, "fulfillment": 0.5}, "master": {"running": 1}})
    assert value("trainingjob_instances", role="trainer", state="desired") == 4
    assert value("trainingjob_instances", role="trainer", state="ready") == 3
    assert value("trainingjob_instances", role="master", state="running") == 1
    assert value("trainingjob_instances", role="pserver", state="ready") == 0
    assert value("trainingjob_fulfillment") == 0.5


@pytest.mark.rule("TJ §8")
@pytest.mark.parametrize(
    ("conditions", "seconds"),
    [
        pytest.param([{"type": "Waiting", "status": "True", "lastTransitionTime": SINCE}], 60, id="for a minute"),
        pytest.param([{"type": "Waiting", "status": "False", "lastTransitionTime": SINCE}], 0, id="no more"),
        pytest.param([], 0, id="never"),
        pytest.param(
            [{"type": "Waiting", "status": "True", "lastTransitionTime": "soon"}], 0, id="without a valid timestamp"
        ),
    ],
)
def test_the_waiting_time_is_computed_at_each_scrape(measures, conditions, seconds):
    measures.update(KEY, {"conditions": conditions})
    assert value("trainingjob_waiting_seconds") == seconds


@pytest.mark.rule("TJ §8")
def test_a_resize_is_counted_when_the_status_names_it_for_the_first_time(measures):
    def counted(direction, reason):
        return REGISTRY.get_sample_value("trainingjob_scale_total", {"direction": direction, "reason": reason}) or 0

    before = {
        (d, r): counted(d, r)
        for d in ("up", "down")
        for r in (sharing_record.GROWING, sharing_record.RECLAIMED, "Other")
    }
    first, second = resize(2, 4, sharing_record.GROWING), resize(4, 3, sharing_record.RECLAIMED)
    measures.update(KEY, {})
    measures.record_written_status(KEY, {}, history(first))
    measures.record_written_status(KEY, history(first), history(first, second))
    measures.record_written_status(KEY, history(first, second), history(first, second))
    measures.record_written_status(KEY, history(first, second), history(second, resize(3, 9, "MadeUp")))
    after = {key: counted(*key) - value for key, value in before.items()}
    assert (
        value("trainingjob_resizes_total", direction="up"),
        value("trainingjob_resizes_total", direction="down"),
    ) == (2, 1)
    assert after == {
        ("up", sharing_record.GROWING): 1,
        ("down", sharing_record.RECLAIMED): 1,
        ("up", "Other"): 1,
        ("down", sharing_record.GROWING): 0,
        ("up", sharing_record.RECLAIMED): 0,
        ("down", "Other"): 0,
    }


def test_a_job_without_resizes_has_counters_at_0(measures):
    """A counter that begins with 1 shows no increase."""
    measures.update(KEY, {})
    assert [value("trainingjob_resizes_total", direction=each) for each in ("up", "down")] == [0, 0]


def test_the_series_are_removed_with_the_job(measures):
    measures.update(KEY, {"trainer": {"ready": 1}})
    assert len([each for each in series() if not each.name.endswith("_created")]) == 3 * 6 + 2 + 2
    measures.forget(KEY)
    assert series() == []
    measures.forget(KEY)  # idempotent


def test_a_replica_that_stops_leading_exports_no_series(measures):
    measures.update(KEY, {})
    measures.update(Key("team", "other"), {})
    measures.clear()
    assert series() == []
