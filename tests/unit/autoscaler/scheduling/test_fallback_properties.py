"""Properties of demand that only a blocked group could hold, in random small clusters."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raytide.autoscaler.model import Demand, Gang, Instance, NodeType, Request, SchedulingRequest, Status, amounts_of
from raytide.autoscaler.scheduling.fallback import SchedulingRound, schedule_with_fallback
from raytide.autoscaler.scheduling.schedule import schedule
from raytide.autoscaler.state.group_availability import Limits, UnavailableGroup
from raytide.diagnosis.model import Diagnosis
from support.explored import explored

CPU4 = amounts_of({"CPU": 4})
HEAD = NodeType("headgroup", max_nodes=1)
MASTER = Instance("head", "headgroup", Status.RAY_RUNNING, is_head=True, pod="head", node_id="id-head")
NO_CAPACITY = UnavailableGroup(Diagnosis("Unschedulable", message="0/3 nodes are available"), is_capacity_missing=True)
GATED = UnavailableGroup(Diagnosis("ScaleGated", message="a gate"), is_capacity_missing=True, may_request=False)


def running(number: int, group: str, free: int) -> Instance:
    available = amounts_of({"CPU": free}) if free else ()
    return Instance(
        f"r{number}", group, Status.RAY_RUNNING, pod=f"r{number}", node_id=f"n{number}", total=CPU4, available=available
    )


def waiting(name: str, group: str) -> Instance:
    return Instance(name, group, Status.ALLOCATED, pod=name, total=CPU4, available=CPU4)


@st.composite
def worlds(draw: st.DrawFn) -> SchedulingRequest:
    """Two groups of equal nodes, and capacity for all requests: no node is better, and there is no contention.

    Beside gangs, which take whole nodes, tasks take whole nodes, too: they come before a gang that has to wait, and parts of
    nodes may be taken in an order that leaves it fewer whole ones.
    """
    most = {"spot": 60, "on-demand": draw(st.integers(0, 12))}
    types = [
        NodeType(name, max_nodes=count, resources=CPU4, priority=draw(st.integers(0, 1)))
        for name, count in most.items()
    ]
    nodes = draw(st.lists(st.tuples(st.sampled_from(sorted(most)), st.sampled_from((0, 1, 2, 4))), max_size=6))
    sizes = draw(st.lists(st.integers(1, 6), max_size=3))
    gangs = [
        Gang(f"{number}:STRICT_SPREAD|PENDING", (Request(CPU4, anti_affinity=(f"_PG_{number}", "")),) * size)
        for number, size in enumerate(sizes)
    ]
    parts = st.just(4) if gangs else st.sampled_from((1, 2, 4))
    amounts = draw(st.lists(st.tuples(parts, st.integers(1, 9)), max_size=3))
    requested = draw(st.integers(0, 5))
    return SchedulingRequest(
        types=(HEAD, *types),
        instances=(
            MASTER,
            *(running(number, *node) for number, node in enumerate(nodes)),
            *(waiting(f"s{number}", "spot") for number in range(draw(st.integers(0, 3)))),
        ),
        tasks=tuple(Demand(Request(amounts_of({"CPU": cpus})), count) for cpus, count in amounts),
        gangs=tuple(gangs),
        constraint=(Demand(Request(CPU4), requested),) if requested else None,
    )


def blocked(question: SchedulingRequest, why: UnavailableGroup = NO_CAPACITY) -> SchedulingRound:
    """The choice while the spot group has no capacity."""
    stuck = tuple(i for i in question.instances if i.node_type == "spot" and i.status is Status.ALLOCATED)
    types = tuple(replace(one, available=0) if one.name == "spot" else one for one in question.types)
    limits = Limits(types, (), stuck=stuck, blocked={"spot": why})
    return schedule_with_fallback(question, limits, schedule)


def coming(question: SchedulingRequest) -> int:
    """Nodes that a plan has in use and that do not run yet, where every group has capacity."""
    plan = schedule(question)
    pending = [i.instance_id for i in question.instances if i.status is Status.ALLOCATED]
    return sum(plan.launches.values()) + len(plan.needed.intersection(pending))


@pytest.mark.rule("FD:AS-A7")
@explored()
@given(worlds())
def test_no_more_nodes_are_launched_than_if_every_group_had_capacity(question):
    choice = blocked(question)
    assert sum(choice.reply.launches.values()) + len(choice.kept) <= coming(question)


@pytest.mark.rule("FD:AS-A7")
@explored()
@given(worlds())
def test_while_launched_nodes_are_pending_nothing_more_is_launched_or_withdrawn(question):
    first = blocked(question)
    launched = [
        waiting(f"{name}-{number}", name) for name, count in first.reply.launches.items() for number in range(count)
    ]
    still = tuple(i for i in question.instances if i.instance_id not in first.withdrawn)
    second = blocked(replace(question, instances=(*still, *launched)))
    assert (second.reply.launches, second.withdrawn) == ({}, frozenset())


@pytest.mark.rule("FD:AS3-8")
@explored()
@given(worlds())
def test_a_gated_group_is_never_launched_and_else_all_is_decided_as_without_capacity(question):
    gated, full = blocked(question, GATED), blocked(question)
    assert "spot" not in gated.reply.launches
    assert gated.reply.launches == {name: n for name, n in full.reply.launches.items() if name != "spot"}
    assert (gated.withdrawn, gated.kept) == (full.withdrawn, full.kept)
    assert gated.reply.unplaced == full.reply.unplaced
