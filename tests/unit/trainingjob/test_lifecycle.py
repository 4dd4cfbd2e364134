"""From admission to the end: gangs, deadlines, success policies, and the objects kept when a job has ended."""

from datetime import timedelta

import pytest

from raytide.api import trainingjob_constants as constants
from raytide.api.actions import Delete
from raytide.api.conditions import timestamp
from raytide.api.gang_admission import is_admitted, may_be_admitted_at
from raytide.api.meta import TRAININGJOBS
from raytide.api.pod import ContainerView
from raytide.diagnosis.render import HELD_BY
from raytide.trainingjob.lifecycle import CLOCK_SKEW_S
from raytide.trainingjob.messages import DEADLINE_EXCEEDED
from support.job_world import BEGIN, JobWorld

GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}, "requests": {"cpu": "1", "memory": "1Gi"}}}


def gang(**spec):
    return JobWorld(startPolicy="Gang", **spec)


# --- gangs -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:3.11")
@pytest.mark.parametrize(
    ("spec", "waits"),
    [
        pytest.param({}, False, id="a CPU job begins at once"),
        pytest.param({"trainer": GPU}, True, id="a GPU job waits"),
        pytest.param({"startPolicy": "Gang"}, True, id="a CPU job with startPolicy Gang waits"),
        pytest.param({"trainer": GPU, "startPolicy": "Optimistic"}, False, id="a GPU job that takes its chance begins"),
    ],
)
def test_gpu_jobs_wait_for_capacity_and_cpu_jobs_start_at_once(spec, waits):
    world = JobWorld(**spec).settle()
    assert bool(world.pods) is not waits
    assert world.condition(constants.ADMITTED)["status"] == ("False" if waits else "True")
    assert world.phase == (constants.PHASE_PENDING if waits else constants.PHASE_CREATING)


@pytest.mark.rule("TJ:3.11", "TJ:7.6")
def test_a_gang_starts_when_it_is_admitted_and_reports_when_it_is_complete():
    world = gang(master={}, pserver={"min-instance": 1}).settle()
    assert not world.pods
    assert "startTime" not in world.status
    world.pass_time(50)
    world.admit()
    world.settle()
    assert sorted(world.pods) == ["demo-master"]
    assert world.condition(constants.ADMITTED)["reason"] == constants.ADMITTED
    assert world.messages_of(constants.ADMITTED) == ["Admitted with 2: its minimum of 2 fits"]
    world.run()
    assert world.condition(constants.ADMITTED)["reason"] == constants.GANG_READY
    assert world.status["startTime"] == "2026-01-01T00:00:50Z"


@pytest.mark.rule("TJ:3.11")
@pytest.mark.parametrize("uid", ["", "another"])
def test_a_record_that_was_copied_with_a_manifest_admits_no_job(uid):
    world = gang()
    world.admit()
    annotations = world.obj["metadata"]["annotations"]
    world.obj["metadata"]["annotations"] = {key: text.replace("uid-job", uid) for key, text in annotations.items()}
    assert not world.settle().pods
    assert not world.messages_of(constants.ADMITTED)
    assert "scaling" not in world.status


@pytest.mark.rule("TJ:6-258")
def test_a_gang_that_does_not_come_together_in_time_gives_its_capacity_back():
    """PaddleCloud #258, DLRover #1175: some pods hold GPUs while others pend."""
    world = gang(pendingTimeoutSeconds=120)
    world.admit()
    world.settle()
    world.run("trainer-0")
    assert world.reconcile().requeue_after_s == 120
    world.pass_time(119)
    assert world.settle().trainers == [0, 1]

    world.pass_time(1)
    todo = world.reconcile()
    assert todo.actions == (), "the status comes first"
    assert todo.requeue_after_s == 0.5
    assert world.condition(constants.ADMITTED)["reason"] == constants.GANG_TIMEOUT
    world.settle()
    assert world.trainers == []
    assert world.phase == constants.PHASE_PENDING
    assert world.condition(constants.WAITING)["reason"] == constants.GANG_TIMEOUT
    assert len(world.messages_of(constants.GANG_TIMEOUT)) == 1
    world.let_go()
    world.pass_time(1000)
    assert not world.settle().pods, "the old admission does not count any more"


