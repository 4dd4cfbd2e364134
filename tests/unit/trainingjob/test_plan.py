"""The writes for a job and their order: whole plans, carried out in memory."""

import json

import msgspec
import pytest

from raytide.api import trainingjob_constants as constants
from raytide.api.actions import MAX_WRITES, Create, Delete, Patch, PendingRetry
from raytide.api.meta import CONFIG_MAPS, PODS, TRAININGJOBS
from raytide.api.trainingjob_object import JobObject
from raytide.api.trainingjob_pod import JobPod
from raytide.trainingjob.trainer_indices import planned_nodes
from support.job_world import JobWorld

PSERVERS = {"min-instance": 2, "resources": {"requests": {"cpu": "1"}}}


def three_roles(**spec):
    return JobWorld(**{"pserver": PSERVERS, "master": {}, **spec})


def names_of(world, kind):
    return [action.name.removeprefix("demo-") for action in world.plan().actions if isinstance(action, kind)]


# --- beginning -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:6-399", "TJ:7.6")
def test_a_job_starts_in_order_master_then_parameter_servers_then_trainers():
    """PaddleCloud #399: trainers panicked because they came before the master."""
    world = three_roles().settle()
    assert sorted(world.pods) == ["demo-master"]
    assert list(world.services) == ["demo"]
    assert list(world.config_maps) == ["demo-membership"]

    world.pod("master", phase="Running")
    assert sorted(world.settle().pods) == ["demo-master"], "running is not ready"
    world.run("master")
    world.pod("master", ready=JobWorld().run().pods["demo-trainer-0"].ready)
    assert world.settle().names_of(constants.PSERVER) == ["pserver-0", "pserver-1"]
    assert not world.trainers

    world.run("pserver-0")
    assert not world.settle().trainers, "trainers wait for all parameter servers"
    world.run("pserver-1")
    assert world.settle().trainers == [0, 1]


@pytest.mark.rule("TJ:2.2")
def test_what_a_job_does_not_have_is_not_waited_for():
    assert JobWorld().settle().trainers == [0, 1]
    assert not three_roles(master=None, fault_tolerant=None).settle().names_of(constants.MASTER)


@pytest.mark.rule("TJ:7.9")
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="trainers alone"),
        pytest.param({"pserver": PSERVERS, "master": {}}, id="all three roles"),
        pytest.param({"trainer": {"replicas": 4}}, id="larger than its minimum"),
        pytest.param({"pserver": {**PSERVERS, "max-instance": 3, "scaling": "Ratio"}}, id="parameter servers by ratio"),
        pytest.param({"suspend": True}, id="suspended"),
        pytest.param({"startPolicy": "Gang"}, id="a gang that is not admitted"),
    ],
)
def test_a_second_plan_on_what_the_first_ones_made_is_empty(spec):
    world = JobWorld(**spec).run()
    status = world.status
    assert world.plan().actions == ()
    world.pass_time(3600)
    assert world.settle().status == status


@pytest.mark.rule("TJ:6-leaks")
def test_a_deleted_job_is_left_to_garbage_collection():
    """EDL required its users to delete children manually; children have an owner reference here."""
    world = three_roles()
    world.obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    todo = world.plan()
    assert (todo.actions, todo.is_reported) == ((), False)


def test_every_child_is_owned_by_the_job():
    world = three_roles().run()
    children = [*world.pods.values(), *world.services.values(), *world.config_maps.values()]
    assert {child.owner_uid for child in children} == {"uid-job"}


@pytest.mark.rule("TJ:6-532", "TJ:7.9")
@pytest.mark.parametrize("what", ["begins", "grows", "loses a trainer", "ends", "is suspended"])
def test_the_spec_is_never_written(what):
    """KubeRay #532: two controllers that write one number fight."""
    world = three_roles().run()
    if what == "begins":
        world = three_roles()
    elif what == "grows":
        world.resize(4)
    elif what == "loses a trainer":
        world.end("trainer-1", 1)
    elif what == "ends":
        world.end("trainer-0")
    else:
        world.edit(suspend=True)
    for _ in range(4):
        assert not [action for action in world.reconcile().actions if action.resource == TRAININGJOBS]


