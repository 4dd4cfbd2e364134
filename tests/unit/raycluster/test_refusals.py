"""When something refused is asked for again."""

import pytest

from raytide.api import names
from raytide.api.actions import Create, Delete, Outcome, Result
from raytide.api.meta import PODS, Key
from raytide.raycluster.plan import SERVICE_SLOT
from raytide.raycluster.refusals import Refusals

KEY = Key("default", "demo")


def outcome(group="cpu", result=Result.REFUSED):
    create = Create(PODS, {"metadata": {"name": "demo-cpu-worker-abcde"}}, "Did", "FailedTo", group)
    return Outcome(create, result, "Forbidden", "exceeded quota")


def note(refusals, *outcomes, now=0.0, generation=1, uid="u"):
    refusals.note(KEY, uid, generation, outcomes, now)


def waits(refusals, now, generation=1, uid="u"):
    return {refusal.group: refusal.retry_in_s for refusal in refusals.waiting(KEY, uid, generation, now)}


@pytest.mark.rule("SC:S3")
def test_a_refused_group_waits_thirty_seconds_however_often():
    refusals = Refusals()
    for now in (0.0, 30.0, 60.0):
        note(refusals, outcome(), now=now)
        assert waits(refusals, now) == {"cpu": 30.0}
        assert waits(refusals, now + 30) == {}


@pytest.mark.parametrize("group", [names.HEAD_GROUP, SERVICE_SLOT])
def test_head_and_service_are_asked_for_again_soon_then_ever_later(group):
    refusals, delays = Refusals(), []
    for now in range(0, 600, 100):
        note(refusals, outcome(group), now=now)
        delays.append(waits(refusals, now)[group])
    assert delays == [1, 2, 4, 8, 16, 30]


def test_a_success_forgets_and_only_for_its_group():
    refusals = Refusals()
    note(refusals, outcome("a"), outcome("b"))
    note(refusals, outcome("a", Result.DONE))
    assert set(waits(refusals, 1.0)) == {"b"}


def test_many_refusals_of_one_pass_count_once():
    refusals = Refusals()
    note(refusals, *[outcome(names.HEAD_GROUP)] * 5)
    assert waits(refusals, 0.0) == {names.HEAD_GROUP: 1.0}


@pytest.mark.parametrize("other", [{"generation": 2}, {"uid": "v"}])
def test_a_new_spec_or_a_new_cluster_starts_anew(other):
    refusals = Refusals()
    note(refusals, outcome())
    assert waits(refusals, 1.0, **other) == {}


@pytest.mark.parametrize("result", [Result.UNKNOWN, Result.UNAVAILABLE, Result.SKIPPED])
def test_no_answer_is_no_refusal(result):
    refusals = Refusals()
    note(refusals, outcome(result=result))
    assert waits(refusals, 0.0) == {}


def test_a_refused_delete_holds_no_group():
    refusals = Refusals()
    delete = Delete(PODS, "default", "x", "u", "Did", "FailedTo", "cpu")
    note(refusals, Outcome(delete, Result.REFUSED))
    assert waits(refusals, 0.0) == {}


def test_forgotten_clusters_leave_nothing():
    refusals = Refusals()
    note(refusals, outcome())
    refusals.forget(KEY)
    assert waits(refusals, 0.0) == {}