@pytest.mark.rule("TJ:6-258", "TJ:7.8")
def test_a_gang_that_timed_out_reports_why_its_pods_did_not_start():
    world = gang(pendingTimeoutSeconds=20)
    world.admit()
    world.settle()
    waiting = ContainerView("trainer", "waiting", "ImagePullBackOff", "no such image " + "x" * 9000)
    for short in ("trainer-0", "trainer-1"):
        world.pod(short, containers=(waiting,))
    world.pass_time(20)
    world.settle()
    world.let_go()
    world.settle()
    for kind in (constants.ADMITTED, constants.WAITING):
        message = world.condition(kind)["message"]
        assert (
            "the minimum did not start within 20 s (2 of 2 trainer pods cannot start: container trainer: ImagePull"
            in message
        )
        assert len(message) < 800
    assert "not admitted again before 2026" in world.condition(constants.WAITING)["message"]
    assert "no such image" in world.messages_of(constants.GANG_TIMEOUT)[0]


@pytest.mark.rule("TJ:6-258", "TJ:7.8")
def test_after_the_pause_of_a_timeout_a_gang_reports_what_is_missing_now():
    """A gang that fits no node reported for ever that it is not admitted before a time in the past."""
    world = gang(pendingTimeoutSeconds=20)
    world.admit()
    world.settle()
    world.pass_time(20)
    world.settle()
    world.let_go()
    world.say_waiting("Unsatisfiable", "no node could hold one")
    for passed_s, reason in ((59, constants.GANG_TIMEOUT), (1, "Unsatisfiable")):
        world.pass_time(passed_s)
        world.settle()
        assert world.condition(constants.WAITING)["reason"] == reason
    assert world.condition(constants.WAITING)["message"].partition(HELD_BY)[0] == "no node could hold one"
    assert world.condition(constants.ADMITTED)["reason"] == constants.GANG_TIMEOUT, "which is what the pause goes by"


@pytest.mark.rule("TJ:6-258")
def test_a_job_that_becomes_a_gang_has_its_whole_time_to_come_together():
    world = JobWorld(startPolicy="Optimistic", pendingTimeoutSeconds=120)
    world.admit()
    world.settle()
    world.pass_time(3600)
    world.edit(startPolicy="Gang")
    world.settle()
    assert world.condition(constants.ADMITTED)["reason"] == constants.ADMITTED
    assert len(world.trainers) == 2
    world.pass_time(119)
    assert len(world.settle().trainers) == 2
    world.pass_time(1)
    world.settle()
    assert world.condition(constants.ADMITTED)["reason"] == constants.GANG_TIMEOUT


@pytest.mark.rule("TJ:6-258")
def test_a_gang_that_timed_out_is_admitted_again_after_exponential_delays():
    world = gang(pendingTimeoutSeconds=120)
    distances = []
    for _ in range(7):
        world.pass_time(1)
        world.admit()
        assert is_admitted(world.job, world.record)
        world.settle()
        world.pass_time(120)
        world.settle()
        world.let_go()
        assert not is_admitted(world.job, world.record)
        distances.append((may_be_admitted_at(world.job) - world.now).total_seconds())
    assert distances == [60, 120, 240, 480, 960, 1800, 1800]
    world.pass_time(1800)
    world.admit()
    world.run()
    assert world.condition(constants.ADMITTED)["reason"] == constants.GANG_READY
    assert "admission" not in world.status, "who came together is forgiven"


def test_a_gang_that_has_come_together_once_has_no_time_out():
    world = gang(pendingTimeoutSeconds=120)
    world.admit()
    world.run()
    world.end("trainer-1", 1)
    world.settle()
    world.pass_time(10)
    world.settle()
    world.let_go()
    world.settle()
    world.pass_time(1000)
    assert world.settle().trainers == [0, 1]


def test_a_running_gang_without_its_record_continues():
    """`kubectl replace` takes annotations away."""
    world = gang()
    world.admit()
    world.run()
    world.obj["metadata"]["annotations"] = {}
    world.pod("trainer-1", deletion_timestamp="2026-01-01T00:00:00Z")
    world.let_go()
    assert world.run().trainers == [0, 1]