def test_pods_with_the_label_and_without_the_owner_are_ignored():
    world = JobWorld().run()
    world.pods["stray"] = JobPod(namespace="default", name="stray", uid="x", job="demo", role="trainer", index=7)
    assert world.plan().actions == ()


# --- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:3.21", "TJ:7.9")
@pytest.mark.parametrize(
    ("replicas", "trainers"),
    [
        pytest.param(None, [0, 1], id="nothing ordered: the minimum"),
        pytest.param(3, [0, 1, 2], id="as ordered"),
        pytest.param(99, [0, 1, 2, 3], id="never more than the maximum"),
        pytest.param(0, [0, 1], id="never less than the minimum"),
    ],
)
def test_there_are_as_many_trainers_as_ordered_within_the_bounds(replicas, trainers):
    assert JobWorld(trainer={"replicas": replicas}).run().trainers == trainers


@pytest.mark.rule("TJ:7.9", "TJ:2.5-D10")
def test_an_edited_minimum_and_maximum_are_honoured_while_it_runs():
    world = JobWorld().run()
    world.edit(trainer={**world.obj["spec"]["trainer"], "min-instance": 5, "max-instance": 8})
    assert world.run().trainers == [0, 1, 2, 3, 4]
    world.edit(trainer={**world.obj["spec"]["trainer"], "min-instance": 1, "max-instance": 3})
    world.resize(3)
    assert world.run().trainers == [0, 1, 2]


@pytest.mark.rule("TJ:3.4")
def test_by_ratio_parameter_servers_are_created_before_and_deleted_after_trainers():
    ratio = {"min-instance": 1, "max-instance": 4, "scaling": {"mode": "Ratio", "trainersPerPserver": 2}}
    world = JobWorld(low=2, high=8, pserver={**PSERVERS, **ratio}).run()
    assert world.names_of(constants.PSERVER) == ["pserver-0"]

    world.resize(6)
    world.settle()
    assert world.names_of(constants.PSERVER) == ["pserver-0", "pserver-1", "pserver-2"]
    assert world.trainers == [0, 1], "new trainers wait until the new parameter servers are ready"
    assert world.run().trainers == [0, 1, 2, 3, 4, 5]

    world.resize(2)
    world.settle()
    assert world.trainers == [0, 1]
    assert len(world.names_of(constants.PSERVER)) == 3, "trainers that are going still talk to them"
    world.let_go()
    assert world.settle().names_of(constants.PSERVER) == ["pserver-0"]


@pytest.mark.rule("TJ:6-pserver")
def test_fixed_parameter_servers_do_not_move_with_the_trainers():
    """Paddle #7848: moving parameters costs more than it gains."""
    world = three_roles().run()
    world.resize(4)
    assert world.run().names_of(constants.PSERVER) == ["pserver-0", "pserver-1"]


def test_a_minimum_of_two_thousand_million_does_not_exhaust_memory():
    world = JobWorld(low=2_000_000_000, high=2_000_000_000)
    world.reconcile()  # service and membership
    assert len(names_of(world, Create)) == MAX_WRITES


# --- names and membership --------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:6-115844")
def test_a_name_is_used_again_only_when_the_old_pod_is_gone():
    """kubernetes #115844: two pods of one rank register twice."""
    world = JobWorld().run()
    world.pod("trainer-1", deletion_timestamp="2026-01-01T00:00:00Z")
    assert world.plan().actions == ()
    world.let_go()
    assert names_of(world, Create) == ["trainer-1"]


@pytest.mark.rule("SC:S12")
def test_a_pod_on_a_lost_node_is_not_waited_for():
    world = JobWorld().run()
    world.pod("trainer-1", deletion_timestamp="2026-01-01T00:00:00Z", node_name="gone")
    world.unready_nodes = frozenset({"gone"})
    assert names_of(world, Create) == ["trainer-2"]
    assert world.run().trainers == [0, 2]
    world.let_go()
    assert world.plan().actions == (), "two are two, whatever they are called"


