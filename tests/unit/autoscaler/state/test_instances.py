"""The instances of a cluster and the status of each."""

from dataclasses import replace
from typing import Any

import pytest

from raytide.api import constants
from raytide.autoscaler.model import COUNTABLE, Instance, NodeStatus, NodeType, RayNode, Status, amounts_of, labels_of
from raytide.autoscaler.sidecar.settings import read_settings
from raytide.autoscaler.state.instance_lifecycle import OpenRequest, Stage, StageEntry, TimeLimits, Timers
from raytide.autoscaler.state.instances import Instances, instances
from raytide.autoscaler.state.node_types import NodeTypes
from raytide.autoscaler.state.observation import InstanceInputs
from support.builders import dying, head, pending, pod

CPU4 = amounts_of({"CPU": 4})
TYPES = NodeTypes(
    types=(
        NodeType("headgroup", max_nodes=1),
        NodeType("cpu", max_nodes=10, resources=CPU4, labels=labels_of({"ray.io/node-group": "cpu"})),
        NodeType("slice", max_nodes=8, resources=CPU4, num_of_hosts=4),
    ),
)
HEAD = head()
HEAD_NODE = RayNode("h1", NodeStatus.IDLE, HEAD.name, "headgroup", amounts_of({"CPU": 1, "node:__internal_head__": 1}))


def node(
    of: str = "demo-cpu-worker-aaaaa", status: NodeStatus = NodeStatus.IDLE, node_id: str = "n1", **more: Any
) -> RayNode:
    return RayNode(node_id, status, of, "cpu", CPU4, CPU4, idle_ms=500, **more)


def see(
    *things: Any, now_s: float = 1000.0, timers: Timers | None = None, limits: TimeLimits | None = None, **more: Any
):
    """The instances of these pods and Ray nodes, with a healthy head."""
    pods = [HEAD, *(thing for thing in things if not isinstance(thing, RayNode))]
    nodes = [HEAD_NODE, *(thing for thing in things if isinstance(thing, RayNode))]
    inputs = InstanceInputs(**{"pods": pods, "nodes": nodes, "types": TYPES, "now_s": now_s, **more})
    return instances(inputs, timers or Timers(), limits or TimeLimits())


def workers(found: Instances) -> list[Instance]:
    return [instance for instance in found.instances if not instance.is_head]


def only(found: Instances) -> Instance:
    (instance,) = workers(found)
    return instance


def aged(stage: Stage, age_s: float, node_id: str = "") -> Timers:
    """The one worker has been where it is for so long."""
    step = "NotScheduled/0" if stage is Stage.UNPLACED else ""
    return Timers(stages={"demo-cpu-worker-aaaaa": StageEntry(stage, 1000.0 - age_s, node_id, step=step)})


# --- the lifecycle of a worker (AS §3.1, §3.3, §3.4) --------------------------------------------------------------------

PENDING = pending("demo-cpu-worker-aaaaa")
RUNNING = pod("demo-cpu-worker-aaaaa")
FAILED = pod("demo-cpu-worker-aaaaa", phase="Failed")
DYING = dying("demo-cpu-worker-aaaaa")
DRAINING, DEAD = node(status=NodeStatus.DRAINING), node(status=NodeStatus.DEAD)