@pytest.mark.rule("TJ:3.11")
def test_an_admission_that_no_status_recorded_is_revoked_by_a_suspension_too():
    world = gang()
    world.settle()
    assert world.condition(constants.ADMITTED)["reason"] == constants.WAITING
    world.pass_time(60)
    world.admit()
    world.edit(suspend=True)
    world.pass_time(1)
    world.settle()
    assert world.condition(constants.ADMITTED)["lastTransitionTime"] == timestamp(world.now)
    world.edit(suspend=False)
    assert not world.settle().pods
    world.pass_time(1)
    assert world.condition(constants.ADMITTED)["reason"] == constants.SUSPENDED


@pytest.mark.rule("TJ:3.11", "TJ:3.21")
@pytest.mark.parametrize("start_policy", ["Gang", "Optimistic"])
def test_a_job_that_was_replaced_by_its_first_manifest_keeps_its_trainers(start_policy):
    world = JobWorld(startPolicy=start_policy)
    world.admit()
    world.order(4)
    world.run()
    assert world.trainers == [0, 1, 2, 3]
    world.obj["metadata"]["annotations"] = {}
    trainer = {key: value for key, value in world.obj["spec"]["trainer"].items() if key != "replicas"}
    world.edit(trainer=trainer)
    assert world.settle().trainers == [0, 1, 2, 3]
    assert world.condition(constants.ADMITTED)["status"] == "True"
    assert not any(pod.is_terminating for pod in world.pods.values())


@pytest.mark.rule("TJ:3.11")
def test_a_suspended_gang_has_to_be_admitted_again():
    world = gang()
    world.admit()
    world.run()
    world.pass_time(10)
    world.edit(suspend=True)
    world.settle()
    world.let_go()
    world.settle()
    world.edit(suspend=False)
    assert not world.settle().pods
    assert may_be_admitted_at(world.job) == world.now + timedelta(seconds=1)
    world.pass_time(1)
    world.admit()
    assert world.run().trainers == [0, 1]


# --- success ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:5.2", "TJ:7.12")
@pytest.mark.parametrize(
    ("policy", "done", "succeeds"),
    [
        pytest.param("AllTrainers", [0, 1], False, id="AllTrainers: two of three are not all"),
        pytest.param("AllTrainers", [0, 1, 2], True, id="AllTrainers: three of three"),
        pytest.param("AnyTrainer", [2], True, id="AnyTrainer: one is enough"),
        pytest.param("RankZero", [1, 2], False, id="RankZero: not the others"),
        pytest.param("RankZero", [0], True, id="RankZero: trainer 0"),
    ],
)
def test_the_success_policy_determines_when_a_job_has_succeeded(policy, done, succeeds):
    world = JobWorld(low=3, high=3, successPolicy=policy, fault_tolerant=False).run()
    for index in done:
        world.end(f"trainer-{index}")
    world.settle()
    assert (world.condition(constants.SUCCEEDED).get("status") == "True") is succeeds
    assert world.phase == (constants.PHASE_SUCCEEDED if succeeds else constants.PHASE_RUNNING)


@pytest.mark.rule("TJ:7.12")
def test_with_rank_zero_trainer_0_is_recreated_though_others_have_succeeded():
    world = JobWorld(low=1, high=3, trainer={"replicas": 3}, successPolicy="RankZero").run()
    world.end("trainer-0", 1)
    world.settle()
    world.end("trainer-1")
    world.end("trainer-2")
    world.pass_time(10)
    world.settle()
    world.let_go()
    assert world.run().trainers == [0]
    world.end("trainer-0")
    world.settle()
    assert world.phase == constants.PHASE_SUCCEEDED


@pytest.mark.rule("TJ:7.12")
def test_at_the_end_running_pods_are_deleted_and_ended_trainers_kept_for_their_logs():
    world = JobWorld(master={}, pserver={"min-instance": 1}, successPolicy="AnyTrainer").run()
    world.pass_time(5)
    world.end("trainer-1")
    first = world.reconcile()
    assert first.actions == (), "the end is in the status before anything is deleted for it"
    assert world.status["completionTime"] == "2026-01-01T00:00:05Z"
    assert world.messages_of(constants.SUCCEEDED) == ["trainer 1 has succeeded"]
    world.settle()
    world.let_go()
    assert sorted(world.settle().pods) == ["demo-trainer-1"]
    assert world.status["trainer"]["desired"] == 0
    assert world.condition(constants.RUNNING) | {"message": ""} == {
        "type": constants.RUNNING,
        "status": "False",
        "reason": constants.SUCCEEDED,
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:05Z",
    }


