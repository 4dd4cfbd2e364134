"""The status of a job: phase, conditions, numbers, score, history, and the events that belong to them."""

import pytest

from raytide.api import trainingjob_constants as constants
from raytide.api.actions import PendingRetry
from raytide.api.conditions import timestamp
from raytide.api.pod import NO_CONDITION, ContainerView, PodCondition
from raytide.api.status_patch import status_patch
from raytide.api.trainingjob import TrainingJob
from raytide.api.violations import Violation
from raytide.diagnosis.render import HELD_BY, LONGEST_NOTE
from raytide.trainingjob.status import requeue_after_s, status
from raytide.trainingjob.unreadable import unreadable_patch
from support.job_world import BEGIN, READY, JobWorld, merged
from support.training_builders import trainingjob

UNSCHEDULABLE = PodCondition("False", "Unschedulable", "0/3 nodes are available: 3 Insufficient cpu.")
ENDED = {"type": "Succeeded", "status": "True", "reason": "Done", "message": "", "lastTransitionTime": timestamp(BEGIN)}
PENDING = {"phase": "Pending", "ready": NO_CONDITION, "node_name": ""}


# --- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:8")
def test_every_role_has_its_numbers():
    world = JobWorld(low=2, high=6, master={}, pserver={"min-instance": 2}).run()
    world.resize(4)
    world.settle()
    world.end("trainer-1", 1)
    world.settle()
    assert world.status["trainer"] == {
        "desired": 4,
        "replicas": 3,
        "pending": 2,
        "running": 1,
        "ready": 1,
        "failed": 1,
        "succeeded": 0,
        "min": 2,
        "max": 6,
        "fulfillment": 0.5,
        "completedIndexes": "",
        "failedIndexes": "",
    }
    assert world.status["pserver"]["ready"] == world.status["pserver"]["desired"] == 2
    assert world.status["master"]["ready"] == world.status["master"]["desired"] == 1
    assert world.status["selector"] == "raytide.io/training-job=demo,raytide.io/training-role=trainer"
    assert world.status["restarts"] == 1


@pytest.mark.rule("TJ:3.13", "TJ:2.6", "TJ:4-14")
@pytest.mark.parametrize(
    ("low", "high", "size", "score"),
    [
        pytest.param(1, 2, 2, 1.0, id="1..2 at 2"),
        pytest.param(1, 2, 1, 0.0, id="1..2 at 1"),
        pytest.param(1, 3, 2, 0.5, id="1..3 at 2"),
        pytest.param(3, 6, 4, 0.333, id="a third, with three decimals"),
        pytest.param(3, 6, 5, 0.667, id="two thirds"),
        pytest.param(2, 2, 2, 1.0, id="a fixed size is fulfilled"),
    ],
)
def test_the_score_is_the_share_of_what_is_open(low, high, size, score):
    world = JobWorld(low=low, high=high, trainer={"replicas": size}).run()
    assert world.status["trainer"]["fulfillment"] == score


def test_a_job_that_is_not_admitted_has_no_desired_trainers_and_no_fulfillment():
    world = JobWorld(low=2, high=2, startPolicy="Gang").settle()
    assert world.status["trainer"]["desired"] == 0
    assert world.status["trainer"]["fulfillment"] == 0.0


@pytest.mark.rule("TJ:3.22")
def test_the_phases_of_a_job():
    world = JobWorld(startPolicy="Gang")
    seen = []

    def look():
        seen.append(world.settle().phase)

    look()
    world.admit()
    look()
    world.run()
    look()
    world.order(4)
    look()
    world.run()
    look()
    world.edit(suspend=True)
    look()
    world.let_go()
    world.edit(suspend=False)
    look()
    assert seen == ["Pending", "Creating", "Running", "Scaling", "Running", "Suspended", "Pending"]


