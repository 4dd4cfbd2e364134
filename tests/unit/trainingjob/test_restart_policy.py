"""Pods that end: the kind of failure, that each counts once despite crashes, and when it is recreated."""

import pytest

from raytide.api import trainingjob_constants as constants
from raytide.api.index_ranges import indices_in, ranges_text
from raytide.api.pod import PodCondition
from raytide.api.trainingjob_pod import JobPod
from raytide.trainingjob.messages import (
    ALL_FAILED,
    BACKOFF_LIMIT_EXCEEDED,
    POD_FAILED,
    TOO_MANY_FAILED,
)
from raytide.trainingjob.restart_policy import EARLY_EXIT_GRACE_S, FailureCause, failure_cause
from support.job_world import JobWorld
from support.training_builders import parsed_job

FIXED = {"low": 3, "high": 3}
"""Not elastic, so not fault tolerant."""


def ended(world, short, code=1, **fields):
    """A pod ends, the status counts it."""
    world.end(short, code, **fields)
    world.settle()


def recreated(world):
    """All pauses pass, what ended goes, what is missing comes."""
    world.pass_time(400)
    world.settle()
    world.let_go()
    world.run()


# --- whose fault -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:5.2", "TJ:7.12")
@pytest.mark.parametrize(
    ("policy", "code", "fault"),
    [
        pytest.param("Never", 1, FailureCause.PERMANENT, id="Never: no other try"),
        pytest.param("Never", 137, FailureCause.PERMANENT, id="Never: not after a signal either"),
        pytest.param("OnFailure", 1, FailureCause.TRANSIENT, id="OnFailure: always another"),
        pytest.param("ExitCode", 1, FailureCause.PERMANENT, id="ExitCode: 1 is permanent"),
        pytest.param("ExitCode", 127, FailureCause.PERMANENT, id="ExitCode: 127 is permanent"),
        pytest.param("ExitCode", 128, FailureCause.TRANSIENT, id="ExitCode: 128 is not"),
        pytest.param("ExitCode", 255, FailureCause.TRANSIENT, id="ExitCode: 255 is not"),
    ],
)
def test_the_restart_policy_determines_whether_a_failure_is_retried(policy, code, fault):
    world = JobWorld().run()
    world.end("trainer-0", code)
    assert failure_cause(parsed_job(restartPolicy=policy), world.pods["demo-trainer-0"]) is fault


@pytest.mark.rule("TJ:5.2")
@pytest.mark.parametrize(
    "sign",
    [
        pytest.param({"disruption": PodCondition("True", "PreemptionByScheduler")}, id="preempted"),
        pytest.param({"reason": "Evicted"}, id="evicted by its node"),
        pytest.param({"reason": "NodeLost"}, id="its node was lost"),
        pytest.param({"reason": "OutOfcpu"}, id="turned away by a full node"),
    ],
)
def test_what_the_cluster_takes_counts_against_no_limit(sign):
    world = JobWorld(**FIXED, restartPolicy="Never", backoffLimit=0).run()
    ended(world, "trainer-1", 137, **sign)
    assert world.phase == constants.PHASE_RUNNING
    assert world.status["trainer"]["failed"] == 0
    assert "not counted as a failure of the job" in world.messages_of(constants.POD_FAILED)[0]
    recreated(world)
    assert world.trainers == [0, 1, 2]


# --- counted once ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:7.12")
def test_a_failed_pod_is_counted_once_in_any_number_of_passes():
    world = JobWorld().run()
    ended(world, "trainer-1")
    for _ in range(5):
        world.settle()
    assert world.status["trainer"]["failed"] == 1
    assert world.status["failures"]["counted"] == [world.pods["demo-trainer-1"].uid]
    assert len(world.messages_of(constants.POD_FAILED)) == 1


@pytest.mark.rule("TJ:7.12")
def test_a_failed_pod_is_deleted_only_after_the_status_has_counted_it():
    world = JobWorld().run()
    world.end("trainer-1", 1)
    for _ in range(3):
        world.pass_time(100)
        assert world.reconcile(crash_before_status=True).actions == ()
    assert world.reconcile().requeue_after_s == 0.5
    assert world.status["trainer"]["failed"] == 1
    world.pass_time(10)
    assert [action.name for action in world.reconcile(crash_before_status=True).actions] == ["demo-trainer-1"]
    world.settle()
    world.let_go()
    world.run()
    assert world.status["trainer"]["failed"] == 1
    assert world.status["failures"]["counted"] == [], "what is gone is forgotten: the list stays as short as the pods"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"suspend": True}, id="suspended"),
        pytest.param({"trainer": {"min-instance": 9, "max-instance": 1}}, id="invalid"),
    ],
)
def test_a_failure_counts_once_while_the_job_is_not_reconciled(change):
    world = JobWorld(**FIXED, restartPolicy="Never").run()
    trainer = world.obj["spec"]["trainer"]
    world.end("trainer-1", 1)
    world.edit(**{**change, "trainer": {**trainer, **change.get("trainer", {})}})
    for _ in range(4):
        world.pass_time(10)
        world.settle()
    assert world.status["trainer"]["failed"] == 1
    assert not world.condition(constants.FAILED)
    world.edit(suspend=False, trainer=trainer)
    world.settle()
    assert world.condition(constants.FAILED)["reason"] == POD_FAILED