def test_the_end_is_final():
    world = JobWorld(backoffLimit=0).run()
    world.end("trainer-1", 1)
    world.settle()
    world.edit(backoffLimit=9, suspend=True)
    world.resize(4)
    world.settle()
    assert world.phase == constants.PHASE_FAILED
    assert world.trainers == []
    world.edit(suspend=False)
    assert world.settle().trainers == []


def test_an_end_that_was_not_written_is_decided_again():
    world = JobWorld(low=2, high=2, restartPolicy="Never", fault_tolerant=False).run()
    world.end("trainer-1", 1)
    assert world.reconcile(crash_before_status=True).actions == ()
    assert world.settle().phase == constants.PHASE_FAILED


# --- deadlines -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:5.2", "TJ:2.3")
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"activeDeadlineSeconds": 300}, id="activeDeadlineSeconds"),
        pytest.param({"annotations": {"walltime": 300}}, id="upstream's walltime"),
    ],
)
def test_a_job_that_is_active_for_too_long_has_failed(spec):
    world = JobWorld(**spec).run()
    assert world.reconcile().requeue_after_s == 300
    world.pass_time(299)
    assert world.settle().phase == constants.PHASE_RUNNING
    world.pass_time(1)
    world.settle()
    assert world.condition(constants.FAILED)["reason"] == DEADLINE_EXCEEDED
    assert world.trainers == []


def test_a_gang_that_waits_is_not_active():
    world = gang(activeDeadlineSeconds=300).settle()
    world.pass_time(1000)
    world.settle()
    world.admit()
    assert world.run().phase == constants.PHASE_RUNNING


def test_a_success_in_the_last_moment_is_a_success():
    world = JobWorld(activeDeadlineSeconds=300).run()
    world.pass_time(301)
    world.end("trainer-0")
    world.end("trainer-1")
    assert world.settle().phase == constants.PHASE_SUCCEEDED


@pytest.mark.rule("TJ:5.2")
def test_an_ended_job_is_deleted_after_its_ttl():
    world = JobWorld(ttlSecondsAfterFinished=100).run()
    world.end("trainer-0")
    world.end("trainer-1")
    world.settle()
    assert world.reconcile().requeue_after_s == 100
    world.pass_time(99)
    world.settle()
    assert not world.is_deleted
    world.pass_time(1)
    (action,) = world.plan().actions
    assert isinstance(action, Delete)
    assert (action.resource, action.name, action.uid) == (TRAININGJOBS, "demo", "uid-job")


def test_a_ttl_of_zero_deletes_at_once_and_without_a_ttl_a_job_stays():
    at_once, for_ever = JobWorld(ttlSecondsAfterFinished=0).run(), JobWorld().run()
    for world in (at_once, for_ever):
        world.end("trainer-0")
        world.end("trainer-1")
        world.settle_or_delete()
        world.pass_time(10**8)
    assert at_once.is_deleted
    assert for_ever.plan().actions == ()


@pytest.mark.parametrize(
    ("known_for_s", "ends"),
    [
        pytest.param(0.0, False, id="this process has observed the job for a moment only"),
        pytest.param(CLOCK_SKEW_S, True, id="it has observed it for a minute"),
    ],
)
def test_a_deadline_needs_more_than_a_timestamp(known_for_s, ends):
    """A wall clock that jumps must not end a job (architecture §9)."""
    world = JobWorld(activeDeadlineSeconds=300).run()
    world.pass_time(10_000)
    world.known_for_s = known_for_s
    world.settle()
    assert (world.phase == constants.PHASE_FAILED) is ends
    if not ends:
        assert world.reconcile().requeue_after_s == CLOCK_SKEW_S


def test_admission_in_the_very_second_of_giving_back_does_not_count():
    world = gang(pendingTimeoutSeconds=10)
    world.admit()
    world.settle()
    world.pass_time(10)
    world.settle()
    assert world.now == BEGIN + timedelta(seconds=10)
    world.admit()
    assert not is_admitted(world.job, world.record)
