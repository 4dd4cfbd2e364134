"""A group with a scale gate gets no new nodes, and its demand goes to other groups at once (`scaleStrategy.scaleGate`)."""

from typing import Any

import pytest

from raytide.api.limits import MAX_GATE_TYPE, MAX_GATES
from raytide.autoscaler.state.worker_groups import spec_groups
from raytide.diagnosis.render import text_of
from support.builders import group, raycluster, template
from unit.autoscaler.simulated_cluster import World

pytestmark = pytest.mark.rule("FD:AS3-8", "AS:K-11")

QUOTA = "kueue.k8s.io/quota-exceeded"
OTHER = "example.com/maintenance"
HEAD = {"rayStartParams": {"num-cpus": "0"}, "template": template("ray-head")}


def set_gates(world: World, name: str, *types: str) -> None:
    """What quota controllers write: the rest of scaleStrategy stays."""
    strategy = world.spec_of(name).get("scaleStrategy") or {}
    world.edit(name, scaleStrategy={**strategy, "scaleGate": [{"type": one} for one in types]})


def gates_of(world: World, name: str) -> list[str]:
    return [gate["type"] for gate in world.spec_of(name).get("scaleStrategy", {}).get("scaleGate", [])]


def world_of(*, low: int = 0, others: bool = True, **spot: Any) -> World:
    """Group spot has priority; kube-scheduler finds no node for its pods while spot is in `world.blocked`."""
    groups = [group("spot", replicas=0, low=low, priority=10, **spot)]
    return World([*groups, *([group("on-demand", replicas=0)] if others else [])], spec={"headGroupSpec": HEAD})


def why(world: World, name: str = "spot") -> list[tuple[str, str]]:
    return [(one.reason, text_of(one)) for one in world.record().groups[name].why]


def gated(types: str = QUOTA) -> tuple[str, str]:
    message = f"scaleStrategy.scaleGate has {types}: no node of the group is launched until the controllers that wrote it have emptied it"
    return ("ScaleGated", message)


def test_demand_goes_to_the_next_group_in_the_tick_that_sees_the_gate_and_pending_pods_are_given_back():
    world = world_of()
    world.blocked = {"spot"}
    world.demand(3)
    world.run_until(lambda: len(world.live("spot")) == 3, within_s=10)
    set_gates(world, "spot", QUOTA)
    waited_s = world.run_until(lambda: world.replicas("on-demand") == 3, within_s=30)
    assert waited_s <= 5, "long before the pods would have been found to be stuck"
    assert world.replicas("spot") == 0
    world.run(60)
    assert (len(world.live("spot")), len(world.live("on-demand")), world.waiting()) == (0, 3, 0)
    assert gates_of(world, "spot") == [QUOTA]


def test_the_gate_is_a_reason_only_while_it_limits_something():
    world = world_of(others=True)
    set_gates(world, "spot", QUOTA)
    world.run(30)
    assert world.reasons() == set(), "no demand"
    world.demand(10)
    world.run(60)
    assert world.reasons() == set(), "the other group takes it"
    world.demand(11)
    world.run(30)
    assert (why(world), [reason for reason, _ in why(world, "on-demand")]) == ([gated()], ["MaxReached"])
    world.demand(10)
    world.run(30)
    assert world.reasons() == set()


def test_requested_replicas_without_a_pod_are_given_back_too():
    world = world_of()
    world.has_operator = False
    world.demand(3)
    world.run_until(lambda: world.replicas("spot") == 3, within_s=10)
    set_gates(world, "spot", QUOTA)
    world.run(6)
    assert (world.replicas("spot"), world.replicas("on-demand")) == (0, 3)


def test_no_backoff_follows_the_gate_and_the_preferred_group_is_launched_again_when_it_opens():
    world = world_of()
    world.demand(2)
    set_gates(world, "spot", QUOTA)
    world.run(30)
    assert (len(world.live("spot")), len(world.live("on-demand"))) == (0, 2)
    assert world.record().groups["spot"].backoff is None
    set_gates(world, "spot")
    world.demand(5)
    waited_s = world.run_until(lambda: world.replicas("spot") == 3, within_s=30)
    assert waited_s <= 6
    assert why(world) == []


def test_a_gate_replaces_the_backoff_of_the_group():
    world = world_of(others=False)
    world.blocked = {"spot"}
    world.demand(2)
    world.run(20)
    assert world.record().groups["spot"].backoff is not None
    set_gates(world, "spot", QUOTA)
    world.run(5)
    assert (world.record().groups["spot"].backoff, why(world)) == (None, [gated()])
    world.blocked = set()
    set_gates(world, "spot")
    world.run_until(lambda: world.waiting() == 0, within_s=25)


