"""Failures count per incident, and never against a size that the operator chose."""

import pytest

from raytide.api import trainingjob_constants as constants
from raytide.api.pod import PodCondition
from raytide.trainingjob.incidents import MAX_BY_RESIZE
from raytide.trainingjob.messages import BACKOFF_LIMIT_EXCEEDED, POD_FAILED, TOO_MANY_FAILED
from support.job_world import JobWorld

EIGHT = {"low": 2, "high": 8, "framework": "torchrun", "trainer": {"replicas": 8}}


def recreated(world):
    """All pauses pass, what ended goes, what is missing comes."""
    world.pass_time(400)
    world.settle()
    world.let_go()
    world.run()


def all_fail(world, *indices, apart_s=0.0):
    """These trainers exit with an error, one after the other."""
    for index in indices:
        world.end(f"trainer-{index}", 1)
        world.settle()
        world.pass_time(apart_s)


@pytest.mark.rule("FD:SH-B1")
def test_a_shrink_turns_no_old_failures_into_an_end():
    world = JobWorld(low=4, high=20, maxFailedPercent=30, trainer={"replicas": 20}).run()
    for index in range(4):
        all_fail(world, index)
        recreated(world)
    assert world.phase == constants.PHASE_RUNNING
    world.order(12, "Reclaimed")
    world.settle()
    world.let_go()
    world.settle()
    assert not world.condition(constants.FAILED)
    assert len(world.trainers) == 12


@pytest.mark.rule("FD:SH-B1")
def test_the_percentage_of_the_maximum_still_ends_a_job():
    world = JobWorld(low=1, high=10, maxFailedPercent=20, trainer={"replicas": 2}).run()
    for _ in range(2):
        all_fail(world, 1)
        recreated(world)
    assert not world.condition(constants.FAILED)
    all_fail(world, 1)
    assert world.condition(constants.FAILED)["reason"] == TOO_MANY_FAILED


@pytest.mark.rule("FD:SH-B2")
@pytest.mark.parametrize("apart_s", [pytest.param(0.0, id="at once"), pytest.param(60.0, id="by their own time-outs")])
def test_agents_that_exit_because_a_peer_died_are_one_failure(apart_s):
    world = JobWorld(**EIGHT).run()
    for index in range(8):
        world.end(f"trainer-{index}", 1)
        world.settle()
        world.pass_time(apart_s)
    assert world.status["trainer"]["failed"] == 8
    assert world.status["restarts"] == 1
    assert not world.condition(constants.FAILED)


@pytest.mark.rule("FD:SH-B2")
def test_a_lost_node_takes_the_other_agents_with_it_and_counts_against_no_limit():
    world = JobWorld(**EIGHT, backoffLimit=0).run()
    world.pod("trainer-0", node_name="node-9")
    world.unready_nodes = frozenset({"node-9"})
    all_fail(world, *range(1, 8), apart_s=5.0)
    assert world.phase != constants.PHASE_FAILED
    assert world.status["restarts"] == 0
    assert "because another pod was disrupted" in world.messages_of(constants.POD_FAILED)[0]
    recreated(world)
    assert len(world.trainers) == 8


@pytest.mark.rule("FD:SH-B2")
def test_agents_may_end_long_after_the_evicted_peer_is_gone():
    world = JobWorld(**EIGHT, backoffLimit=0).run()
    world.pod(
        "trainer-0",
        deletion_timestamp="2026-01-01T00:00:30Z",
        disruption=PodCondition("True", "EvictionByEvictionAPI"),
    )
    world.settle()
    world.let_go()
    world.run()
    world.pass_time(600)
    all_fail(world, *range(1, 8))
    assert world.status["restarts"] == 0
    assert not world.condition(constants.FAILED)


@pytest.mark.rule("FD:SH-B2")
def test_a_policy_without_another_try_makes_an_exception_for_those_that_lost_a_peer_to_the_cluster():
    world = JobWorld(low=3, high=3, restartPolicy="Never").run()
    world.end("trainer-0", 137, reason="NodeLost")
    world.end("trainer-1", 1)
    world.settle()
    assert not world.condition(constants.FAILED)
    recreated(world)
    assert world.trainers == [0, 1, 2]
    world.pass_time(1000)
    all_fail(world, 1)
    assert world.condition(constants.FAILED)["reason"] == POD_FAILED