@pytest.mark.rule("AS:S-3", "D12")
@pytest.mark.parametrize(
    ("things", "more", "timers", "status"),
    [
        pytest.param([PENDING], {}, None, Status.ALLOCATED, id="a pod without a Ray node is ALLOCATED"),
        pytest.param([RUNNING], {}, None, Status.ALLOCATED, id="a running pod without a Ray node is, too"),
        pytest.param([RUNNING, node(status=NodeStatus.RUNNING)], {}, None, Status.RAY_RUNNING, id="its Ray node runs"),
        pytest.param([RUNNING, node()], {}, None, Status.RAY_RUNNING, id="an idle Ray node runs"),
        pytest.param(
            [RUNNING, node(status=NodeStatus.UNSPECIFIED)], {}, None, Status.RAY_RUNNING, id="a live one, too"
        ),
        pytest.param(
            [PENDING, node()],
            {},
            None,
            Status.RAY_RUNNING,
            id="Ray reports the node before the kubelet reports the pod",
        ),
        pytest.param(
            [RUNNING, node()],
            {"drains": ["n1"]},
            None,
            Status.RAY_STOP_REQUESTED,
            id="drain requested: RAY_STOP_REQUESTED",
        ),
        pytest.param(
            [RUNNING, node()],
            {"drains": []},
            aged(Stage.DRAIN_REQUESTED, 9, "n1"),
            Status.RAY_RUNNING,
            id="rejected: it runs on",
        ),
        pytest.param(
            [RUNNING, DRAINING], {}, None, Status.RAY_STOPPING, id="draining is RAY_STOPPING, whatever the cause"
        ),
        pytest.param(
            [RUNNING, DRAINING], {"drains": ["n1"]}, None, Status.RAY_STOPPING, id="draining after the request"
        ),
        pytest.param(
            [RUNNING, DEAD], {}, None, Status.RAY_STOPPED, id="a dead Ray node in a running pod is RAY_STOPPED"
        ),
        pytest.param([DYING, node()], {}, None, Status.TERMINATING, id="a pod being deleted is TERMINATING"),
        pytest.param(
            [RUNNING, node()], {"to_delete": [RUNNING.name]}, None, Status.TERMINATING, id="a named pod is TERMINATING"
        ),
        pytest.param(
            [PENDING], {"to_delete": [PENDING.name]}, None, Status.TERMINATING, id="a named pod that never ran, too"
        ),
        pytest.param([FAILED, DEAD], {}, None, Status.TERMINATING, id="a pod that ended is the operator's to remove"),
    ],
)
def test_what_is_seen_is_the_status(things, more, timers, status):
    assert only(see(*things, timers=timers, **more)).status is status


@pytest.mark.rule("AS:B-16")
@pytest.mark.parametrize(
    ("things", "more", "stage", "limit_s", "statuses"),
    [
        pytest.param(
            [PENDING], {}, Stage.UNPLACED, 3600, (Status.ALLOCATED, Status.ALLOCATION_TIMEOUT), id="ALLOCATED 3600 s"
        ),
        pytest.param(
            [RUNNING, node()],
            {"drains": ["n1"]},
            Stage.DRAIN_REQUESTED,
            300,
            (Status.RAY_STOP_REQUESTED, Status.RAY_RUNNING),
            id="RAY_STOP_REQUESTED 300 s, then it runs on",
        ),
        pytest.param(
            [DYING], {}, Stage.TERMINATING, 300, (Status.TERMINATING, Status.TERMINATION_FAILED), id="TERMINATING 300 s"
        ),
        pytest.param(
            [RUNNING],
            {},
            Stage.VANISHED,
            120,
            (Status.RAY_RUNNING, Status.RAY_STOPPED),
            id="forgotten by the GCS for 120 s",
        ),
    ],
)
def test_time_limits_are_strict(things, more, stage, limit_s, statuses):
    before, after = statuses
    node_id = "n1" if stage in (Stage.DRAIN_REQUESTED, Stage.VANISHED) else ""
    assert only(see(*things, timers=aged(stage, limit_s, node_id), **more)).status is before
    late = see(*things, timers=aged(stage, limit_s + 0.1, node_id), **more)
    assert only(late).status is after
    again = see(*things, timers=late.timers, now_s=1001.0, **more)
    assert only(again).status is after, "and it stays so"


