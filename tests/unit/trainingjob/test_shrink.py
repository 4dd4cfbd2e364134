"""Which trainers stay when a job shrinks and which are created when it grows; none of it counts as a failure."""

from dataclasses import replace

import msgspec
import pytest

from raytide.api import trainingjob_constants as constants
from raytide.api.actions import Create, Delete
from raytide.api.config import JobConfig
from raytide.api.pod import NO_CONDITION, ContainerView, PodCondition
from raytide.trainingjob.plan_context import build_context
from raytide.trainingjob.restart_policy import count_terminations
from raytide.trainingjob.trainer_indices import assign_trainers
from support.job_world import JobWorld

NOT_READY = PodCondition("False", "ContainersNotReady")
STUCK = PodCondition("False", "Unschedulable", "0/3 nodes are available")


def of_size(size, **spec):
    return JobWorld(low=1, high=9, trainer={"replicas": size}, **spec).run()


def run_passes(world, passes):
    for short, run_passes in passes.items():
        fields = {
            "pending": {"phase": "Pending", "ready": NO_CONDITION},
            "stuck": {"phase": "Pending", "ready": NO_CONDITION, "scheduled": STUCK},
            "unready": {"ready": NOT_READY},
        }[run_passes]
        world.pod(f"trainer-{short}", **fields)


@pytest.mark.rule("TJ:7.5", "TJ:6-2074")
@pytest.mark.parametrize(
    ("passes", "size", "staying"),
    [
        pytest.param({}, 3, [0, 1, 2], id="all well: the highest indices go"),
        pytest.param({}, 1, [0], id="trainer 0 is removed last"),
        pytest.param({2: "pending"}, 4, [0, 1, 3, 4], id="a pending trainer is removed before running ones"),
        pytest.param({1: "pending", 3: "stuck"}, 4, [0, 1, 2, 4], id="one that cannot start before one that starts"),
        pytest.param({2: "pending", 4: "unready"}, 3, [0, 1, 3], id="then one that is not ready"),
        pytest.param({0: "pending"}, 3, [0, 1, 2], id="trainer 0 stays though it pends: the others meet there"),
        pytest.param({1: "unready", 2: "unready"}, 4, [0, 1, 3, 4], id="of two alike the higher index"),
    ],
)
def test_a_shrinking_job_loses_what_costs_least(passes, size, staying):
    """Volcano #2074: pending pods should go before running ones."""
    world = of_size(5)
    run_passes(world, passes)
    world.resize(size)
    world.settle()
    assert world.trainers == staying
    assert world.plan().actions == ()


@pytest.mark.rule("TJ:7.5")
def test_victims_are_deleted_in_the_order_of_their_cost():
    world = of_size(5)
    run_passes(world, {2: "pending", 1: "unready"})
    world.resize(1)
    victims = [action.name for action in world.plan().actions if isinstance(action, Delete)]
    assert victims == ["demo-trainer-2", "demo-trainer-1", "demo-trainer-4", "demo-trainer-3"]


@pytest.mark.rule("TJ:7.5", "RM:I25")
def test_no_pod_is_created_before_the_delete_it_depends_on_is_accepted():
    """Trainer 0 is recreated and the highest index is deleted for it: if that delete were rejected, there would be one pod too many."""
    world = of_size(3)
    world.pods.pop("demo-trainer-0")
    world.pods["demo-trainer-3"] = msgspec.structs.replace(
        world.pods["demo-trainer-2"], name="demo-trainer-3", uid="uid-3", index=3
    )
    todo = world.plan()
    assert [(type(action), action.name) for action in todo.actions] == [(Delete, "demo-trainer-3")]
    assert todo.is_continued, "the next pass follows as soon as the delete is accepted"

    world.pod("trainer-3", deletion_timestamp="2026-01-01T00:00:00Z")
    todo = world.plan()
    assert [(type(action), action.name) for action in todo.actions] == [(Create, "demo-trainer-0")]
    assert not todo.is_continued


@pytest.mark.rule("TJ:7.7")
def test_a_growing_job_fills_the_holes_first():
    world = of_size(5)
    run_passes(world, {2: "pending"})
    world.resize(4)
    world.settle()
    world.let_go()
    assert world.run().trainers == [0, 1, 3, 4]
    world.resize(6)
    assert world.run().trainers == [0, 1, 2, 3, 4, 5]


def test_ranks_are_positions_among_the_members():
    world = of_size(5)
    run_passes(world, {2: "pending"})
    world.resize(4)
    job, observed = world.job, world.observed
    assert assign_trainers(job, observed, count_terminations(job, observed)).members == (0, 1, 3, 4)


def test_growth_waits_for_names_that_a_shrink_has_not_freed_yet():
    world = of_size(5)
    world.resize(3)
    world.settle()
    world.resize(5)
    assert world.settle().trainers == [0, 1, 2]
    world.let_go()
    assert world.run().trainers == [0, 1, 2, 3, 4]