@pytest.mark.rule("TJ:3.22")
def test_a_job_that_has_run_and_of_which_no_trainer_does_is_pending():
    """`kubectl get` showed Running for a job that only crashed."""
    world = JobWorld(low=2, high=2).run()
    seen = [world.phase]
    for _ in range(2):
        world.end("trainer-0", 1)
        seen.append(world.settle().phase)
        world.end("trainer-1", 1)
        seen.append(world.settle().phase)
        world.pass_time(400)
        world.settle()
        world.let_go()
        seen.append(world.settle().phase)
        seen.append(world.run("trainer-0").phase)
        seen.append(world.run().phase)
    again = ["Running", "Pending", "Pending", "Running", "Running"]
    assert seen == ["Running", *again, *again]
    assert world.condition(constants.SCALING)["status"] == "False"


def test_a_job_that_changes_its_size_while_nothing_of_it_runs_is_pending():
    world = JobWorld(low=1, high=4).run()
    world.end("trainer-0", 1)
    world.resize(3)
    world.settle()
    assert (world.phase, world.condition(constants.SCALING)["status"]) == ("Pending", "True")
    assert world.condition(constants.RUNNING)["reason"] == "BelowMinimum"


def test_a_job_whose_minimum_has_ended_well_does_not_become_pending():
    world = JobWorld(low=1, high=2, trainer={"replicas": 2}).run()
    world.end("trainer-0")
    world.settle()
    world.pod("trainer-1", **PENDING)
    world.settle()
    assert world.phase != "Pending"


# --- conditions ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:2.3", "TJ:8")
def test_running_needs_master_and_parameter_servers_ready_and_the_minimum_of_trainers():
    world = JobWorld(low=2, high=4, trainer={"replicas": 3}, master={}, pserver={"min-instance": 1}).settle()
    assert world.condition(constants.RUNNING)["status"] == "False"
    world.run("master").run("pserver-0")
    world.run("trainer-0")
    assert world.condition(constants.RUNNING)["reason"] == "BelowMinimum"
    world.run("trainer-1")
    running = world.condition(constants.RUNNING)
    assert running["status"] == "True"
    assert running["message"] == ("master ready, 1 of 1 parameter servers ready, 2 of 3 trainers running (minimum 2)")
    world.pod("pserver-0", ready=NO_CONDITION)
    world.settle()
    assert world.condition(constants.RUNNING)["status"] == "False"
    assert world.phase == constants.PHASE_RUNNING, "a job that has run is not created again"


@pytest.mark.rule("TJ:8")
def test_scaling_lasts_from_the_new_size_until_exactly_these_trainers_run():
    world = JobWorld().run()
    assert world.condition(constants.SCALING)["status"] == "False"
    world.pass_time(10)
    world.resize(4)
    world.settle()
    up = world.condition(constants.SCALING)
    assert (up["status"], up["reason"], up["message"]) == ("True", "ScalingUp", "2 of 4 trainers running")
    assert up["lastTransitionTime"] == "2026-01-01T00:00:10Z"
    world.run()
    assert world.condition(constants.SCALING)["status"] == "False"
    world.resize(2)
    world.settle()
    assert world.condition(constants.SCALING)["reason"] == "ScalingDown"
    world.let_go()
    world.settle()
    assert world.condition(constants.SCALING)["status"] == "False"


def test_a_recreated_trainer_is_no_scaling():
    world = JobWorld().run()
    world.end("trainer-1", 1)
    assert world.settle().phase == constants.PHASE_RUNNING