@pytest.mark.parametrize(
    ("things", "stage", "node_id", "limit_s"),
    [
        pytest.param([PENDING], Stage.UNPLACED, "", 3600, id="ALLOCATION_TIMEOUT"),
        pytest.param([RUNNING, DEAD], Stage.DEAD, "n1", 90, id="RAY_STOPPED, after a restarted raylet had its chance"),
        pytest.param([RUNNING], Stage.VANISHED, "n1", 120, id="vanished from the GCS"),
    ],
)
def test_a_pod_of_no_use_is_to_end_once_its_time_is_over(things, stage, node_id, limit_s):
    assert see(*things, timers=aged(stage, limit_s, node_id)).failed_pods == frozenset()
    assert see(*things, timers=aged(stage, limit_s + 0.1, node_id)).failed_pods == {"demo-cpu-worker-aaaaa"}


def test_a_named_pod_is_not_named_again():
    timers = aged(Stage.TERMINATING, 5000)
    assert see(RUNNING, DEAD, timers=timers, to_delete=[RUNNING.name]).failed_pods == frozenset()


@pytest.mark.parametrize("stage", [Stage.DRAINING, Stage.DEAD, Stage.TERMINATING])
def test_a_node_that_terminates_for_more_than_90_s_is_overdue(stage):
    thing = {Stage.DRAINING: [RUNNING, DRAINING], Stage.DEAD: [RUNNING, DEAD], Stage.TERMINATING: [DYING]}[stage]
    node_id = "" if stage is Stage.TERMINATING else "n1"
    assert see(*thing, timers=aged(stage, 90, node_id)).overdue == frozenset()
    assert see(*thing, timers=aged(stage, 90.1, node_id)).overdue == {"demo-cpu-worker-aaaaa"}


def test_limits_can_be_set_from_outside():
    environ = {
        "RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S": "60",
        "RAY_AUTOSCALER_RECONCILE_MAX_NUM_RETRY_REQUEST_TO_ALLOCATE": "0",
    }
    limits = read_settings(environ).time_limits
    assert limits == TimeLimits(allocate_s=60, pull_s=60, initialize_s=60, request_retries=0)
    assert only(see(PENDING, timers=aged(Stage.UNPLACED, 61), limits=limits)).status is Status.ALLOCATION_TIMEOUT


def test_the_defaults_are_those_of_ray():
    limits = TimeLimits()
    assert (limits.request_s, limits.request_retries, limits.allocate_s) == (600, 3, 3600)
    assert (limits.stop_request_s, limits.terminate_s, limits.warn_s) == (300, 300, 90)


@pytest.mark.rule("FD:AS-A20")
def test_a_node_that_the_gcs_no_longer_reports_counts_and_has_nothing_free():
    known = see(RUNNING, node())
    lost = only(see(RUNNING, timers=known.timers, now_s=1001.0))
    assert (lost.status, lost.total, lost.available) == (Status.RAY_RUNNING, CPU4, ())
    assert lost.idle_ms == 0, "it must not be taken for idle"


@pytest.mark.rule("FD:AS-A18")
def test_a_pod_comes_once_whatever_becomes_of_it_later():
    first = see(PENDING)
    assert first.timers.last_new_pod_s == {"cpu": 1000.0}
    assert see(RUNNING, node(), timers=first.timers, now_s=1050.0).timers.last_new_pod_s == {"cpu": 1000.0}
    assert see(RUNNING, pod("new"), timers=first.timers, now_s=1060.0).timers.last_new_pod_s == {"cpu": 1060.0}


# --- what an instance is worth ---------------------------------------------------------------------------------------


@pytest.mark.rule("AS:S-3")
def test_a_running_instance_has_the_values_of_the_gcs():
    alive = replace(
        node(), available=amounts_of({"CPU": 1}), labels=labels_of({"a": "b"}), dynamic_labels=labels_of({"_PG_1": ""})
    )
    found = only(see(RUNNING, alive))
    assert (found.total, found.available, found.idle_ms) == (CPU4, amounts_of({"CPU": 1}), 500)
    assert (found.labels, found.dynamic_labels, found.node_id) == ((("a", "b"),), (("_PG_1", ""),), "n1")


