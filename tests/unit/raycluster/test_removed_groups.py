"""Workers of a removed group beside an autoscaler that says nothing of them (SC:S14)."""

from dataclasses import replace
from datetime import timedelta

import pytest

from raytide.api.scaling import GroupDecision
from raytide.raycluster.scaling import IGNORED, scaling_of
from raytide.raycluster.scaling_conditions import autoscaler_down
from unit.raycluster.test_scaling import HEAD, NOW, RECORD, scaled, seen

from builders import group, pod

GONE = pod("demo-gone-worker-a", group="gone")
SAYS = {"gone": GroupDecision(0, deadline=NOW + timedelta(minutes=5))}


def told_of(since_s=None, *, is_down=False, reason=IGNORED, decided=None, record=RECORD):
    """How a cluster is scaled of which group `gone` has left the spec; `since_s`: for how long that was told."""
    since = None if since_s is None else NOW - timedelta(seconds=since_s)
    cluster = scaled(
        group("cpu"), record=record, down_since=since, is_down=is_down, down_reason=reason, **(decided or {})
    )
    return cluster, scaling_of(cluster, seen(HEAD, GONE))


@pytest.mark.rule("SC:S14", "D19")
@pytest.mark.parametrize("record", [RECORD, None], ids=["a record", "no record yet"])
@pytest.mark.parametrize(
    ("told", "may_go"),
    [
        pytest.param({}, False, id="at first it is waited for"),
        pytest.param({"since_s": 299}, False, id="for five minutes"),
        pytest.param({"since_s": 300}, True, id="and no longer"),
        pytest.param({"since_s": 0, "is_down": True}, True, id="nor again"),
        pytest.param({"since_s": 4000, "is_down": True, "reason": "HeadMissing"}, False, id="another trouble before"),
    ],
)
def test_workers_of_a_removed_group_wait_five_minutes_for_an_autoscaler_that_says_nothing(record, told, may_go):
    cluster, scaling = told_of(**told, record=record)
    assert scaling.record == (None if record is None else replace(record, groups={}))
    assert (scaling.last_stay_of(GONE) is None) == may_go
    said = autoscaler_down(cluster, scaling, NOW)
    assert (said.reason, said.status) == (IGNORED, may_go)
    assert "group gone" in said.message


@pytest.mark.rule("SC:S14")
def test_one_that_says_when_they_may_go_is_left_its_time_whatever_was_told():
    cluster, scaling = told_of(4000, is_down=True, decided=SAYS)
    assert scaling.last_stay_of(GONE) == NOW + timedelta(minutes=5)
    assert autoscaler_down(cluster, scaling, NOW) is None
