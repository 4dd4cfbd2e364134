"""When something refused is asked for again."""

import pytest

from raytide.api import constants
from raytide.api.actions import Create, Delete, Outcome, Result
from raytide.api.meta import PODS, Key
from raytide.raycluster.create_backoff import RayClusterCreateBackoff
from raytide.raycluster.owned_objects import SERVICE_SLOT

KEY = Key("default", "demo")


def outcome(group="cpu", result=Result.REFUSED):
    create = Create(PODS, {"metadata": {"name": "demo-cpu-worker-abcde"}}, "Did", "FailedTo", group)
    return Outcome(create, result, "Forbidden", "exceeded quota")


def note(refusals, *outcomes, now=0.0, generation=1, uid="u"):
    refusals.note(KEY, uid, generation, outcomes, now)


def waits(refusals, now, generation=1, uid="u"):
    return {refusal.group: refusal.retry_in_s for refusal in refusals.waiting(KEY, uid, generation, now)}


@pytest.mark.rule("FD:RC-B19", "SC:S3")
@pytest.mark.parametrize("group", ["cpu", constants.HEAD_GROUP, SERVICE_SLOT])
def test_what_was_refused_is_asked_for_again_soon_then_ever_later(group):
    refusals, delays = RayClusterCreateBackoff(), []
    for now in range(0, 600, 100):
        note(refusals, outcome(group), now=now)
        delays.append(waits(refusals, now)[group])
    assert delays == [1, 2, 4, 8, 16, 30]


def test_a_success_forgets_and_only_for_its_group():
    refusals = RayClusterCreateBackoff()
    note(refusals, outcome("a"), outcome("b"))
    note(refusals, outcome("a", Result.DONE))
    assert set(waits(refusals, 0.5)) == {"b"}


def test_many_refusals_of_one_pass_count_once():
    refusals = RayClusterCreateBackoff()
    note(refusals, *[outcome(constants.HEAD_GROUP)] * 5)
    assert waits(refusals, 0.0) == {constants.HEAD_GROUP: 1.0}


@pytest.mark.parametrize("other", [{"generation": 2}, {"uid": "v"}])
def test_a_new_spec_or_a_new_cluster_starts_anew(other):
    refusals = RayClusterCreateBackoff()
    note(refusals, outcome())
    assert waits(refusals, 0.5, **other) == {}


@pytest.mark.parametrize("result", [Result.UNKNOWN, Result.UNAVAILABLE, Result.SKIPPED])
def test_no_answer_is_no_refusal(result):
    refusals = RayClusterCreateBackoff()
    note(refusals, outcome(result=result))
    assert waits(refusals, 0.0) == {}


def test_a_refused_delete_holds_no_group():
    refusals = RayClusterCreateBackoff()
    delete = Delete(PODS, "default", "x", "u", "Did", "FailedTo", "cpu")
    note(refusals, Outcome(delete, Result.REFUSED))
    assert waits(refusals, 0.0) == {}


def test_forgotten_clusters_leave_nothing():
    refusals = RayClusterCreateBackoff()
    note(refusals, outcome())
    refusals.forget(KEY)
    assert waits(refusals, 0.0) == {}


# --- hosts of replicas -----------------------------------------------------------------------------------------------


def host(result=Result.REFUSED):
    metadata = {"name": "demo-cpu-worker-abcde", "labels": {constants.HOST_INDEX_LABEL: "0"}}
    return Outcome(
        Create(PODS, {"metadata": metadata}, "Did", "FailedTo", "cpu"), result, "Forbidden", "exceeded quota"
    )


def only(refusals, now):
    (refusal,) = refusals.waiting(KEY, "u", 1, now)
    return refusal


@pytest.mark.rule("FD:RC-B19", "SC:S4")
def test_hosts_are_asked_for_again_soon_then_ever_later():
    refusals, delays, now = RayClusterCreateBackoff(), [], 0.0
    for _ in range(5):
        note(refusals, host(), now=now)
        delays.append(only(refusals, now).retry_in_s)
        now += delays[-1]
    assert delays == [5, 10, 20, 30, 30]
    assert only(refusals, now - delays[-1]).times == 5


@pytest.mark.rule("SC:S4")
def test_after_a_replica_was_given_up_hosts_may_come_and_new_replicas_ever_later():
    refusals, waits_s, now = RayClusterCreateBackoff(), [], 0.0
    for _ in range(6):
        note(refusals, host(Result.DONE), host(), now=now)
        refusals.give_up(KEY, {"cpu"}, now)
        refusal = only(refusals, now)
        assert (refusal.retry_in_s, refusal.times) == (0.0, 0)
        waits_s.append(refusal.replicas_in_s)
        assert refusal.requeue_after_s == refusal.replicas_in_s
        now += refusal.replicas_in_s
    assert waits_s == [60, 120, 240, 480, 600, 600]


@pytest.mark.rule("SC:S4")
def test_a_replica_that_was_completed_meanwhile_does_not_end_the_wait_of_the_others():
    refusals = RayClusterCreateBackoff()
    note(refusals, host())
    refusals.give_up(KEY, {"cpu"}, 0.0)
    note(refusals, host(Result.DONE), now=10.0)
    assert only(refusals, 10.0).replicas_in_s == 50.0
    note(refusals, host(Result.DONE), now=61.0)
    note(refusals, host(), now=62.0)
    refusals.give_up(KEY, {"cpu"}, 62.0)
    assert only(refusals, 62.0).replicas_in_s == 60.0, "a success after the wait begins anew"


@pytest.mark.parametrize(
    ("moment", "waits_s"),
    [pytest.param(20.0, {}, id="there is room"), pytest.param(90.0, {"cpu": 70.0}, id="there is none yet")],
)
def test_who_knows_the_quota_says_when_the_next_replica_is_begun(moment, waits_s):
    refusals = RayClusterCreateBackoff()
    note(refusals, host())
    refusals.give_up(KEY, {"cpu"}, 0.0)
    refusals.begin_replicas_at(KEY, "cpu", moment)
    assert {each.group: each.replicas_in_s for each in refusals.waiting(KEY, "u", 1, 20.0)} == waits_s


def test_giving_up_what_was_never_refused_changes_nothing():
    refusals = RayClusterCreateBackoff()
    refusals.give_up(KEY, {"cpu"}, 0.0)
    refusals.begin_replicas_at(KEY, "cpu", 5.0)
    assert refusals.waiting(KEY, "u", 1, 0.0) == ()