@pytest.mark.rule("AS:S-4")
def test_a_pending_instance_has_the_resources_of_its_type():
    found = only(see(PENDING))
    assert (found.total, found.available, found.labels) == (CPU4, CPU4, (("ray.io/node-group", "cpu"),))
    assert (found.pod, found.node_type, found.node_id, found.idle_ms) == (PENDING.name, "cpu", "", 0)


@pytest.mark.parametrize(
    "things",
    [[DYING, node()], [RUNNING, DEAD], [RUNNING, DRAINING], [FAILED]],
    ids=["dying", "dead", "draining", "ended"],
)
def test_what_leaves_is_no_capacity(things):
    assert only(see(*things)).status not in COUNTABLE


# --- Ray nodes that come and go --------------------------------------------------------------------------------------


def test_a_restarted_raylet_is_the_same_instance():
    before = see(RUNNING, node(node_id="old"))
    after = see(
        RUNNING, node(node_id="old", status=NodeStatus.DEAD), node(node_id="new"), timers=before.timers, now_s=1010.0
    )
    assert (only(after).instance_id, only(after).node_id, only(after).status) == (
        RUNNING.name,
        "new",
        Status.RAY_RUNNING,
    )
    assert after.timers.stages[RUNNING.name].registered_s == 1010.0


def test_of_two_nodes_of_a_pod_the_live_one_counts_in_any_order():
    assert only(see(RUNNING, node(node_id="new"), node(node_id="old", status=NodeStatus.DEAD))).node_id == "new"


@pytest.mark.rule("AS:G-2")
def test_dead_nodes_without_a_pod_are_nothing():
    dead = [node(f"gone-{index}", NodeStatus.DEAD, f"d{index}") for index in range(1000)]
    found = see(RUNNING, node(), *dead)
    assert len(workers(found)) == 1
    assert set(found.timers.stages) == {HEAD.name, RUNNING.name}


def test_a_ray_node_without_a_pod_is_no_instance():
    assert workers(see(node("demo-cpu-worker-gone"))) == []


def test_a_gcs_that_lost_its_memory_does_not_end_the_workers_before_they_had_time_to_come_back():
    before = see(RUNNING, node())
    lost = see(RUNNING, timers=before.timers, now_s=1005.0)
    assert (only(lost).status, lost.failed_pods) == (Status.RAY_RUNNING, frozenset())
    assert only(lost).total == CPU4, "it counts, so that its replica is not ended and its maximum holds"
    back = see(RUNNING, node(node_id="n2"), timers=lost.timers, now_s=1060.0)
    assert only(back).status is Status.RAY_RUNNING
    never = see(RUNNING, timers=lost.timers, now_s=1126.0)
    assert (only(never).status, never.failed_pods) == (Status.RAY_STOPPED, {RUNNING.name})


@pytest.mark.rule("SC:S15")
def test_while_the_head_is_away_no_time_runs_out_for_its_workers():
    scenario = see(RUNNING, node(), pod("new"))
    for minute in range(60):
        scenario = see(RUNNING, pod("new"), nodes=[], timers=scenario.timers, now_s=1001.0 + 60 * minute)
        assert (scenario.is_head_running, scenario.failed_pods) == (False, frozenset())
    back = see(RUNNING, pod("new"), timers=scenario.timers, now_s=4545.0)
    assert ([i.status for i in workers(back)], back.failed_pods) == (
        [Status.RAY_RUNNING, Status.ALLOCATED],
        frozenset(),
    )
    again = see(RUNNING, node(), pod("new"), timers=back.timers, now_s=4550.0)
    assert again.timers.stages[RUNNING.name].registered_s is None, "it has been there all the time"


def test_pods_that_fail_while_the_head_is_down_are_not_counted_as_deaths():
    before = see(pending("w"))
    assert see(pod("w", phase="Failed"), nodes=[], timers=before.timers, now_s=1005.0).timers.early_exits == {}