@pytest.mark.rule("TJ:7.8", "TJ:8")
@pytest.mark.parametrize(
    ("fields", "reason", "message", "event"),
    [
        pytest.param(
            {"scheduled": UNSCHEDULABLE},
            "Unschedulable",
            "3 Insufficient cpu",
            constants.WAITING_FOR_RESOURCES,
            id="no node has capacity",
        ),
        pytest.param(
            {"containers": (ContainerView("trainer", "waiting", "ImagePullBackOff", "no such image"),)},
            "ImagePullFailed",
            "no such image",
            "ImagePullFailed",
            id="no such image",
        ),
        pytest.param(
            {"scheduled": PodCondition("False", "SchedulingGated")},
            "SchedulingGated",
            "gates",
            "SchedulingGated",
            id="gated",
        ),
    ],
)
def test_what_keeps_a_pod_from_starting_is_reported(fields, reason, message, event):
    """The event is called WaitingForResources only if more capacity would help."""
    world = JobWorld().settle()
    world.run("trainer-0")
    world.pod("trainer-1", **fields)
    world.settle()
    waiting = world.condition(constants.WAITING)
    assert (waiting["status"], waiting["reason"]) == ("True", reason)
    assert "1 of 2 trainer pods cannot start" in waiting["message"]
    assert message in waiting["message"]
    assert world.status["waiting"] == reason
    assert [
        note for each, note in world.events if each in (constants.WAITING_FOR_RESOURCES, reason)
    ] == world.messages_of(event)
    (note,) = world.messages_of(event)
    assert message in note
    assert reason not in note or event != reason
    world.run()
    assert not world.condition(constants.WAITING)
    assert "waiting" not in world.status


@pytest.mark.rule("TJ:7.8")
def test_a_rejection_by_a_quota_is_reported():
    world = JobWorld()
    world.pending_retries = (PendingRetry(constants.TRAINER, "x", 'pods "a" is forbidden: exceeded quota: small', 9.0),)
    world.settle()
    assert world.condition(constants.WAITING)["reason"] == "QuotaExceeded"


@pytest.mark.rule("TJ:7.8", "TJ:8")
@pytest.mark.parametrize(
    "reason", ["InsufficientGPU", "Fragmented", "QuotaExceeded", "Unsatisfiable", "HigherPriority"]
)
def test_the_waiting_condition_of_a_gang_has_the_message_of_the_sharing_pass(reason):
    world = JobWorld(startPolicy="Gang")
    world.say_waiting(reason, "needs 2 more GPUs; best node has 1")
    world.settle()
    waiting = world.condition(constants.WAITING)
    assert (waiting["status"], waiting["reason"]) == ("True", reason)
    assert waiting["message"].partition(HELD_BY)[0] == "needs 2 more GPUs; best node has 1"


@pytest.mark.rule("TJ:4-8", "TJ:6-465")
def test_a_running_job_that_could_grow_reports_why_it_does_not_without_waiting():
    """PaddleCloud #465: 16 GPUs are free, and no trainer is added."""
    world = JobWorld().run()
    world.say_waiting("Fragmented", "no node has 4 GPUs free", is_below_minimum=False)
    world.settle()
    waiting = world.condition(constants.WAITING)
    assert (waiting["status"], waiting["reason"]) == ("False", "Fragmented")
    assert world.status["waiting"] == "Fragmented"
    assert not world.messages_of(constants.WAITING_FOR_RESOURCES)
    world.say_waiting("Insufficient", "stale: it has its minimum now", is_below_minimum=True)
    world.settle()
    assert not world.condition(constants.WAITING)


def test_waiting_is_reported_once_per_change_of_reason():
    world = JobWorld(startPolicy="Gang").settle()
    for message in ("one", "two"):
        world.say_waiting("InsufficientGPU", message)
        world.settle()
    world.say_waiting("Unsatisfiable", "no node will ever do")
    world.settle()
    assert [text.partition(HELD_BY)[0] for text in world.messages_of(constants.WAITING_FOR_RESOURCES)] == [
        "NotAdmitted: the sharing pass has not admitted the job yet; it does when there is capacity for all pods of its minimum",
        "InsufficientGPU: one",
        "Unsatisfiable: no node will ever do",
    ]