def test_a_failure_after_the_job_succeeded_counts_once_and_does_not_change_its_phase():
    world = JobWorld(low=3, high=3, successPolicy="AnyTrainer", backoffLimit=0).run()
    world.end("trainer-0")
    world.reconcile()
    assert world.phase == constants.PHASE_SUCCEEDED
    world.end("trainer-1", 1)
    for _ in range(4):
        world.pass_time(10)
        world.settle()
    assert world.status["trainer"]["failed"] == 1
    assert world.phase == constants.PHASE_SUCCEEDED


def test_several_that_end_together_are_one_failure_and_make_one_pause():
    world = JobWorld(low=1, high=4, trainer={"replicas": 4}).run()
    for index in range(3):
        world.end(f"trainer-{index}", 1)
    world.settle()
    assert world.status["trainer"]["failed"] == 3
    assert world.status["failures"]["incidents"] == {"trainer": 1}
    assert world.status["failures"]["inARow"] == 1


def test_invalid_values_in_the_status_are_ignored():
    world = JobWorld().run()
    world.obj["status"] |= {
        "failures": {"counted": 7, "inARow": "x", "lastTime": 3},
        "trainer": {"completedIndexes": "all"},
    }
    world.end("trainer-0", 1)
    world.settle()
    assert world.status["trainer"]["failed"] == 1


# --- pauses ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:6-608")
def test_a_crashing_program_is_restarted_with_exponential_backoff():
    """PaddleCloud #608, #149: pods without end for a script that crashed at once."""
    world = JobWorld(low=1, high=2, backoffLimit=20).run()
    pauses = []
    for _ in range(7):
        ended(world, "trainer-0")
        pause = world.reconcile().requeue_after_s
        pauses.append(pause)
        world.pass_time(pause - 0.5)
        assert world.plan().actions == (), "the failed pod stays for its logs"
        world.pass_time(0.5)
        world.settle()
        world.let_go()
        world.run()
    assert pauses == [10, 20, 40, 80, 160, 320, 360]


def test_the_pause_is_reported_with_its_end():
    world = JobWorld().run()
    ended(world, "trainer-1")
    waiting = world.condition(constants.WAITING)
    assert waiting["reason"] == "BackingOff"
    assert "2026-01-01T00:00:10Z" in waiting["message"]
    recreated(world)
    assert not world.condition(constants.WAITING)
    assert not world.messages_of(constants.WAITING_FOR_RESOURCES)


def test_a_pod_that_ran_for_ten_minutes_resets_the_backoff():
    world = JobWorld(backoffLimit=9).run()
    for _ in range(3):
        ended(world, "trainer-0")
        recreated(world)
    assert world.status["failures"]["inARow"] == 3
    world.pass_time(601)
    ended(world, "trainer-0")
    assert world.status["failures"]["inARow"] == 1


def test_what_was_taken_makes_a_short_pause_and_no_longer_ones():
    world = JobWorld().run()
    for _ in range(3):
        ended(world, "trainer-0", 137, reason="Evicted")
        assert world.reconcile().requeue_after_s == 10
        recreated(world)


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:2.3", "TJ:7.12")
@pytest.mark.parametrize(
    ("spec", "code", "reason"),
    [
        pytest.param({**FIXED, "restartPolicy": "Never"}, 1, POD_FAILED, id="fixed size, Never"),
        pytest.param({**FIXED, "restartPolicy": "ExitCode"}, 1, POD_FAILED, id="fixed size, a permanent code"),
        pytest.param({**FIXED, "restartPolicy": "ExitCode"}, 137, None, id="fixed size, a signal"),
        pytest.param({**FIXED}, 1, None, id="fixed size, OnFailure"),
        pytest.param({**FIXED, "backoffLimit": 0}, 1, BACKOFF_LIMIT_EXCEEDED, id="no failure allowed"),
        pytest.param({"restartPolicy": "Never"}, 1, None, id="elastic: one is lost, the others go on"),
        pytest.param({"maxFailedPercent": 25}, 1, None, id="one of the maximum may fail"),
        pytest.param({"maxFailedPercent": 20}, 1, TOO_MANY_FAILED, id="less than one of the maximum may fail"),
    ],
)
def test_what_a_failed_trainer_means_for_the_job(spec, code, reason):
    world = JobWorld(**spec).run()
    ended(world, "trainer-1", code)
    failed = world.condition(constants.FAILED)
    assert failed.get("reason") == reason
    assert world.phase == (constants.PHASE_FAILED if reason else constants.PHASE_RUNNING)
    if reason == POD_FAILED:
        assert "demo-trainer-1 on node node-0 failed with exit code 1" in failed["message"]