def test_a_dead_node_that_the_gcs_no_longer_reports_is_still_dead():
    before = see(RUNNING, DEAD)
    assert only(see(RUNNING, timers=before.timers, now_s=1001.0)).status is Status.RAY_STOPPED


@pytest.mark.rule("AS:V-9", "AS:B-24", "AS:S-1")
def test_an_unmanaged_node_counts_as_capacity_only():
    by_hand = RayNode("m1", NodeStatus.RUNNING, total=CPU4, available=CPU4)
    found = see(by_hand, RayNode("m2", NodeStatus.DEAD), RayNode("m3", NodeStatus.DRAINING))
    assert only(found) == Instance("m1", "", Status.RAY_RUNNING, node_id="m1", total=CPU4, available=CPU4)
    assert only(found).is_unmanaged


# --- groups that are not as they were --------------------------------------------------------------------------------


@pytest.mark.rule("AS:B-1")
def test_workers_of_a_group_that_left_the_spec_are_no_capacity_and_the_operators_to_remove():
    found = see(pod("demo-gone-worker-aaaaa", group="gone"), node("demo-gone-worker-aaaaa"))
    assert (only(found).status, only(found).node_type, found.failed_pods) == (Status.TERMINATING, "gone", frozenset())


def test_workers_of_a_suspended_group_are_left_to_the_operator_and_none_is_requested():
    suspended = replace(TYPES, suspended=frozenset({"cpu"}))
    found = see(RUNNING, node(), types=suspended, desired_hosts={"cpu": 3})
    assert (only(found).status, found.failed_pods) == (Status.TERMINATING, frozenset())


@pytest.mark.rule("AS:B-20")
def test_workers_of_a_group_that_cannot_be_read_are_capacity_and_left_alone():
    odd = pod("demo-odd-worker-aaaaa", group="odd")
    skipped = replace(TYPES, skipped=frozenset({"odd"}))
    found = see(
        odd, node(odd.name), pending("demo-odd-worker-bbbbb", group="odd"), types=skipped, desired_hosts={"odd": 5}
    )
    assert (only(found).instance_id, only(found).status, only(found).is_unmanaged) == (
        odd.name,
        Status.RAY_RUNNING,
        True,
    )
    dead = see(odd, node(odd.name, NodeStatus.DEAD), types=skipped, timers=found.timers, now_s=2000.0)
    much_later = see(odd, node(odd.name, NodeStatus.DEAD), types=skipped, timers=dead.timers, now_s=9000.0)
    assert (workers(much_later), much_later.failed_pods) == ([], frozenset())


def test_pods_that_are_neither_head_nor_worker_are_ignored():
    assert workers(see(pod("cleanup", node_type="redis-cleanup", group=""))) == []


# --- the head --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("SC:S15")
@pytest.mark.parametrize(
    ("pods", "nodes", "status", "is_running"),
    [
        pytest.param([HEAD], [HEAD_NODE], Status.RAY_RUNNING, True, id="a running head"),
        pytest.param([HEAD], [], Status.ALLOCATED, False, id="a head that has not registered"),
        pytest.param([HEAD], [replace(HEAD_NODE, status=NodeStatus.DEAD)], Status.RAY_STOPPED, False, id="a dead one"),
        pytest.param(
            [dying(HEAD.name, node_type=constants.HEAD)], [HEAD_NODE], Status.TERMINATING, False, id="a dying one"
        ),
        pytest.param(
            [dying("old", node_type=constants.HEAD), HEAD], [HEAD_NODE], Status.RAY_RUNNING, True, id="its successor"
        ),
        pytest.param(
            [HEAD], [replace(HEAD_NODE, instance_id="")], Status.RAY_RUNNING, True, id="one that hides its pod"
        ),
        pytest.param([], [replace(HEAD_NODE, instance_id="")], Status.RAY_RUNNING, True, id="one outside of any pod"),
    ],
)
def test_there_is_one_head(pods, nodes, status, is_running):
    found = see(pods=pods, nodes=nodes)
    (one,) = found.instances
    assert (one.is_head, one.node_type, one.status, found.is_head_running) == (True, "headgroup", status, is_running)


