"""Work that waits for a part of a device on a node whose devices have room only in sum."""

from dataclasses import replace

import pytest

from raytide.autoscaler.model import Demand, Instance, RayNode, Request, Status, amounts_of
from raytide.autoscaler.scheduling.device_waits import PROOF_S, device_waits, without_false_room
from support.builders import group, template
from unit.autoscaler.simulated_cluster import Node, World

pytestmark = pytest.mark.rule("FD:AS3-2")


class DeviceWorld(World):
    """Nodes of two GPUs; on the first of them so much is free in sum."""

    free = 0.8

    def _ray_node(self, node: Node) -> RayNode:
        found = super()._ray_node(node)
        if not found.is_alive:
            return found
        free = self.free if node.node_id == min(self.nodes) else 2
        return replace(
            found,
            total=(*amounts_of({"GPU": 2}), *found.total),
            available=(*amounts_of({"GPU": free}), *found.available),
        )


def world_of(count: int, **work: float) -> DeviceWorld:
    """One busy node with 0.8 GPU free, and so much work that waits."""
    head = {"rayStartParams": {"num-cpus": "0"}, "template": template("ray-head")}
    workers = group(
        "cpu", replicas=1, low=1, rayStartParams={"num-gpus": "2"}, template=template("ray-worker", cpu="4")
    )
    world = DeviceWorld([workers], spec={"headGroupSpec": head})
    world.run(30)
    world.demand(1)
    world.run(5)
    world.extra_tasks = (Demand(Request(amounts_of(work), ((),)), count),)
    return world


def test_work_that_seems_to_fit_and_waits_for_three_reads_gets_a_node():
    world = world_of(1, GPU=0.6)
    world.run(10)
    assert world.replicas() == 1
    world.run(60)
    assert world.replicas() == 2, "one node, although the work goes on waiting"


def test_while_the_free_amount_changes_nothing_is_proven():
    world = world_of(1, GPU=0.6)
    for step in range(60):
        world.free = 0.8 if step % 20 < 10 else 0.7
        world.run(1)
    assert world.replicas() == 1


def test_work_that_waits_for_other_resources_proves_nothing():
    world = world_of(1, GPU=0.6, CPU=4)
    world.run(30)
    assert dict(world.state.device_waits) == {}, "the CPUs of the node are the reason"


NODE = Instance(
    "n",
    "g",
    Status.RAY_RUNNING,
    node_id="id",
    total=amounts_of({"CPU": 8, "GPU": 4}),
    available=amounts_of({"CPU": 8, "GPU": 1.4}),
)


def demands(*amounts: float) -> list[Demand]:
    return [Demand(Request(amounts_of({"GPU": amount}), ((),))) for amount in amounts]


def test_less_than_the_smallest_work_that_waits_remains():
    waits = device_waits([NODE], demands(0.9, 0.6), {}, 100.0)
    assert without_false_room(NODE, waits["id"], 100.0 + PROOF_S - 1) == NODE
    left = without_false_room(NODE, waits["id"], 100.0 + PROOF_S)
    assert dict(left.available) == {"CPU": 80_000, "GPU": 5_999}


@pytest.mark.parametrize(
    ("node", "work"),
    [
        pytest.param(NODE, demands(1), id="whole devices"),
        pytest.param(NODE, demands(1.5), id="more than is free"),
        pytest.param(replace(NODE, available=NODE.total), demands(0.6), id="no device is used"),
        pytest.param(replace(NODE, available=amounts_of({"CPU": 8})), demands(0.6), id="nothing is free"),
        pytest.param(replace(NODE, status=Status.ALLOCATED), demands(0.6), id="not running"),
        pytest.param(NODE, [Demand(Request(amounts_of({"CPU": 0.5}), ((),)))], id="no device is asked for"),
    ],
)
def test_nothing_waits_for_a_device_of_the_node(node, work):
    assert device_waits([node], work, {}, 0.0) == {}
