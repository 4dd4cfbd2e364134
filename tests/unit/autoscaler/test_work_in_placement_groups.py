"""Tasks and actors inside a placement group are no demand for nodes: the gang stands for them, until it is placed and after that."""

from dataclasses import replace

import pytest

from raytide.autoscaler.gcs import gcs_pb2 as pb
from raytide.autoscaler.gcs.messages import decode_state, encode_demand, encode_gang
from raytide.autoscaler.model import Demand, GcsState, Request, amounts_of
from support.builders import group, template
from unit.autoscaler.simulated_cluster import World

PLACEMENT_GROUP = "2a" * 14 + "01000000"

pytestmark = pytest.mark.rule("FD:AS3-1")


class ReportedWorld(World):
    """Its demand passes through the messages of the GCS."""

    def _state(self) -> GcsState:
        state = super()._state()
        sent = pb.ClusterResourceState(
            pending_resource_requests=[encode_demand(demand) for demand in state.tasks],
            pending_gang_resource_requests=[encode_gang(gang) for gang in state.gangs],
        )
        received = decode_state(pb.GetClusterResourceStateReply(cluster_resource_state=sent))
        return replace(state, tasks=received.tasks, gangs=received.gangs)


def inside(bundle: int | None = None) -> Demand:
    """A task in the placement group, in this bundle or in any, as Ray reports it."""
    names = [PLACEMENT_GROUP] if bundle is None else [f"{bundle}_{PLACEMENT_GROUP}", PLACEMENT_GROUP]
    amounts = {f"{resource}_group_{name}": n for name in names for resource, n in (("CPU", 1), ("bundle", 0.001))}
    return Demand(Request(amounts_of(amounts), selectors=((),)))


def world_of(cpus: str = "1") -> ReportedWorld:
    """A placement group of two bundles of one CPU on different nodes, and work inside of it."""
    head = {"rayStartParams": {"num-cpus": "0"}, "template": template("ray-head")}
    workers = group("cpu", replicas=0, rayStartParams={"num-cpus": cpus})
    world = ReportedWorld([workers], spec={"headGroupSpec": head})
    world.gangs = [(PLACEMENT_GROUP, 2)]
    world.extra_tasks = (inside(0), inside(1), inside())
    return world


def impossible(world: World) -> set[str]:
    """Demand that any report, reason or event has called impossible."""
    reported = {name for report in world.reports for demand in report.infeasible for name, _ in demand.request.amounts}
    return reported | {text for text in (*world.lines, *world.events) if "_group_" in text or "fit no group" in text}


def test_work_that_waits_for_its_placement_group_is_not_impossible():
    world = world_of()
    world.run(60)
    assert (len(world.live()), impossible(world), world.reasons()) == (2, set(), set())


def test_work_that_waits_in_a_placed_group_launches_nothing():
    world = world_of()
    world.run(60)
    assert list(world.placed) == [PLACEMENT_GROUP]
    launched = len(world.created)
    world.extra_tasks = (inside(0), inside())
    world.run(60)
    assert (len(world.created), impossible(world), world.reasons()) == (launched, set(), set())


def test_an_impossible_placement_group_is_reported_once_as_a_gang():
    world = world_of(cpus="0")
    world.run(20)
    report = world.reports[-1]
    assert (report.infeasible, [gang.details for gang in report.infeasible_gangs]) == (
        (),
        [f"{PLACEMENT_GROUP}:STRICT_SPREAD|PENDING"],
    )
    assert [event for event in world.events if "fulfill" in event and "_group_" in event] == []
    assert len([event for event in world.events if "placement group requests" in event]) == 1