@pytest.mark.rule("SC:S21")
def test_an_event_about_a_long_cause_keeps_the_cure():
    world = JobWorld(startPolicy="Gang").settle()
    world.say_waiting("HigherPriority", f"needs 1 GPU; held by {'x' * 2000}")
    world.settle()
    note = world.messages_of(constants.WAITING_FOR_RESOURCES)[-1]
    assert len(note.encode()) <= LONGEST_NOTE
    assert note.startswith("HigherPriority: needs 1 GPU")
    assert note.endswith("; fix: set a higher priorityClassName, or wait until that job ends")


@pytest.mark.rule("TJ:6-399")
def test_the_start_order_is_in_the_condition_and_not_in_an_event():
    world = JobWorld(master={}, pserver={"min-instance": 2}).settle()
    assert world.condition(constants.WAITING)["reason"] == "WaitingForMaster"
    world.run("master")
    waiting = world.condition(constants.WAITING)
    assert waiting["reason"] == "WaitingForPservers"
    assert "(0 of 2 ready)" in waiting["message"]
    assert not world.messages_of(constants.WAITING_FOR_RESOURCES)


def test_what_is_not_built_is_named():
    world = JobWorld().settle()
    assert not world.condition(constants.UNSUPPORTED)
    world.edit(matrix={"a": 1})
    world.settle()
    assert "spec.matrix" in world.condition(constants.UNSUPPORTED)["message"]


# --- history and events ----------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:7.8", "TJ:8")
def test_a_resize_is_reported_once_with_what_it_was_for():
    world = JobWorld(low=2, high=8, trainer={"replicas": 8}).run()
    world.pass_time(60)
    world.order(6, "Reclaimed", "ScaledDown 8→6 for ns/other, which needs 2 to reach its minimum", "ns/other")
    world.settle()
    world.let_go()
    world.settle()
    assert world.messages_of(constants.SCALED_DOWN) == [
        "ScaledDown 8→6 for ns/other, which needs 2 to reach its minimum"
    ]
    world.pass_time(60)
    world.order(7, "Growing", "room has become free")
    world.run()
    assert world.messages_of(constants.SCALED_UP) == ["6→7 room has become free"]
    assert world.status["scaling"] == {
        "lastScaleTime": "2026-01-01T00:02:00Z",
        "lastReason": "Growing",
        "history": [
            {
                "time": "2026-01-01T00:01:00Z",
                "from": 8,
                "to": 6,
                "reason": "Reclaimed",
                "message": "ScaledDown 8→6 for ns/other, which needs 2 to reach its minimum",
                "forJob": "ns/other",
            },
            {
                "time": "2026-01-01T00:02:00Z",
                "from": 6,
                "to": 7,
                "reason": "Growing",
                "message": "room has become free",
            },
        ],
    }


@pytest.mark.rule("FD:SEC3-7")
def test_a_forged_record_forges_no_line_of_the_status():
    world = JobWorld(low=1, high=8).run()
    forged, shown = "x\x1b[2J\nforged\u202e", r"x\x1b[2J\nforged\u202e"
    world.order(3, f"Growing{forged}", forged, f"ns/{forged}")
    world.run()
    (entry,) = world.status["scaling"]["history"]
    assert (entry["reason"], entry["message"], entry["forJob"]) == (f"Growing{shown}", shown, f"ns/{shown}")
    assert world.status["scaling"]["lastReason"] == f"Growing{shown}"


@pytest.mark.rule("TJ:6-1136")
def test_the_history_is_bounded():
    """DLRover #1136: thousands of plan objects piled up."""
    world = JobWorld(low=1, high=50).run()
    for size in range(2, 30):
        world.pass_time(60)
        world.order(size)
        world.run()
    assert len(world.status["scaling"]["history"]) == 10
    assert len(world.messages_of(constants.SCALED_UP)) == 28


def test_a_record_that_is_lost_takes_no_history_with_it():
    world = JobWorld().run()
    world.order(3)
    world.run()
    world.obj["metadata"]["annotations"] = {}
    world.settle()
    assert len(world.status["scaling"]["history"]) == 1


# --- writing ---------------------------------------------------------------------------------------------------------


