"""When a rejected create is retried."""

import pytest

from raytide.api import constants
from raytide.api.actions import Create, Delete, Outcome, Result
from raytide.api.meta import PODS, Key
from raytide.raycluster.create_backoff import RayClusterCreateBackoff
from raytide.raycluster.owned_objects import SERVICE_SLOT

KEY = Key("default", "demo")


def outcome(group="cpu", result=Result.REJECTED):
    create = Create(PODS, {"metadata": {"name": "demo-cpu-worker-abcde"}}, "Did", "FailedTo", group)
    return Outcome(create, result, "Forbidden", "exceeded quota")


def note(backoff, *outcomes, now=0.0, generation=1, uid="u"):
    backoff.record_outcomes(KEY, uid, generation, outcomes, now)


def waits(backoff, now, generation=1, uid="u"):
    return {retry.group: retry.retry_in_s for retry in backoff.waiting(KEY, uid, generation, now)}


@pytest.mark.rule("FD:RC-B19", "SC:S3")
@pytest.mark.parametrize("group", ["cpu", constants.HEAD_GROUP, SERVICE_SLOT])
def test_a_rejected_group_is_retried_with_exponential_backoff(group):
    backoff, delays = RayClusterCreateBackoff(), []
    for now in range(0, 600, 100):
        note(backoff, outcome(group), now=now)
        delays.append(waits(backoff, now)[group])
    assert delays == [1, 2, 4, 8, 16, 30]


def test_a_success_resets_the_backoff_of_its_group_only():
    backoff = RayClusterCreateBackoff()
    note(backoff, outcome("a"), outcome("b"))
    note(backoff, outcome("a", Result.DONE))
    assert set(waits(backoff, 0.5)) == {"b"}


def test_many_rejections_of_one_pass_count_once():
    backoff = RayClusterCreateBackoff()
    note(backoff, *[outcome(constants.HEAD_GROUP)] * 5)
    assert waits(backoff, 0.0) == {constants.HEAD_GROUP: 1.0}


@pytest.mark.parametrize("other", [{"generation": 2}, {"uid": "v"}])
def test_a_new_spec_or_a_new_cluster_resets_the_backoff(other):
    backoff = RayClusterCreateBackoff()
    note(backoff, outcome())
    assert waits(backoff, 0.5, **other) == {}


@pytest.mark.parametrize("result", [Result.UNKNOWN, Result.UNAVAILABLE, Result.SKIPPED])
def test_no_answer_is_no_rejection(result):
    backoff = RayClusterCreateBackoff()
    note(backoff, outcome(result=result))
    assert waits(backoff, 0.0) == {}


def test_a_rejected_delete_holds_no_group():
    backoff = RayClusterCreateBackoff()
    delete = Delete(PODS, "default", "x", "u", "Did", "FailedTo", "cpu")
    note(backoff, Outcome(delete, Result.REJECTED))
    assert waits(backoff, 0.0) == {}


def test_forget_drops_the_backoff_of_a_cluster():
    backoff = RayClusterCreateBackoff()
    note(backoff, outcome())
    backoff.forget(KEY)
    assert waits(backoff, 0.0) == {}


# --- hosts of replicas -----------------------------------------------------------------------------------------------


def host(result=Result.REJECTED):
    metadata = {"name": "demo-cpu-worker-abcde", "labels": {constants.HOST_INDEX_LABEL: "0"}}
    return Outcome(
        Create(PODS, {"metadata": metadata}, "Did", "FailedTo", "cpu"), result, "Forbidden", "exceeded quota"
    )


def only(backoff, now):
    (retry,) = backoff.waiting(KEY, "u", 1, now)
    return retry


@pytest.mark.rule("FD:RC-B19", "SC:S4")
def test_rejected_hosts_are_retried_with_exponential_backoff():
    backoff, delays, now = RayClusterCreateBackoff(), [], 0.0
    for _ in range(5):
        note(backoff, host(), now=now)
        delays.append(only(backoff, now).retry_in_s)
        now += delays[-1]
    assert delays == [5, 10, 20, 30, 30]
    assert only(backoff, now - delays[-1]).times == 5


@pytest.mark.rule("SC:S4")
def test_after_a_replica_was_given_up_only_new_replicas_are_backed_off():
    backoff, waits_s, now = RayClusterCreateBackoff(), [], 0.0
    for _ in range(6):
        note(backoff, host(Result.DONE), host(), now=now)
        backoff.give_up(KEY, {"cpu"}, now)
        retry = only(backoff, now)
        assert (retry.retry_in_s, retry.times) == (0.0, 0)
        waits_s.append(retry.replicas_in_s)
        assert retry.requeue_after_s == retry.replicas_in_s
        now += retry.replicas_in_s
    assert waits_s == [60, 120, 240, 480, 600, 600]


@pytest.mark.rule("SC:S4")
def test_a_replica_that_was_completed_meanwhile_does_not_end_the_wait_of_the_others():
    backoff = RayClusterCreateBackoff()
    note(backoff, host())
    backoff.give_up(KEY, {"cpu"}, 0.0)
    note(backoff, host(Result.DONE), now=10.0)
    assert only(backoff, 10.0).replicas_in_s == 50.0
    note(backoff, host(Result.DONE), now=61.0)
    note(backoff, host(), now=62.0)
    backoff.give_up(KEY, {"cpu"}, 62.0)
    assert only(backoff, 62.0).replicas_in_s == 60.0, "a success after the wait resets the backoff"


@pytest.mark.parametrize(
    ("moment", "waits_s"),
    [
        pytest.param(20.0, {}, id="the quota has capacity"),
        pytest.param(90.0, {"cpu": 70.0}, id="the quota has no capacity yet"),
    ],
)
def test_the_time_of_the_next_replica_depends_on_the_quota(moment, waits_s):
    backoff = RayClusterCreateBackoff()
    note(backoff, host())
    backoff.give_up(KEY, {"cpu"}, 0.0)
    backoff.begin_replicas_at(KEY, "cpu", moment)
    assert {each.group: each.replicas_in_s for each in backoff.waiting(KEY, "u", 1, 20.0)} == waits_s


def test_giving_up_what_was_never_rejected_changes_nothing():
    backoff = RayClusterCreateBackoff()
    backoff.give_up(KEY, {"cpu"}, 0.0)
    backoff.begin_replicas_at(KEY, "cpu", 5.0)
    assert backoff.waiting(KEY, "u", 1, 0.0) == ()