@pytest.mark.rule("TJ:7.7", "TJ:6-411")
def test_the_membership_is_written_before_pods_of_a_resize_are_created_or_deleted():
    """PaddleCloud #411: the number of trainers was frozen in the environment."""
    world = JobWorld(low=1, high=4).run()
    members = json.loads(world.files["membership.json"])
    assert (members["worldSize"], members["trainer"]["min"], members["trainer"]["max"]) == (1, 1, 4)

    world.resize(3)
    kinds = [type(action) for action in world.plan().actions]
    assert kinds == [Patch, Create, Create]
    world.run()
    assert world.files["world_size"] == "3\n"

    world.pod("trainer-1", phase="Pending", ready=JobPod(namespace="", name="").ready)
    world.resize(2)
    assert [type(action) for action in world.plan().actions] == [Patch, Delete]
    world.run()
    trainers = world.files["trainers"].splitlines()
    assert [line.split(".")[0] for line in trainers] == ["demo-trainer-0", "demo-trainer-2"]


@pytest.mark.rule("TJ:7.7")
def test_pods_that_run_are_annotated_with_a_new_membership_once_it_is_written():
    """A kubelet updates mounted files at once when a pod changes, and within about a minute otherwise."""
    world = three_roles(low=2, high=4).run()
    assert world.plan().actions == (), "pods that mounted the current files are left alone"
    world.resize(3)
    assert [action.resource for action in world.plan().actions] == [CONFIG_MAPS, PODS], "one pod more, none is patched"
    world.reconcile()
    patches = [action for action in world.plan().actions if isinstance(action, Patch)]
    assert sorted(patch.name for patch in patches) == [
        "demo-pserver-0",
        "demo-pserver-1",
        "demo-trainer-0",
        "demo-trainer-1",
    ], "a master mounts no membership"
    revision = world.config_maps["demo-membership"].membership_revision
    assert {json.dumps(patch.body) for patch in patches} == {
        json.dumps({"metadata": {"annotations": {constants.MEMBERSHIP_ANNOTATION: revision}}})
    }
    assert {patch.uid for patch in patches} == {world.pods[patch.name].uid for patch in patches}
    assert not any(patch.success_reason or patch.failure_reason for patch in patches), "no event"
    assert world.run().plan().actions == ()
    assert {pod.membership_revision for pod in world.pods.values() if pod.role != constants.MASTER} == {revision}


def test_pods_that_leave_are_not_annotated():
    world = JobWorld(low=1, high=4)
    world.resize(4)
    world.run()
    world.resize(2)
    world.reconcile()
    leaving = {pod.name for pod in world.pods.values() if pod.is_terminating}
    assert len(leaving) == 2
    patched = {action.name for action in world.plan().actions if isinstance(action, Patch)}
    assert patched == set(world.pods) - leaving


def test_pods_of_an_earlier_version_are_left_alone_until_the_membership_changes():
    """An upgrade of the operator changes no pod."""
    world = JobWorld(low=2, high=4).run()
    old = world.config_maps["demo-membership"]
    world.config_maps["demo-membership"] = msgspec.structs.replace(old, membership_revision="")
    for name in ("trainer-0", "trainer-1"):
        world.pod(name, membership_revision="")
    assert world.plan().actions == ()
    world.resize(3)
    world.reconcile()
    assert names_of(world, Patch) == ["trainer-0", "trainer-1"]


def test_an_edit_that_changes_neither_size_nor_bounds_leaves_the_membership_alone():
    """The sharing pass writes the size of a job that began with its minimum: each start would cost one more write."""
    world = JobWorld(low=2, high=4).run()
    generation = world.job.metadata.generation
    world.order(2, "ReachingMinimum")
    world.edit(backoffLimit=3)
    assert world.job.metadata.generation == generation + 2
    assert world.plan().actions == ()


def test_a_pod_that_is_recreated_stays_a_member():
    world = JobWorld().run()
    world.end("trainer-1", 1)
    before = world.files
    assert world.settle().files == before


def test_a_foreign_edit_of_the_membership_is_reverted():
    world = JobWorld().run()
    before = world.files
    world.write_files({"world_size": "99\n", **{f"theirs-{number:02}": "x" for number in range(40)}})
    assert world.settle().files == before


# --- what is rejected -------------------------------------------------------------------------------------------------


def test_a_rejected_role_waits_and_the_others_are_reconciled():
    world = JobWorld().run()
    world.pending_retries = (
        PendingRetry(constants.TRAINER, constants.FAILED_TO_CREATE_POD, "exceeded quota: small", 12.0),
    )
    world.resize(4)
    todo = world.plan()
    assert [type(action) for action in todo.actions] == [Patch]
    assert todo.requeue_after_s == 12.0