def test_running_nodes_stay_and_work_on_them_goes_on():
    world = world_of()
    world.demand(2)
    world.run(30)
    running = set(world.pods)
    set_gates(world, "spot", QUOTA)
    world.demand(4)
    world.run(60)
    assert running < set(world.pods)
    assert (world.replicas("spot"), world.replicas("on-demand"), world.waiting()) == (2, 2, 0)
    assert world.drain_calls == []


def test_idle_nodes_of_a_gated_group_end_as_those_of_any_other():
    world = world_of()
    world.demand(2)
    world.run(30)
    set_gates(world, "spot", QUOTA)
    world.demand(0)
    world.run(60)
    assert (world.replicas("spot"), world.live("spot"), gates_of(world, "spot")) == (0, [], [QUOTA])


def test_demand_that_fits_no_other_group_waits_with_a_reason_that_names_the_gates():
    world = world_of(others=False)
    set_gates(world, "spot", QUOTA, OTHER)
    world.demand(3)
    world.run(60)
    assert (world.created, world.replicas("spot")) == ([], 0)
    assert why(world) == [gated(f"{QUOTA}, {OTHER}")]
    set_gates(world, "spot", OTHER)
    world.run(20)
    assert (world.created, why(world)) == ([], [gated(OTHER)]), "another controller still has its gate"
    set_gates(world, "spot")
    world.run(30)
    assert (len(world.live("spot")), world.waiting(), world.reasons()) == (3, 0, set())


def test_pending_pods_that_no_other_group_can_replace_keep_their_place_and_no_more_are_requested():
    world = world_of(others=False)
    world.blocked = {"spot"}
    world.demand(2)
    world.run_until(lambda: len(world.live("spot")) == 2, within_s=10)
    set_gates(world, "spot", QUOTA)
    world.demand(4)
    world.run(120)
    assert (len(world.created), len(world.live("spot")), world.replicas("spot")) == (2, 2, 2)
    world.blocked = set()
    set_gates(world, "spot")
    world.run(30)
    assert (len(world.live("spot")), world.waiting()) == (4, 0)


def test_pods_that_have_a_node_are_not_given_back():
    world = world_of()
    world.start_s = 40
    world.demand(2)
    world.run_until(lambda: len(world.live("spot")) == 2, within_s=10)
    world.run(2)
    set_gates(world, "spot", QUOTA)
    world.run(60)
    assert (len(world.live("spot")), len(world.created), world.waiting()) == (2, 2, 0)


def test_the_minimum_is_not_withdrawn():
    world = world_of(low=2)
    world.blocked = {"spot"}
    set_gates(world, "spot", QUOTA)
    world.demand(3)
    world.run(60)
    assert (world.replicas("spot"), len(world.live("spot")), len(world.live("on-demand"))) == (2, 2, 3)


def test_a_restart_of_the_sidecar_changes_nothing():
    world = world_of()
    set_gates(world, "spot", QUOTA)
    world.demand(11)
    world.run(40)
    created, why_before = len(world.created), why(world)
    assert why_before == [gated()]
    world.restart()
    world.run(40)
    assert (len(world.created), why(world), gates_of(world, "spot")) == (created, why_before, [QUOTA])


def test_without_a_record_the_gate_counts_too():
    world = world_of()
    world.is_recorded = False
    set_gates(world, "spot", QUOTA)
    world.demand(3)
    world.run(40)
    assert (world.replicas("spot"), world.replicas("on-demand")) == (0, 3)


# --- what is read of the spec -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "gates"),
    [
        pytest.param(None, (), id="no strategy"),
        pytest.param({"workersToDelete": []}, (), id="no gate"),
        pytest.param({"scaleGate": []}, (), id="an empty list"),
        pytest.param({"scaleGate": [{"type": QUOTA}, {"type": OTHER}]}, (QUOTA, OTHER), id="two gates"),
        pytest.param({"scaleGate": [{"name": "x"}, 7]}, ("without a type",) * 2, id="entries of another API are gates"),
        pytest.param({"scaleGate": "x"}, (), id="no list"),
        pytest.param({"scaleGate": [{"type": "x" * 10**6}]}, ("x" * MAX_GATE_TYPE,), id="a long type is cut"),
        pytest.param({"scaleGate": [{"type": "x"}] * 10**5}, ("x",) * MAX_GATES, id="a long list is cut"),
    ],
)
def test_gates_are_read_within_bounds(strategy, gates):
    (found,) = spec_groups(raycluster(group(scaleStrategy=strategy)))
    assert found.scale_gates == gates


def test_of_many_gates_three_are_named():
    world = world_of(others=False)
    world.demand(1)
    set_gates(world, "spot", "a/1", "a/2", "a/3", "a/4", "a/5")
    world.run(10)
    assert why(world) == [gated("a/1, a/2, a/3 and 2 others")]