def test_a_status_that_is_right_is_not_written_again():
    world = JobWorld().run()
    world.pass_time(1000)
    job, observed = world.job, world.observed
    assert status_patch(job, status(job, observed, world.plan(), (), world.now)) is None


def test_the_first_status_of_a_running_job_is_complete():
    world = JobWorld()
    world.settle()
    for index in world.trainers:
        world.pod(f"trainer-{index}", phase="Running", ready=READY)
    world.reconcile()
    job, observed = world.job, world.observed
    assert world.phase == "Running"
    assert status_patch(job, status(job, observed, world.plan(), (), world.now)) is None


def test_the_patch_is_guarded_by_the_version_read_and_gives_the_status_computed():
    world = JobWorld()
    world.obj["metadata"]["resourceVersion"] = "41"
    job, observed = world.job, world.observed
    computed = status(job, observed, world.plan(), (), world.now)
    patch = status_patch(job, computed)
    assert patch["metadata"] == {"resourceVersion": "41"}
    assert merged({}, patch["status"]) == computed


@pytest.mark.rule("RC:K-6")
def test_times_move_only_with_a_status():
    world = JobWorld().run()
    world.pass_time(500)
    world.resize(3)
    world.run()
    times = {each["type"]: each["lastTransitionTime"] for each in world.status["conditions"]}
    assert times == {
        constants.ADMITTED: timestamp(BEGIN),
        constants.RUNNING: timestamp(BEGIN),
        constants.SCALING: "2026-01-01T00:08:20Z",
    }
    assert world.status["lastUpdateTime"] == "2026-01-01T00:08:20Z"


@pytest.mark.rule("RM:I9")
@pytest.mark.parametrize(
    ("spec", "status", "seen"),
    [
        pytest.param({}, {}, 1, id="of a valid job"),
        pytest.param({"low": 3, "high": 2}, {}, None, id="of an invalid one"),
        pytest.param({}, {"conditions": [ENDED]}, None, id="of one that has ended"),
    ],
)
def test_a_generation_that_the_object_has_not_reached_is_not_kept(spec, status, seen):
    world = JobWorld(**spec)
    world.obj["status"] = {**status, "observedGeneration": 7}
    world.reconcile()
    assert world.status.get("observedGeneration") == seen


def test_a_forged_observed_generation_of_an_unreadable_spec_is_removed():
    obj = {**trainingjob(), "status": {"observedGeneration": 7}}
    patch = unreadable_patch(obj, (Violation("V-1", "spec", "cannot be read"),), BEGIN)
    assert patch["status"]["observedGeneration"] is None


def test_only_a_valid_generation_is_observed():
    world = JobWorld().run()
    assert world.status["observedGeneration"] == 1
    world.edit(trainer={**world.obj["spec"]["trainer"], "min-instance": 9})
    world.settle()
    assert world.status["observedGeneration"] == 1
    assert world.status["waiting"] == constants.INVALID_SPEC


@pytest.mark.parametrize(
    ("change", "again"),
    [
        pytest.param({}, None, id="unchanged: only an event requeues it"),
        pytest.param(
            {"failures": {"counted": ["x"], "inARow": 1}}, 0.5, id="a failure was counted: the next plan handles it"
        ),
        pytest.param({"completionTime": "2026-01-01T00:00:00Z"}, 0.5, id="the job has ended: clean up"),
    ],
)
def test_a_status_that_the_next_plan_depends_on_is_requeued_soon(change, again):
    world = JobWorld().run()
    assert requeue_after_s(world.job, world.observed, {**world.status, **change}, world.now) == again


def test_a_job_without_observed_pods_has_a_status():
    job = TrainingJob.parse(JobWorld().obj)
    world = JobWorld()
    computed = status(job, world.observed, world.plan(), (), BEGIN)
    assert computed["phase"] == constants.PHASE_CREATING
    assert computed["trainer"]["replicas"] == 0
