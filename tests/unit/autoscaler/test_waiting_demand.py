"""Demand that waits always has a reason: what only busy live nodes could run, and gangs above a maximum, too."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from raytide.autoscaler.model import Amounts, Demand, LabelConstraint, RayNode, Request, amounts_of, labels_of
from raytide.diagnosis.render import text_of
from support.builders import group, template
from unit.autoscaler.simulated_cluster import Node, World

pytestmark = pytest.mark.rule("FD:AS3-5")

HEAD = {"rayStartParams": {"num-cpus": "0"}, "template": template("ray-head")}
RACK = LabelConstraint("rack", ("a",))
STORE = "object_store_memory"


def with_amounts(amounts: Amounts, **more: float) -> Amounts:
    return tuple(sorted((*amounts, *amounts_of(more))))


class LiveWorld(World):
    """Its live nodes have more than their spec tells."""

    of_live: Callable[[RayNode], RayNode]

    def _ray_node(self, node: Node) -> RayNode:
        found = super()._ray_node(node)
        return self.of_live(found) if found.is_alive else found


def in_rack_a(node: RayNode) -> RayNode:
    return replace(node, labels=labels_of({"rack": "a"}))


def with_used_store(node: RayNode) -> RayNode:
    total, available = with_amounts(node.total, **{STORE: 1e9}), with_amounts(node.available, **{STORE: 1e8})
    return replace(node, total=total, available=available)


@pytest.mark.parametrize(
    ("of_live", "request_", "shape"),
    [
        pytest.param(
            in_rack_a,
            Request(amounts_of({"CPU": 1}), ((RACK,),)),
            "{CPU: 1} where rack in [a] x 3",
            id="a label of rayStartParams",
        ),
        pytest.param(
            with_used_store,
            Request(amounts_of({STORE: 5e8}), ((),)),
            "{object_store_memory: 500000000} x 3",
            id="room in the object store",
        ),
    ],
)
def test_demand_that_only_a_busy_live_node_could_run_has_a_reason(of_live, request_, shape):
    world = LiveWorld([group("cpu", replicas=1, low=1)], spec={"headGroupSpec": HEAD})
    world.of_live = of_live
    world.run(30)
    world.demand(1)
    world.run(5)
    world.extra_tasks = (Demand(request_, 3),)
    world.run(30)
    (why,) = world.record().why
    assert (why.reason, why.count) == ("NodeBusy", 3)
    assert text_of(why) == (
        f"pending: {shape}; no group has such nodes, and the live ones are busy: wait until their work ends, or add a "
        "group with such resources and labels"
    )
    assert (len(world.created), world.reports[-1].infeasible) == (1, ())


def test_a_gang_above_the_maximum_of_its_group_has_a_reason_although_no_node_is_launched():
    world = World([group("cpu", replicas=0, high=2)], spec={"headGroupSpec": HEAD})
    world.gangs = [("cd" * 18, 3)]
    world.run(30)
    assert world.replicas() == 0
    assert [(why.reason, why.count, text_of(why)) for why in world.record().groups["cpu"].why] == [
        ("MaxReached", 3, "pending: {CPU: 1} x 3; they need more than the group's maximum of 2: raise maxReplicas")
    ]
