"""Properties of instances and limits for random inputs."""

import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raytide.api.autoscaler_decision import Backoff
from raytide.api.pod import ContainerView, PodCondition
from raytide.autoscaler.model import COUNTABLE, NodeStatus, NodeType, RayNode, Status, amounts_of
from raytide.autoscaler.state import instances as instances_module
from raytide.autoscaler.state.group_availability import AvailabilityInputs, assess_availability
from raytide.autoscaler.state.instance_cache import InstanceCache
from raytide.autoscaler.state.instance_lifecycle import Timers
from raytide.autoscaler.state.instances import Instances, instances
from raytide.autoscaler.state.node_types import NodeTypes
from raytide.autoscaler.state.observation import InstanceInputs
from support.builders import head, pod

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
CPU = amounts_of({"CPU": 1})
TYPES = NodeTypes(
    (
        NodeType("headgroup", max_nodes=1),
        NodeType("a", min_nodes=1, max_nodes=5, resources=CPU),
        NodeType("b", max_nodes=8, resources=CPU, num_of_hosts=2),
        NodeType("s", resources=CPU),
    ),
    skipped=frozenset({"odd"}),
    suspended=frozenset({"s"}),
)
NAMES = [f"w{index}" for index in range(6)]
GROUPS = ["a", "b", "s", "odd", "gone", ""]

PODS = st.builds(
    lambda name, group, phase, node, dying, reason, scheduled, replica: pod(
        name,
        group=group,
        phase=phase,
        node_name=node,
        deletion_timestamp=dying,
        restart_policy="Never",
        containers=(ContainerView("ray-worker", "waiting" if reason else "running", reason),),
        scheduled=PodCondition("False", scheduled) if scheduled else PodCondition(),
        replica_name=replica if group == "b" else "",
    ),
    st.sampled_from(NAMES),
    st.sampled_from(GROUPS),
    st.sampled_from(["Pending", "Running", "Failed", ""]),
    st.sampled_from(["", "n"]),
    st.sampled_from(["", "", "2026-01-01T00:00:00Z"]),
    st.sampled_from(["", "", "ErrImagePull", "CrashLoopBackOff"]),
    st.sampled_from(["", "", "Unschedulable", "SchedulingGated"]),
    st.sampled_from(["r0", "r1"]),
)
NODES = st.builds(
    RayNode,
    st.sampled_from([f"n{index}" for index in range(8)]),
    st.sampled_from(NodeStatus),
    st.sampled_from([*NAMES, "", "elsewhere"]),
    st.sampled_from(["a", "b", ""]),
    st.just(CPU),
    st.just(CPU),
)
WORLDS = st.tuples(
    st.lists(PODS, max_size=6, unique_by=lambda view: view.name),
    st.lists(NODES, max_size=8, unique_by=lambda node: node.node_id),
    st.dictionaries(st.sampled_from(GROUPS), st.integers(0, 9), max_size=4),
    st.sets(st.sampled_from(NAMES), max_size=2),
    st.sets(st.sampled_from(["n0", "n1"]), max_size=2),
)
HEAD = head()
quickly = settings(max_examples=60, deadline=None)


def see(world, now_s: float = 1000.0, timers: Timers | None = None) -> Instances:
    pods, nodes, desired_hosts, to_delete, drains = world
    alive = RayNode("h", NodeStatus.IDLE, HEAD.name, "headgroup")
    inputs = InstanceInputs([HEAD, *pods], [alive, *nodes], TYPES, now_s, desired_hosts, to_delete, drains)
    return instances(inputs, timers or Timers())


@quickly
@given(WORLDS)
def test_every_instance_is_itself(world):
    found = see(world)
    ids = [instance.instance_id for instance in found.instances]
    assert len(ids) == len(set(ids))
    assert sum(instance.is_head for instance in found.instances) == 1


@quickly
@given(WORLDS)
def test_no_instance_is_terminated_in_the_first_pass(world):
    assert see(world).failed_pods == frozenset()


@quickly
@given(WORLDS, st.integers(1, 5))
@pytest.mark.rule("D12")
def test_a_restart_within_the_limits_changes_nothing(world, ticks):
    timers = Timers()
    for tick in range(ticks):
        going_on = see(world, 1000.0 + 5 * tick, timers)
        assert going_on.instances == see(world, 1000.0 + 5 * tick).instances
        timers = going_on.timers


@quickly
@given(WORLDS, st.randoms(use_true_random=False))
@pytest.mark.rule("RM:I23")
def test_instances_do_not_depend_on_the_order_of_pods_and_nodes(world, dice):
    pods, nodes, *rest = world
    shuffled = [*pods], sorted(nodes, key=lambda node: node.instance_id)
    dice.shuffle(shuffled[0])
    one = see((pods, sorted(nodes, key=lambda node: node.instance_id), *rest))
    assert see((*shuffled, *rest)) == one