@pytest.mark.rule("FD:SH-B1", "FD:SH-B2")
def test_trainers_that_do_not_survive_a_resize_count_against_no_limit():
    world = JobWorld(**EIGHT, backoffLimit=0).run()
    world.pass_time(60)
    world.order(6, "Reclaimed")
    world.settle()
    world.let_go()
    all_fail(world, *range(6), apart_s=1.0)
    assert not world.condition(constants.FAILED)
    recreated(world)
    assert len(world.trainers) == 6
    all_fail(world, 3)
    assert world.condition(constants.FAILED)["reason"] == BACKOFF_LIMIT_EXCEEDED, (
        "what was made after the resize knows it"
    )


@pytest.mark.rule("FD:SH-B1", "FD:SH-B2")
def test_a_job_that_is_resized_every_ten_minutes_and_crashes_in_between_comes_to_its_end():
    world = JobWorld(**EIGHT, backoffLimit=3).run()
    world.pass_time(60)
    for size in [6, 8] * 6:
        world.order(size)
        world.settle()
        world.let_go()
        world.run()
        world.pass_time(300)
        all_fail(world, 3)
        if world.condition(constants.FAILED):
            break
        recreated(world)
    assert world.condition(constants.FAILED)["reason"] == BACKOFF_LIMIT_EXCEEDED
    assert (world.status["restarts"], world.status["trainer"]["failed"]) == (4, 10), (
        "three in each hour are the resizes'"
    )


@pytest.mark.rule("FD:SH-B1", "FD:SH-B2")
def test_three_resizes_an_hour_that_a_job_does_not_survive_count_against_no_limit():
    world = JobWorld(**EIGHT, backoffLimit=0).run()
    for size in [6, 8] * 6:
        world.pass_time(1200)
        world.order(size, "Reclaimed")
        world.settle()
        world.let_go()
        all_fail(world, *range(6), apart_s=1.0)
        recreated(world)
        assert not world.condition(constants.FAILED)
    assert len(world.status["failures"]["resizeIncidentTimes"]) <= MAX_BY_RESIZE
    assert world.status["restarts"] == 0


@pytest.mark.rule("FD:SH-B2")
def test_a_crash_loop_still_comes_to_its_end():
    world = JobWorld(**EIGHT, backoffLimit=2).run()
    for _ in range(2):
        all_fail(world, *range(8))
        recreated(world)
    assert world.status["restarts"] == 2
    assert not world.condition(constants.FAILED)
    all_fail(world, 5)
    assert world.condition(constants.FAILED)["reason"] == BACKOFF_LIMIT_EXCEEDED


@pytest.mark.rule("FD:SH-B2")
def test_a_disruption_that_lasts_is_not_written_in_every_pass():
    world = JobWorld(**EIGHT).run()
    world.pod("trainer-0", node_name="node-9")
    world.unready_nodes = frozenset({"node-9"})
    world.settle()
    first = world.status["failures"]["disruptionTime"]
    for _ in range(5):
        world.pass_time(500)
        world.settle()
    assert world.status["failures"]["disruptionTime"] == first
    all_fail(world, 1)
    assert world.status["restarts"] == 0, "the node is still away"
    assert world.status["failures"]["disruptionTime"] > first


@pytest.mark.rule("FD:SH-B2")
def test_a_crash_loop_comes_to_its_end_although_a_node_stays_away():
    world = JobWorld(**EIGHT, backoffLimit=3).run()
    world.pod("trainer-0", node_name="node-9")
    world.unready_nodes = frozenset({"node-9"})
    world.settle()
    for _ in range(12):
        all_fail(world, 5)
        recreated(world)
    assert world.condition(constants.FAILED)["reason"] == BACKOFF_LIMIT_EXCEEDED
    assert world.status["trainer"]["failed"] <= 7, "those of the first 15 minutes are the node's"