def test_the_head_is_never_to_end():
    timers = Timers(stages={HEAD.name: StageEntry(Stage.DEAD, 0.0, "h1")})
    found = see(nodes=[replace(HEAD_NODE, status=NodeStatus.DEAD)], timers=timers, to_delete=[HEAD.name], now_s=9000.0)
    assert (found.instances[0].status, found.failed_pods) == (Status.RAY_STOPPED, frozenset())


# --- what is asked for -----------------------------------------------------------------------------------------------


def test_a_missing_replica_is_requested():
    found = see(RUNNING, node(), desired_hosts={"cpu": 3})
    assert [(i.instance_id, i.status) for i in workers(found)[1:]] == [
        ("cpu-requested-0", Status.REQUESTED),
        ("cpu-requested-1", Status.REQUESTED),
    ]
    assert (workers(found)[1].total, workers(found)[1].pod) == (CPU4, "")


def test_the_spec_has_the_number_of_workers_unless_the_caller_passes_one():
    types = replace(TYPES, desired_hosts={"cpu": 2})
    assert len(workers(see(types=types))) == 2
    assert workers(see(types=types, desired_hosts={})) == []


@pytest.mark.rule("AS:B-2")
def test_lower_replicas_only_lower_the_number_of_requested_instances():
    before = see(desired_hosts={"cpu": 5})
    after = see(desired_hosts={"cpu": 2}, timers=before.timers, now_s=1005.0)
    assert [i.instance_id for i in workers(after)] == ["cpu-requested-0", "cpu-requested-1"]


@pytest.mark.parametrize("leaving", [DYING, FAILED, pod("demo-cpu-worker-aaaaa")], ids=["dying", "ended", "named"])
def test_a_pod_that_leaves_does_not_answer_a_request(leaving):
    found = see(leaving, desired_hosts={"cpu": 1}, to_delete=["demo-cpu-worker-aaaaa"])
    assert [i.status for i in workers(found)] == [Status.TERMINATING, Status.REQUESTED]


def test_a_request_of_600_s_is_queued_again_three_times_and_then_failed():
    timers, now_s, seen = Timers(), 0.0, []
    for _ in range(4):
        found = see(desired_hosts={"cpu": 1}, timers=timers, now_s=now_s)
        assert only(found).status is Status.REQUESTED
        edge = see(desired_hosts={"cpu": 1}, timers=found.timers, now_s=now_s + 600.0)
        assert only(edge).status is Status.REQUESTED, "the limit is strict"
        late = see(desired_hosts={"cpu": 1}, timers=edge.timers, now_s=now_s + 600.1)
        seen.append(only(late).status)
        timers, now_s = late.timers, now_s + 600.1
    assert seen == [Status.QUEUED, Status.QUEUED, Status.QUEUED, Status.ALLOCATION_FAILED]
    assert only(see(desired_hosts={"cpu": 1}, timers=timers, now_s=now_s + 5)).status is Status.ALLOCATION_FAILED


def test_pods_answer_the_oldest_request():
    first = see(desired_hosts={"cpu": 1}, now_s=0.0)
    second = see(desired_hosts={"cpu": 2}, timers=first.timers, now_s=500.0)
    third = see(RUNNING, desired_hosts={"cpu": 2}, timers=second.timers, now_s=700.0)
    assert third.timers.open_requests == {"cpu": (OpenRequest(500.0),)}
    assert [i.status for i in workers(third)] == [Status.ALLOCATED, Status.REQUESTED]


def test_a_huge_number_of_replicas_does_not_exhaust_memory():
    assert len(workers(see(desired_hosts={"cpu": 2_000_000_000}))) == 10_000