@pytest.mark.rule("RM:I5")
@pytest.mark.parametrize("shelf", ["services", "config_maps"])
def test_no_pod_begins_where_an_earlier_job_still_has_the_service_or_the_membership(shelf):
    world = JobWorld()
    name = {"services": "demo", "config_maps": "demo-membership"}[shelf]
    getattr(world, shelf)["theirs"] = JobObject(namespace="default", name=name, job="demo", owner_uid="earlier")
    world.settle()
    assert world.pods == {}
    assert world.condition(constants.WAITING)["reason"] == "NameTaken"
    assert name in world.condition(constants.WAITING)["message"]
    assert world.messages_of("NameTaken") == [world.condition(constants.WAITING)["message"]]
    assert not world.messages_of(constants.WAITING_FOR_RESOURCES)
    del getattr(world, shelf)["theirs"]
    assert world.run().trainers == [0, 1]


@pytest.mark.rule("RM:I5")
def test_a_pod_of_an_earlier_job_with_the_same_name_is_reported_as_name_taken():
    world = JobWorld().run()
    gone = world.pods.pop("demo-trainer-1")
    world.pods["theirs"] = msgspec.structs.replace(gone, owner_uid="earlier")
    world.settle()
    assert world.condition(constants.WAITING)["reason"] == "NameTaken"
    assert "demo-trainer-1" in world.condition(constants.WAITING)["message"]


@pytest.mark.rule("TJ:2.1")
def test_an_invalid_spec_stops_every_write_and_what_runs_keeps_running():
    world = JobWorld().run()
    world.edit(trainer={**world.obj["spec"]["trainer"], "min-instance": 9})
    todo = world.reconcile()
    assert todo.actions == ()
    assert todo.violations
    assert world.condition(constants.INVALID)["status"] == "True"
    assert "min-instance" in world.condition(constants.INVALID)["message"]
    assert world.messages_of(constants.INVALID_SPEC)
    assert world.trainers == [0, 1]
    assert world.condition(constants.RUNNING)["status"] == "True"

    world.edit(trainer={**world.obj["spec"]["trainer"], "min-instance": 1})
    world.run()
    assert not world.condition(constants.INVALID)


@pytest.mark.rule("TJ:3.2")
def test_fault_tolerance_switched_off_with_open_bounds_is_rejected():
    world = JobWorld(fault_tolerant=False)
    world.reconcile()
    assert world.condition(constants.INVALID)["status"] == "True"
    assert not world.pods


# --- suspend ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:7.12")
def test_an_invalid_spec_does_not_keep_the_pods_of_a_suspended_job():
    world = JobWorld().run()
    trainer = world.obj["spec"]["trainer"]
    world.edit(suspend=True, trainer={**trainer, "min-instance": 9})
    world.settle()
    world.let_go()
    world.settle()
    assert world.trainers == []
    assert world.condition(constants.INVALID)["status"] == "True"
    world.edit(suspend=False, trainer=trainer)
    world.run()
    assert world.trainers == [0, 1]


@pytest.mark.rule("TJ:7.12")
@pytest.mark.parametrize("spec", [{"startPolicy": "Gang"}, {"activeDeadlineSeconds": 3600}], ids=["gang", "deadline"])
def test_a_job_suspended_while_its_spec_is_invalid_resumes_like_any_other(spec):
    def replay(**mistake: int) -> tuple[object, ...]:
        world = JobWorld(**spec)
        world.admit()
        world.run()
        trainer = world.obj["spec"]["trainer"]
        world.edit(suspend=True, trainer={**trainer, **mistake})
        world.settle()
        world.let_go()
        world.settle()
        shown = (
            world.phase,
            world.condition(constants.SUSPENDED)["status"],
            world.condition(constants.ADMITTED).get("status"),
        )
        world.pass_time(7200)
        world.edit(suspend=False, trainer=trainer)
        world.settle()
        return (*shown, world.status.get("startTime"), world.phase, world.trainers, world.status.get("reason"))

    assert replay(**{"min-instance": 9}) == replay()