@quickly
@given(WORLDS, st.floats(0, 10_000))
def test_what_leaves_is_never_capacity(world, later_s):
    pods, *_ = world
    leaving = {view.name for view in pods if view.is_terminating or view.is_finished or view.group in ("s", "gone", "")}
    found = see(world, 1000.0 + later_s, see(world).timers)
    assert not leaving & {i.instance_id for i in found.instances if i.status in COUNTABLE}


@quickly
@given(WORLDS, st.floats(0, 10_000), st.none() | st.integers(1, 9), st.integers(-700, 300))
def test_limits_take_only_what_does_not_come(world, later_s, n, until_s):
    found = see(world, 1000.0 + later_s, see(world).timers)
    backoffs = {"a": None if n is None else Backoff(n, NOW + timedelta(seconds=until_s))}
    limits = assess_availability(found, TYPES, AvailabilityInputs(NOW, 1000.0 + later_s, backoffs=backoffs))
    assert {i.instance_id for i in (*limits.instances, *limits.stuck)} == {i.instance_id for i in found.instances}
    assert all(i.status is not Status.RAY_RUNNING for i in limits.stuck)
    for before, after in zip(TYPES.types, limits.types, strict=True):
        assert replace(after, available=None) == before, "a block terminates no instance"
        assert after.available is None or 0 <= after.available <= before.max_nodes
    assert limits.blocked.keys() <= limits.backoffs.keys()


# --- what is kept from look to look ----------------------------------------------------------------------------------


LOOKS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 5), min_size=len(NAMES), max_size=len(NAMES)),
        st.lists(st.integers(0, 5), min_size=len(NAMES), max_size=len(NAMES)),
        st.sets(st.sampled_from(NAMES), max_size=2),
        st.sets(st.sampled_from([f"n{index}" for index in range(len(NAMES))]), max_size=2),
        st.sampled_from([frozenset({"odd"}), frozenset({"odd"}), frozenset({"odd", "a"})]),
        st.sampled_from([frozenset({"s"}), frozenset({"s"}), frozenset({"a"}), frozenset()]),
        st.sampled_from([0.0, 5.0, 5.0, 200.0, 4000.0]),
    ),
    min_size=2,
    max_size=8,
)
"""The input of each pass: for each name one of its forms or none, and the orders about it."""


@settings(max_examples=300, deadline=None)
@given(st.data(), LOOKS)
@pytest.mark.rule("PF:P9B")
def test_what_was_known_before_changes_no_result(data, looks):
    forms = [(None, pod(name, group="a"), msgspec.structs.replace(data.draw(PODS), name=name)) for name in NAMES]
    nodes = [
        (None, RayNode(f"n{i}", NodeStatus.RUNNING, name, "a", CPU, CPU), replace(data.draw(NODES), node_id=f"n{i}"))
        for i, name in enumerate(NAMES)
    ]
    alive = RayNode("h", NodeStatus.IDLE, HEAD.name, "headgroup")
    timers, known, now_s = Timers(), InstanceCache(), 1000.0
    for which_pods, which_nodes, to_delete, drains, skipped, suspended, later_s in looks:
        now_s += later_s
        pods = [pick(own, which) for own, which in zip(forms, which_pods, strict=True)]
        rays = [pick(own, which) for own, which in zip(nodes, which_nodes, strict=True)]
        inputs = InstanceInputs(
            [HEAD, *filter(None, pods)],
            [alive, *filter(None, rays)],
            replace(TYPES, skipped=skipped, suspended=suspended),
            now_s,
            {"a": 3},
            to_delete,
            drains,
        )
        found, recomputed = instances(inputs, timers, known=known), instances(inputs, timers)
        assert found == recomputed
        assert len(found.known.cached) <= len(inputs.pods)
        timers, known = found.timers, found.known


def pick(forms, which):
    """Mostly the very same object as before, now and then its like."""
    return copy.copy(forms[1]) if which == 5 else forms[which if which < 3 else 1]


def test_instances_of_unchanged_pods_are_not_computed_again(monkeypatch):
    pods = [HEAD, *(pod(name, group="a") for name in NAMES)]
    rays = [RayNode("h", NodeStatus.IDLE, HEAD.name, "headgroup")]
    rays += [RayNode(f"n{i}", NodeStatus.RUNNING, name, "a", CPU, CPU) for i, name in enumerate(NAMES)]
    first = instances(InstanceInputs(pods, rays, TYPES, 1000.0))
    computed = []
    monkeypatch.setattr(instances_module._PodClassifier, "classify", lambda _, one, *__: computed.append(one.name))
    second = instances(InstanceInputs([*pods], [*rays], TYPES, 1005.0), first.timers, known=first.known)
    assert computed == []
    assert second.instances == first.instances