@pytest.mark.rule("AS:B-8")
def test_missing_hosts_belong_to_the_replica_they_complete():
    hosts = [pod(f"s{i}", group="slice", replica_name="slice-abc") for i in range(3)]
    found = see(*hosts, desired_hosts={"slice": 8})
    assert [i.replica for i in workers(found)[3:]] == ["slice-abc", *["slice-requested-replica-0"] * 4]


# --- order, and a restart at any instruction -------------------------------------------------------------------------


@pytest.mark.rule("AS:S-6")
def test_instances_are_ordered_by_creation_and_not_by_the_list():
    old = pod("z", creation_timestamp="2026-01-01T00:00:00Z")
    new = pod("a", creation_timestamp="2026-01-01T00:00:09Z")
    by_hand = RayNode("m1", NodeStatus.RUNNING)
    expected = ["z", "a", "cpu-requested-0", "m1"]
    assert [i.instance_id for i in workers(see(new, by_hand, old, desired_hosts={"cpu": 3}))] == expected
    assert [i.instance_id for i in workers(see(old, new, by_hand, desired_hosts={"cpu": 3}))] == expected


@pytest.mark.rule("D12")
def test_a_restart_changes_nothing_but_elapsed_limits():
    things = [
        RUNNING,
        node(),
        pending("b"),
        dying("c"),
        pod("d"),
        node("d", NodeStatus.DEAD, "n4"),
        pod("e"),
        node("e", NodeStatus.DRAINING, "n5"),
        pod("f"),
        node("f", NodeStatus.RUNNING, "n6"),
        RayNode("m1", NodeStatus.RUNNING),
    ]
    more: dict[str, Any] = {"desired_hosts": {"cpu": 9, "slice": 4}, "drains": ["n6"], "to_delete": ["x"]}
    timers = Timers()
    for tick in range(10):
        going_on = see(*things, timers=timers, now_s=1000.0 + 5 * tick, **more)
        started_anew = see(*things, now_s=1000.0 + 5 * tick, **more)
        assert going_on.instances == started_anew.instances
        assert going_on.failed_pods == started_anew.failed_pods
        timers = going_on.timers


def test_timers_of_deleted_instances_are_removed():
    before = see(RUNNING, node(), desired_hosts={"cpu": 5})
    after = see(timers=before.timers)
    assert (set(after.timers.stages), after.timers.open_requests, after.timers.stalled_s) == ({HEAD.name}, {}, {})


def test_empty_inputs_give_no_instances():
    assert instances(InstanceInputs((), (), NodeTypes(()), 0.0)).instances == ()


# --- pods that end before they register ------------------------------------------------------------------------------


def test_pods_that_end_before_their_ray_node_registers_are_counted_until_one_registers():
    timers = Timers()
    for index in range(3):
        timers = see(pending(f"w{index}"), timers=timers, now_s=10.0 * index).timers
        timers = see(pod(f"w{index}", phase="Failed"), timers=timers, now_s=10.0 * index + 5).timers
        timers = see(pod(f"w{index}", phase="Failed"), timers=timers, now_s=10.0 * index + 6).timers
        assert timers.early_exits["cpu"].count == index + 1
    timers = see(pending("good"), timers=timers, now_s=40.0).timers
    timers = see(pod("good"), node("good"), timers=timers, now_s=45.0).timers
    assert timers.early_exits == {}


def test_a_worker_that_ends_after_it_has_worked_is_no_such_death():
    timers = see(RUNNING, node()).timers
    assert see(FAILED, DEAD, timers=timers, now_s=1005.0).timers.early_exits == {}


def test_a_group_waits_since_its_last_pod_came():
    first = see(desired_hosts={"cpu": 3}, now_s=0.0)
    second = see(pending("a"), desired_hosts={"cpu": 3}, timers=first.timers, now_s=50.0)
    third = see(pending("a"), desired_hosts={"cpu": 3}, timers=second.timers, now_s=90.0)
    assert [found.timers.stalled_s for found in (first, second, third)] == [{"cpu": 0.0}, {"cpu": 50.0}, {"cpu": 50.0}]