@pytest.mark.rule("TJ:7.12")
def test_a_suspended_job_has_no_pods_and_starts_again_when_it_is_resumed():
    world = three_roles().run()
    world.pass_time(100)
    world.edit(suspend=True)
    world.settle()
    assert all(pod.is_terminating for pod in world.pods.values())
    assert world.phase == constants.PHASE_SUSPENDED
    assert world.condition(constants.SUSPENDED)["status"] == "True"
    assert "startTime" not in world.status
    world.let_go()
    assert world.settle().pods == {}

    world.edit(suspend=False)
    assert sorted(world.settle().pods) == ["demo-master"], "in order again"
    assert world.phase == constants.PHASE_CREATING
    world.run()
    assert world.phase == constants.PHASE_RUNNING
    assert world.condition(constants.SUSPENDED)["status"] == "False"
    assert world.status["startTime"] == "2026-01-01T00:01:40Z"


@pytest.mark.rule("TJ:6-2070")
def test_trainers_that_end_because_of_a_suspension_have_neither_failed_nor_succeeded():
    world = JobWorld().run()
    world.edit(suspend=True)
    world.settle()
    world.end("trainer-0", 143)
    world.end("trainer-1", 0)
    world.settle()
    world.let_go()
    world.edit(suspend=False)
    assert world.run().trainers == [0, 1]
    assert world.status["trainer"]["failed"] == 0
    assert world.status["trainer"]["succeeded"] == 0


# --- where new trainers are planned -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        pytest.param(3, ["n1", "n2", "n2"], id="all of the scale-up"),
        pytest.param(2, ["n2", "n2"], id="the first exists"),
        pytest.param(0, [], id="all exist"),
        pytest.param(5, ["", "", "n1", "n2", "n2"], id="others are missing too"),
    ],
)
def test_missing_trainers_have_the_last_planned_nodes(missing, expected):
    assert planned_nodes({"n2": 2, "n1": 1}, missing) == expected
    assert planned_nodes({}, missing) == [""] * missing
    assert planned_nodes({"n": 2**31 - 1}, missing) == ["n"] * missing, "a forged number fills no memory"


def preferred(action):
    """The node that a pod to be created prefers; empty if none."""
    affinity = action.manifest["spec"].get("affinity")
    if affinity is None:
        return ""
    (term,) = affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    return term["preference"]["matchFields"][0]["values"][0]


def creates_of(world):
    creates = [action for action in world.plan().actions if isinstance(action, Create) and action.resource == PODS]
    return {action.name: preferred(action) for action in creates}


def test_new_trainers_prefer_the_nodes_on_which_they_are_planned():
    world = JobWorld(low=1, high=9, trainer={"replicas": 2}).run()
    world.order(5, placements={"n2": 2, "n1": 1})
    assert creates_of(world) == {"demo-trainer-2": "n1", "demo-trainer-3": "n2", "demo-trainer-4": "n2"}
    world.settle()
    world.pods.pop("demo-trainer-4")
    assert creates_of(world) == {"demo-trainer-4": "n2"}, "after a crash the others exist"


def test_at_a_size_that_a_user_wrote_new_trainers_prefer_no_node():
    world = JobWorld(low=1, high=9, trainer={"replicas": 2}).run()
    world.order(3, placements={"n1": 1})
    world.resize(4)
    assert set(creates_of(world).values()) == {""}


def test_other_roles_prefer_no_node():
    world = three_roles()
    world.order(2, placements={"n1": 2})
    world.run()
    world.pods.pop("demo-master")
    assert creates_of(world) == {"demo-master": ""}


@pytest.mark.rule("TJ:7.7")
def test_master_and_parameter_servers_prefer_the_nodes_that_the_plan_has_for_them():
    """On the nodes planned for trainers they would take the capacity of a trainer, and the gang could not start."""
    world = three_roles()
    world.order(2, placements={"n1": 2}, core_nodes={"master": {"n2": 1}, "pserver": {"n2": 1, "n3": 1}})
    world.run()
    for number in range(2):
        world.pods.pop(f"demo-pserver-{number}")
    assert creates_of(world) == {"demo-pserver-0": "n2", "demo-pserver-1": "n3"}
    world.pods.pop("demo-master")
    assert creates_of(world) == {"demo-master": "n2"}
