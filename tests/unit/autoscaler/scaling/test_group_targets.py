"""The replicas of a group, and how each surplus one is removed."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from raytide.api.pod import PodView
from raytide.autoscaler.model import Instance, Status, TerminationCause
from raytide.autoscaler.scaling.drains import MAX_DRAINS, DrainTerms, drains_of, drains_of_removed, within_limit
from raytide.autoscaler.scaling.group_targets import Disposition, GroupInputs, GroupTarget, ReplicaState, group_target
from raytide.autoscaler.spec_group import SpecGroup

CPU = SpecGroup(0, "cpu", max_replicas=10)


def instance(name: str, status: Status = Status.RAY_RUNNING, **extra: Any) -> Instance:
    has_node = status in (Status.RAY_RUNNING, Status.RAY_STOPPING, Status.RAY_STOP_REQUESTED)
    return Instance(name, "cpu", status, pod=name, node_id=f"node-{name}" if has_node else "", **extra)


def pod(name: str, **extra: Any) -> PodView:
    return PodView(namespace="default", name=name, phase="Running", group="cpu", node_type="worker", **extra)


def question(*instances: Instance, group: SpecGroup = CPU, **extra: Any) -> GroupInputs:
    pods = {one.pod: pod(one.pod) for one in instances if one.pod}
    return GroupInputs(group, instances, {**pods, **extra.pop("pods", {})}, **extra)


@pytest.mark.parametrize(
    ("status", "fate"),
    [
        (Status.ALLOCATED, Disposition.KEPT),
        (Status.RAY_INSTALLING, Disposition.KEPT),
        (Status.RAY_RUNNING, Disposition.KEPT),
        (Status.RAY_STOP_REQUESTED, Disposition.DRAINING),
        (Status.RAY_STOPPING, Disposition.DRAINING),
        (Status.RAY_STOPPED, Disposition.DRAINING),
        (Status.ALLOCATION_TIMEOUT, Disposition.DRAINING),
    ],
)
def test_the_disposition_of_a_pod_follows_its_status(status: Status, fate: Disposition):
    assert [replica.disposition for replica in group_target(question(instance("a", status))).replica_states] == [fate]


def test_replicas_are_existing_plus_requested_plus_launched():
    asked = Instance("cpu-requested-0", "cpu", Status.REQUESTED)
    target = group_target(question(instance("a"), instance("b", Status.ALLOCATED), asked, kept=1, launches=3))
    assert target.replicas == 2 + 1 + 3


def test_a_node_that_the_scheduler_ends_is_drained_first_and_not_named():
    target = group_target(question(instance("a"), instance("b"), to_terminate={"b": TerminationCause.IDLE}))
    assert (target.replicas, target.names, [u.name for u in target.with_disposition(Disposition.TO_DRAIN)]) == (
        1,
        (),
        ["b"],
    )


def test_a_pod_without_a_ray_node_that_the_scheduler_ends_is_named_at_once():
    target = group_target(
        question(instance("a", Status.ALLOCATED), to_terminate={"a": TerminationCause.MAX_NUM_NODE_PER_TYPE})
    )
    assert (target.replicas, target.names) == (0, ("a",))


@pytest.mark.rule("RM:I22", "FD:AS-A21")
def test_a_node_under_drain_is_named_only_when_its_time_is_up():
    """The GCS does not report whether it is idle; a draining node ends by itself as soon as it is."""
    assert group_target(question(instance("a", Status.RAY_STOPPING))).names == ()
    assert group_target(question(instance("a", Status.RAY_STOPPING), overdue={"node-a"})).names == ("a",)


def test_a_pod_under_drain_holds_a_place_only_while_another_is_to_come():
    drained = instance("a", Status.RAY_STOPPING)
    assert group_target(question(drained, instance("b"))).replicas == 1
    assert group_target(question(drained, instance("b"), launches=1)).replicas == 3
    assert group_target(question(drained, instance("b"), kept=1)).replicas == 3


def test_the_maximum_holds_whatever_is_under_drain():
    small = replace(CPU, max_replicas=2)
    assert (
        group_target(question(instance("a", Status.RAY_STOPPING), instance("b"), group=small, launches=1)).replicas == 2
    )


def test_a_terminating_or_ended_pod_does_not_count_and_is_not_named():
    pods = {"a": pod("a", deletion_timestamp="2026-01-01T00:00:00Z")}
    target = group_target(question(instance("a", Status.TERMINATING), pods=pods))
    assert (target.replicas, target.names) == (0, ())


def test_names_stay_until_their_pods_are_gone():
    pods = {"a": pod("a", deletion_timestamp="2026-01-01T00:00:00Z")}
    target = group_target(question(instance("a", Status.TERMINATING), pods=pods, names_to_delete=("a", "gone")))
    assert target.names == ("a",)


def test_no_more_leave_at_once_than_the_record_can_name():
    crowd = [instance(f"p{n}") for n in range(600)]
    target = group_target(
        question(
            *crowd,
            group=replace(CPU, max_replicas=1000),
            to_terminate={one.pod: TerminationCause.IDLE for one in crowd},
        )
    )
    assert (len(target.with_disposition(Disposition.TO_DRAIN)), target.replicas) == (500, 100)


# --- several hosts ---------------------------------------------------------------------------------------------------

SLICE = replace(CPU, num_of_hosts=2)


def hosts(replica: str, *statuses: Status) -> list[Instance]:
    return [instance(f"{replica}-{n}", status, replica=replica) for n, status in enumerate(statuses)]


@pytest.mark.rule("AS:B-8", "RM:I6")
@pytest.mark.parametrize(
    ("statuses", "fate"),
    [
        pytest.param((Status.RAY_RUNNING, Status.RAY_RUNNING), Disposition.KEPT, id="both run"),
        pytest.param((Status.RAY_RUNNING, Status.ALLOCATED), Disposition.KEPT, id="one is still starting"),
        pytest.param((Status.RAY_RUNNING,), Disposition.KEPT, id="one has no pod yet"),
        pytest.param(
            (Status.RAY_RUNNING, Status.RAY_STOPPED), Disposition.TO_DRAIN, id="one died: the other is drained"
        ),
        pytest.param(
            (Status.RAY_RUNNING, Status.RAY_STOPPING), Disposition.TO_DRAIN, id="one is drained: the other too"
        ),
        pytest.param((Status.RAY_STOPPED, Status.RAY_STOPPING), Disposition.DRAINING, id="one works off its drain"),
    ],
)
def test_the_disposition_of_a_replica_follows_its_hosts(statuses: tuple[Status, ...], fate: Disposition):
    target = group_target(question(*hosts("r", *statuses), group=SLICE))
    assert [replica.disposition for replica in target.replica_states] == [fate]


def test_an_incomplete_replica_and_its_missing_host_are_one_replica():
    missing = Instance("cpu-requested-0", "cpu", Status.REQUESTED, replica="r")
    running = hosts("q", Status.RAY_RUNNING, Status.RAY_RUNNING)
    target = group_target(question(*running, *hosts("r", Status.RAY_RUNNING), missing, group=SLICE, kept=1))
    assert target.replicas == 2


def test_a_replica_that_lost_a_pod_is_left_to_the_operator():
    target = group_target(
        question(
            *hosts("r", Status.RAY_RUNNING, Status.TERMINATING),
            group=SLICE,
            pods={"r-1": pod("r-1", deletion_timestamp="2026-01-01T00:00:00Z")},
        )
    )
    assert ([replica.disposition for replica in target.replica_states], target.names) == ([Disposition.GONE], ())


@pytest.mark.rule("AS:B-8")
def test_a_replica_of_more_hosts_than_are_drained_at_once_is_drained_all_the_same():
    hosts = tuple(
        Instance(f"h{n}", "slice", Status.RAY_RUNNING, pod=f"h{n}", replica="r", node_id=f"id{n}")
        for n in range(MAX_DRAINS + 1)
    )
    target = GroupTarget(0, (), (ReplicaState("r", hosts, Disposition.TO_DRAIN, TerminationCause.IDLE),))
    terms = DrainTerms(pods={}, now=datetime(2026, 1, 1, tzinfo=UTC), monotonic_s=0.0, grace_s=300.0, rejections={})
    assert len(within_limit(drains_of("slice", target, terms))) == MAX_DRAINS + 1


@pytest.mark.rule("FD:AS-A12")
def test_hosts_of_a_removed_group_are_drained_first_host_first():
    order = (("r", 2), ("q", 1), ("r", 0), ("q", 0), ("r", 1))
    hosts = [
        Instance(f"{replica}{n}", "old", Status.RAY_RUNNING, pod=f"{replica}{n}", replica=replica, node_id=f"id{n}")
        for replica, n in order
    ]
    pods = {f"{replica}{n}": pod(f"{replica}{n}", host_index=n) for replica, n in order}
    terms = DrainTerms(pods=pods, now=datetime(2026, 1, 1, tzinfo=UTC), monotonic_s=0.0, grace_s=300.0, rejections={})
    assert [drain.pod for drain in drains_of_removed(hosts, (), {}, terms)] == ["r0", "r1", "r2", "q0", "q1"]