@pytest.mark.rule("TJ:7.12")
def test_the_back_off_limit_counts_failures_of_all_roles():
    world = JobWorld(backoffLimit=2, master={}, pserver={"min-instance": 1}).run()
    for short in ("trainer-0", "pserver-0"):
        ended(world, short)
        recreated(world)
    assert world.phase == constants.PHASE_RUNNING
    ended(world, "master")
    assert world.condition(constants.FAILED)["reason"] == BACKOFF_LIMIT_EXCEEDED
    assert "3 failures, more than backoffLimit 2" in world.condition(constants.FAILED)["message"]


@pytest.mark.rule("TJ:2.3")
def test_a_trainer_lost_for_good_is_not_replaced_and_all_lost_is_the_end():
    """Upstream, fault tolerant: failed when all trainer instances have failed."""
    world = JobWorld(low=2, high=3, trainer={"replicas": 3}, restartPolicy="Never").run()
    ended(world, "trainer-1")
    recreated(world)
    assert world.trainers == [0, 2]
    assert world.status["trainer"]["failedIndexes"] == "1"
    assert not world.pods["demo-trainer-1"].is_terminating, "its logs can be read"
    ended(world, "trainer-0")
    ended(world, "trainer-2")
    assert world.condition(constants.FAILED)["reason"] == ALL_FAILED
    assert world.condition(constants.FAILED)["message"] == "all trainer instances have failed"


@pytest.mark.rule("TJ:2.3")
def test_trainers_lost_for_good_do_not_keep_a_tolerant_job_from_succeeding():
    world = JobWorld(low=2, high=3, trainer={"replicas": 3}, restartPolicy="Never").run()
    ended(world, "trainer-1")
    ended(world, "trainer-0", 0)
    ended(world, "trainer-2", 0)
    assert world.phase == constants.PHASE_SUCCEEDED
    assert "1 failed permanently" in world.condition(constants.SUCCEEDED)["message"]


@pytest.mark.parametrize("short", ["master", "pserver-0"])
def test_a_lost_master_or_parameter_server_fails_the_job(short):
    world = JobWorld(restartPolicy="Never", master={}, pserver={"min-instance": 1}).run()
    ended(world, short)
    assert world.condition(constants.FAILED)["reason"] == POD_FAILED


@pytest.mark.parametrize("short", ["master", "pserver-0"])
def test_a_master_or_parameter_server_that_fails_is_recreated(short):
    world = JobWorld(master={}, pserver={"min-instance": 1}).run()
    uid = world.pods[f"demo-{short}"].uid
    ended(world, short)
    recreated(world)
    assert world.pods[f"demo-{short}"].uid != uid
    assert world.phase == constants.PHASE_RUNNING
    assert world.trainers == [0, 1], "those that ran went on"


# --- ending well -----------------------------------------------------------------------------------------------------


def test_parameter_servers_may_end_well_a_little_before_the_trainers_do():
    world = JobWorld(restartPolicy="Never", pserver={"min-instance": 1}).run()
    world.end("pserver-0")
    todo = world.reconcile()
    assert (todo.actions, todo.requeue_after_s) == ((), EARLY_EXIT_GRACE_S)
    world.end("trainer-0")
    world.end("trainer-1")
    world.pass_time(2 * EARLY_EXIT_GRACE_S)
    world.settle()
    assert world.phase == constants.PHASE_SUCCEEDED
    assert world.status["pserver"]["failed"] == 0


def test_a_parameter_server_that_exits_while_trainers_run_is_a_failure_and_recreated():
    world = JobWorld(restartPolicy="Never", pserver={"min-instance": 1}).run()
    world.end("pserver-0")
    world.pass_time(EARLY_EXIT_GRACE_S)
    world.settle()
    assert world.status["pserver"]["failed"] == 1
    recreated(world)
    assert world.names_of(constants.PSERVER) == ["pserver-0"]


def test_a_trainer_that_is_done_is_never_started_again_even_if_its_pod_is_gone():
    world = JobWorld(low=2, high=2, fault_tolerant=False).run()
    ended(world, "trainer-0", 0)
    del world.pods["demo-trainer-0"]
    assert world.run().trainers == [1]
    ended(world, "trainer-1", 0)
    assert world.phase == constants.PHASE_SUCCEEDED


# --- indices in a status ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("indices", "text"),
    [
        pytest.param([], "", id="none"),
        pytest.param([3], "3", id="one"),
        pytest.param([0, 1, 2, 5, 7, 8], "0-2,5,7-8", id="runs and single ones"),
    ],
)
def test_indices_are_written_as_ranges_and_read_back(indices, text):
    assert ranges_text(indices) == text
    assert indices_in(text) == frozenset(indices)


@pytest.mark.parametrize("text", [None, 5, "x", "-", "3-", "a-b", "5-3", "0-99999999999999", "²"])
def test_what_is_no_range_names_no_object_or_only_its_beginning(text):
    assert indices_in(text) <= {3}


def test_a_pod_without_container_statuses_has_no_exit_code():
    pod = JobPod(namespace="default", name="x", phase="Failed")
    assert (pod.exit_code, pod.finished_at, pod.failed_container) == (None, "", None)