def test_trainer_0_keeps_its_place_while_it_is_recreated():
    world = of_size(4)
    world.end("trainer-0", 1)
    world.settle()
    world.resize(2)
    assert world.settle().trainers == [1]
    world.pass_time(10)
    world.settle()
    world.let_go()
    assert world.run().trainers == [0, 1]


def test_trainer_0_keeps_its_place_while_another_trainer_has_failed_permanently():
    world = of_size(3, restartPolicy="ExitCode")
    world.end("trainer-2", 1)
    world.end("trainer-0", 137)
    world.settle()
    world.resize(2)
    world.pass_time(10)
    world.settle()
    world.let_go()
    assert world.run().trainers == [0, 1]


@pytest.mark.rule("TJ:7.5", "TJ:6-2070", "TJ:6-463")
@pytest.mark.parametrize(
    "code", [pytest.param(0, id="ends well"), pytest.param(137, id="is killed"), pytest.param(1, id="fails")]
)
@pytest.mark.parametrize("policy", ["Never", "OnFailure", "ExitCode"])
def test_a_planned_removal_is_neither_a_failure_nor_a_success(code, policy):
    """kubeflow/trainer #2070: exit 137 and 143 after a shrink failed the job; JobSet KEP-463: they burnt the limit."""
    world = of_size(4, restartPolicy=policy, backoffLimit=0)
    world.resize(2)
    world.settle()
    world.end("trainer-3", code)
    world.end("trainer-2", code)
    world.settle()
    world.let_go()
    world.settle()
    assert world.phase == constants.PHASE_RUNNING
    assert world.trainers == [0, 1]
    assert (world.status["trainer"]["failed"], world.status["trainer"]["succeeded"]) == (0, 0)
    assert not world.messages_of(constants.POD_FAILED)


@pytest.mark.rule("TJ:7.5")
def test_another_owners_delete_is_no_failure_either():
    world = of_size(3)
    world.pod("trainer-1", deletion_timestamp="2026-01-01T00:00:00Z")
    world.settle()
    world.end("trainer-1", 143)
    world.settle()
    world.let_go()
    assert world.run().trainers == [0, 1, 2], "recreated at once"
    assert world.status["trainer"]["failed"] == 0


@pytest.mark.rule("TJ:6-1751")
def test_after_the_first_success_pending_trainers_beyond_the_minimum_are_deleted():
    """kubeflow/trainer #1751: a late worker started after all others had finished, and the job never ended."""
    world = of_size(4)
    run_passes(world, {3: "pending"})
    for index in (0, 1, 2):
        world.end(f"trainer-{index}")
    world.settle()
    assert world.trainers == []
    world.let_go()
    world.settle()
    assert world.phase == constants.PHASE_SUCCEEDED


@pytest.mark.rule("TJ:6-1751")
def test_after_the_first_success_a_job_does_not_grow_but_may_shrink():
    world = of_size(4)
    world.end("trainer-0")
    world.settle()
    world.resize(8)
    assert world.settle().trainers == [1, 2, 3]
    world.resize(2)
    assert world.settle().trainers == [1, 2], "those that are done hold no room"


@pytest.mark.rule("TJ:6-1751")
def test_after_the_first_success_the_rest_of_the_minimum_is_still_created():
    world = JobWorld(low=3, high=5, trainer={"replicas": 3}).settle()
    world.run("trainer-0", "trainer-1")
    world.end("trainer-0")
    world.end("trainer-1")
    assert world.settle().trainers == [2]
    assert world.phase == constants.PHASE_CREATING
    world.run()
    world.end("trainer-2")
    world.settle()
    assert world.phase == constants.PHASE_SUCCEEDED


def test_a_pod_that_lost_its_index_is_no_trainer():
    world = of_size(2)
    world.pod("trainer-1", index=None)
    todo = world.plan()
    assert [action.name for action in todo.actions] == ["demo-trainer-1"]
    world.settle()
    world.let_go()
    assert world.run().trainers == [0, 1]


@pytest.mark.rule("TJ:7.5")
def test_what_keeps_a_pod_from_starting_makes_it_cheapest():
    world = of_size(3)
    image = ContainerView("trainer", "waiting", "ImagePullBackOff", "no such image")
    run_passes(world, {1: "pending", 2: "pending"})
    world.pod("trainer-1", containers=(image,))
    world.resize(2)
    assert world.settle().trainers == [0, 2]


# --- victims that the sharing pass named ------------------------------------------------------------------------------


@pytest.mark.rule("FD:SH-B3", "TJ:7.5")
@pytest.mark.parametrize(
    ("passes", "size", "victims", "staying"),
    [
        pytest.param({}, 3, ["trainer-1", "trainer-3"], [0, 2, 4], id="exactly the named ones"),
        pytest.param({2: "pending"}, 3, ["trainer-1", "trainer-3"], [0, 2, 4], id="even if another one is pending"),
        pytest.param({}, 2, ["trainer-1"], [0, 2], id="beyond the names by cost"),
        pytest.param({}, 4, ["trainer-1", "trainer-3"], [0, 1, 2, 4], id="more names than the size needs"),
        pytest.param({}, 3, ["trainer-0", "trainer-1"], [0, 2, 3], id="trainer 0 is removed last, named or not"),
        pytest.param({}, 3, ["trainer-9", "../other", "pserver-0"], [0, 1, 2], id="names of no trainer of the job"),
        pytest.param({}, 3, [], [0, 1, 2], id="a record of an earlier version names none"),
    ],
)
def test_named_victims_are_deleted_first(passes, size, victims, staying):
    world = of_size(5)
    run_passes(world, passes)
    world.order(size, "Reclaimed", victims=victims)
    world.settle()
    assert world.trainers == staying
    assert world.plan().actions == ()


@pytest.mark.rule("FD:SH-B3", "RM:I5")
def test_a_forged_record_deletes_no_pod_of_another_job():
    world = of_size(3)
    foreign = msgspec.structs.replace(
        world.pods["demo-trainer-2"], name="other-trainer-0", uid="foreign", index=0, owner_uid="other-uid"
    )
    world.pods["other-trainer-0"] = foreign
    world.order(2, "Reclaimed", victims=["trainer-1"])
    world.record = replace(world.record, victims=("other-trainer-0", "demo-trainer-1"))
    assert [action.name for action in world.plan().actions if isinstance(action, Delete)] == ["demo-trainer-1"]


@pytest.mark.rule("FD:SH-B3")
def test_after_a_crash_the_operator_deletes_the_remaining_victims_of_the_record():
    world = of_size(6)
    world.order(3, "Reclaimed", victims=["trainer-1", "trainer-2", "trainer-4"])
    world.pod("trainer-4", deletion_timestamp="2026-01-01T00:00:00Z")
    assert sorted(action.name for action in world.plan().actions if isinstance(action, Delete)) == [
        "demo-trainer-1",
        "demo-trainer-2",
    ]


@pytest.mark.rule("FD:SH-B3")
def test_a_named_victim_that_failed_meanwhile_is_not_removed_twice():
    world = of_size(5)
    world.end("trainer-3", 1)
    world.order(3, "Reclaimed", victims=["trainer-1", "trainer-3"])
    world.settle()
    world.pass_time(10)
    world.settle()
    assert world.trainers == [0, 2, 4]


@pytest.mark.rule("FD:SH-B3")
def test_of_two_named_victims_one_stays_for_another_that_failed():
    world = of_size(5)
    world.end("trainer-4", 1)
    world.order(3, "Reclaimed", victims=["trainer-1", "trainer-3"])
    world.settle()
    assert world.trainers == [0, 1, 2]


@pytest.mark.rule("FD:SH-B3")
def test_a_trainer_with_the_name_of_an_earlier_victim_stays():
    world = of_size(5)
    world.order(4, "Reclaimed", victims=["trainer-2"])
    world.settle()
    world.let_go()
    assert world.trainers == [0, 1, 3, 4]
    world.end("trainer-4", 137)
    world.settle()
    world.pass_time(10)
    world.settle()
    world.let_go()
    assert world.run().trainers == [0, 1, 2, 3], "index 2 was free"
    assert world.plan().actions == ()
    world.end("trainer-0", 137)
    assert not any(isinstance(action, Delete) and action.name == "demo-trainer-2" for action in world.plan().actions)


@pytest.mark.rule("FD:SH-B3", "TJ:3.21")
def test_a_size_that_a_user_wrote_has_no_named_victims():
    world = of_size(5)
    world.order(4, "Reclaimed", victims=["trainer-1"])
    world.resize(3)
    world.settle()
    assert world.trainers == [0, 1, 2]


@pytest.mark.rule("FD:SH-B3", "TJ:7.7")
def test_growth_fills_the_indices_of_named_victims_first():
    world = of_size(6)
    world.order(4, "Reclaimed", victims=["trainer-1", "trainer-2"])
    world.settle()
    world.let_go()
    assert world.trainers == [0, 3, 4, 5]
    world.order(7)
    assert world.run().trainers == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.rule("FD:SH-B3", "TJ:7.5")
def test_ranks_have_no_holes_where_victims_were():
    world = of_size(5)
    world.order(3, "Reclaimed", victims=["trainer-1", "trainer-2"])
    members = build_context(world.job, world.observed, JobConfig()).size
    assert [members.rank_of(index) for index in (0, 3, 4)] == [0, 1, 2]
    assert members.trainers == 3
