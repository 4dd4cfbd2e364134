"""Fallback from a blocked group to others, its pods, and the speed of scale-up."""

from dataclasses import replace
from typing import Any

import pytest

from raytide.autoscaler.model import (
    Amounts,
    Demand,
    Gang,
    Instance,
    NodeType,
    Request,
    SchedulingReply,
    SchedulingRequest,
    Status,
    Termination,
    amounts_of,
)
from raytide.autoscaler.scheduling.decide import launched_conservatively
from raytide.autoscaler.scheduling.fallback import SchedulingRound, schedule_with_fallback
from raytide.autoscaler.scheduling.schedule import schedule
from raytide.autoscaler.state.group_availability import Limits, UnavailableGroup
from raytide.diagnosis.model import Diagnosis

CPU4 = amounts_of({"CPU": 4})
ONE = Request(CPU4)
"""One node's worth of work."""
SPOT = NodeType("spot", max_nodes=20, resources=CPU4, priority=10)
ON_DEMAND = NodeType("on-demand", max_nodes=20, resources=CPU4, priority=5)
HEAD = NodeType("headgroup", max_nodes=1)
NO_CAPACITY = UnavailableGroup(Diagnosis("Unschedulable", message="0/3 nodes are available"), is_capacity_missing=True)
BROKEN = UnavailableGroup(Diagnosis("ImagePullFailed", message="ErrImagePull"))


def coming(name: str, node_type: str = "spot", **more: Any) -> Instance:
    return Instance(name, node_type, Status.ALLOCATED, **{"pod": name, "total": CPU4, "available": CPU4, **more})


def requested(name: str, node_type: str = "spot", **more: Any) -> Instance:
    return coming(name, node_type, pod="", **more) if not more else coming(name, node_type, **{"pod": "", **more})


def running(name: str, node_type: str = "spot", *, is_busy: bool = False, idle_ms: int = 0) -> Instance:
    return Instance(
        name,
        node_type,
        Status.RAY_RUNNING,
        pod=name,
        node_id=f"id-{name}",
        total=CPU4,
        available=() if is_busy else CPU4,
        idle_ms=idle_ms,
    )


MASTER = Instance("head", "headgroup", Status.RAY_RUNNING, is_head=True, pod="head", node_id="id-head")


def ask(*instances: Instance, types: tuple[NodeType, ...] = (SPOT, ON_DEMAND), **more: Any) -> SchedulingRequest:
    return SchedulingRequest(types=(HEAD, *types), instances=(MASTER, *instances), **more)


def blocking(
    question: SchedulingRequest, *stuck: str, why: UnavailableGroup = NO_CAPACITY, group: str = "spot"
) -> Limits:
    """The limits when these instances of the group are stuck."""
    return Limits(
        types=tuple(replace(kind, available=0) if kind.name == group else kind for kind in question.types),
        instances=tuple(i for i in question.instances if i.instance_id not in stuck),
        stuck=tuple(i for i in question.instances if i.instance_id in stuck),
        blocked={group: why},
    )


def free(question: SchedulingRequest) -> Limits:
    return Limits(question.types, question.instances)


def stuck_pods(count: int) -> tuple[Instance, ...]:
    return tuple(coming(f"s{index}") for index in range(count))


def names_of(instances: tuple[Instance, ...]) -> list[str]:
    return [instance.instance_id for instance in instances]


def choice_of(question: SchedulingRequest, limits: Limits) -> SchedulingRound:
    return schedule_with_fallback(question, limits, schedule)


# --- fallback --------------------------------------------------------------------------------------------------------


def test_nothing_blocked_nothing_changed():
    question = ask(tasks=(Demand(ONE, 3),))
    choice = choice_of(question, free(question))
    assert choice.reply.launches == {"spot": 3}
    assert (choice.withdrawn, choice.kept, choice.instances) == (frozenset(), frozenset(), question.instances)


@pytest.mark.rule("SC:S2")
@pytest.mark.parametrize(
    "why",
    [NO_CAPACITY, UnavailableGroup(Diagnosis("SchedulingGated", message=""), is_capacity_missing=True), BROKEN],
    ids=lambda why: why.diagnosis.reason,
)
def test_the_next_group_is_launched_in_the_same_pass_and_stuck_pods_are_withdrawn(why):
    stuck = stuck_pods(16)
    question = ask(*stuck, tasks=(Demand(ONE, 16),))
    choice = choice_of(question, blocking(question, *names_of(stuck), why=why))
    assert choice.reply.launches == {"on-demand": 16}
    assert choice.withdrawn == set(names_of(stuck))
    assert {i.status for i in choice.instances if i.node_type == "spot"} == {Status.ALLOCATION_TIMEOUT}


@pytest.mark.rule("SC:S2")
def test_requested_replicas_whose_creation_is_rejected_are_withdrawn_too():
    stuck = tuple(replace(requested(f"r{index}"), status=Status.REQUESTED) for index in range(16))
    question = ask(*stuck, tasks=(Demand(ONE, 16),))
    choice = choice_of(question, blocking(question, *names_of(stuck)))
    assert choice.reply.launches == {"on-demand": 16}
    assert {i.status for i in choice.instances if i.node_type == "spot"} == {Status.ALLOCATION_FAILED}


@pytest.mark.rule("SC:S2")
def test_after_capacity_is_back_no_busy_worker_is_swapped():
    question = ask(*(running(f"o{i}", "on-demand", is_busy=True) for i in range(16)))
    choice = choice_of(question, free(question))
    assert (choice.reply.launches, choice.reply.terminations) == ({}, ())


def test_what_waits_for_capacity_waits_on_when_no_other_group_can_do_its_work():
    stuck = stuck_pods(4)
    question = ask(*stuck, types=(SPOT,), tasks=(Demand(ONE, 4),))
    choice = choice_of(question, blocking(question, *names_of(stuck)))
    assert (choice.kept, choice.withdrawn, choice.reply.launches) == (set(names_of(stuck)), frozenset(), {})


def test_only_as_much_waits_on_as_the_next_group_cannot_take():
    stuck = stuck_pods(4)
    question = ask(*stuck, types=(SPOT, replace(ON_DEMAND, max_nodes=3)), tasks=(Demand(ONE, 4),))
    choice = choice_of(question, blocking(question, *names_of(stuck)))
    assert choice.reply.launches == {"on-demand": 3}
    assert (len(choice.kept), len(choice.withdrawn)) == (1, 3)


def test_more_work_that_no_other_group_can_do_is_requested_of_the_group_without_capacity():
    stuck = stuck_pods(2)
    question = ask(*stuck, types=(replace(SPOT, max_nodes=5),), tasks=(Demand(ONE, 9),))
    choice = choice_of(question, blocking(question, *names_of(stuck)))
    assert (len(choice.kept), choice.reply.launches) == (2, {"spot": 3})


def test_no_node_of_a_broken_group_is_launched_even_if_no_other_group_fits():
    stuck = stuck_pods(2)
    question = ask(*stuck, types=(SPOT,), tasks=(Demand(ONE, 9),))
    choice = choice_of(question, blocking(question, *names_of(stuck), why=BROKEN))
    assert (choice.withdrawn, choice.reply.launches) == (set(names_of(stuck)), {})


def test_pods_that_wait_for_work_that_is_gone_are_withdrawn():
    stuck = stuck_pods(3)
    question = ask(*stuck, types=(SPOT,))
    assert choice_of(question, blocking(question, *names_of(stuck))).withdrawn == set(names_of(stuck))


def test_infeasible_demand_keeps_no_blocked_pods():
    stuck = stuck_pods(3)
    question = ask(*stuck, types=(SPOT,), tasks=(Demand(Request(amounts_of({"CPU": 64}))),))
    assert choice_of(question, blocking(question, *names_of(stuck))).kept == frozenset()


def test_pending_pods_of_the_minimum_are_kept():
    stuck = stuck_pods(3)
    question = ask(*stuck, running("r"), types=(replace(SPOT, min_nodes=3), ON_DEMAND))
    choice = choice_of(question, blocking(question, *names_of(stuck), why=BROKEN))
    assert (len(choice.kept), len(choice.withdrawn)) == (2, 1)
    assert choice.reply.launches == {}


def test_one_bad_pod_of_the_minimum_is_replaced_when_the_group_works():
    question = ask(coming("bad"), running("r"), types=(replace(SPOT, min_nodes=2),))
    limits = replace(blocking(question, "bad"), types=question.types, blocked={})
    choice = choice_of(question, limits)
    assert (choice.withdrawn, choice.reply.launches) == ({"bad"}, {"spot": 1})


def test_a_gang_is_moved_to_the_next_group_as_a_whole():
    stuck = stuck_pods(3)
    apart = Request(CPU4, anti_affinity=("_PG_1", ""))
    question = ask(*stuck, gangs=(Gang("1:STRICT_SPREAD|PENDING", (apart,) * 3),))
    choice = choice_of(question, blocking(question, *names_of(stuck)))
    assert choice.reply.launches == {"on-demand": 3}
    assert choice.kept == frozenset()


def test_blocked_pods_of_a_gang_that_no_other_group_can_hold_are_kept():
    stuck = stuck_pods(2)
    apart = Request(CPU4, anti_affinity=("_PG_1", ""))
    question = ask(running("r"), *stuck, types=(SPOT,), gangs=(Gang("1:STRICT_SPREAD|PENDING", (apart,) * 3),))
    choice = choice_of(question, blocking(question, *names_of(stuck)))
    assert choice.kept == set(names_of(stuck))


def test_a_constraint_that_only_a_blocked_group_fits_launches_nodes_of_that_group():
    question = ask(running("r"), types=(SPOT,), constraint=(Demand(ONE, 3),))
    choice = choice_of(question, blocking(question))
    assert choice.reply.launches == {"spot": 2}


@pytest.mark.rule("AS:B-8")
def test_replicas_wait_as_a_whole():
    slices = NodeType("spot", max_nodes=8, resources=CPU4, num_of_hosts=2)
    stuck = tuple(coming(f"{replica}{host}", replica=replica) for replica in "ab" for host in range(2))
    question = ask(*stuck, types=(slices,), tasks=(Demand(ONE, 1),))
    choice = choice_of(question, blocking(question, *names_of(stuck)))
    assert choice.kept in ({"a0", "a1"}, {"b0", "b1"})


# --- no more than is short -------------------------------------------------------------------------------------------


def apart_gang(size: int, amounts: Amounts = CPU4) -> Gang:
    return Gang("1:STRICT_SPREAD|PENDING", (Request(amounts, anti_affinity=("_PG_1", "")),) * size)


@pytest.mark.rule("FD:AS-A7")
@pytest.mark.parametrize(
    ("there", "asked", "launches"),
    [
        pytest.param(
            [running(f"r{i}") for i in range(9)],
            {"gangs": (apart_gang(10),)},
            {"spot": 1},
            id="a gang of ten with nine free nodes launches one",
        ),
        pytest.param(
            [running(f"r{i}", is_busy=True) for i in range(9)],
            {"gangs": (apart_gang(10),)},
            {"spot": 10},
            id="a gang of ten with nine busy nodes launches ten",
        ),
        pytest.param(
            [running(f"r{i}") for i in range(9)],
            {"gangs": (apart_gang(10),), "tasks": (Demand(ONE, 9),)},
            {"spot": 10},
            id="nine free nodes that tasks take are not counted for the gang, too",
        ),
        pytest.param(
            [running(f"r{i}") for i in range(9)],
            {"gangs": (apart_gang(10, amounts_of({"CPU": 1})),), "tasks": (Demand(ONE),)},
            {"spot": 2},
            id="further nodes of a gang do not take the capacity of a task",
        ),
        pytest.param(
            [running("r")],
            {"gangs": (apart_gang(22),)},
            {},
            id="a gang that the maximum cannot hold launches nothing",
        ),
        pytest.param(
            [running("r", is_busy=True)],
            {"constraint": (Demand(ONE, 3),), "tasks": (Demand(ONE, 2),)},
            {"spot": 2},
            id="tasks run on the nodes of request_resources()",
        ),
        pytest.param(
            [running("r")],
            {"constraint": (Demand(ONE, 3),), "tasks": (Demand(ONE, 3),)},
            {"spot": 2},
            id="and the other way round",
        ),
    ],
)
def test_a_blocked_group_launches_only_the_missing_nodes(there, asked, launches):
    question = ask(*there, types=(SPOT,), **asked)
    assert choice_of(question, blocking(question)).reply.launches == launches


@pytest.mark.rule("FD:AS-A7")
def test_a_gang_waits_for_the_part_that_only_a_group_without_capacity_can_take():
    question = ask(
        *(running(f"r{i}") for i in range(3)), types=(SPOT, replace(ON_DEMAND, max_nodes=4)), gangs=(apart_gang(10),)
    )
    choice = choice_of(question, blocking(question))
    assert choice.reply.launches == {"spot": 7}, "the other group starts nothing for a gang that cannot begin"


@pytest.mark.rule("FD:AS-A7")
def test_blocked_hosts_of_a_partly_running_slice_are_kept():
    slices = NodeType("spot", max_nodes=8, resources=CPU4, num_of_hosts=4)
    first = replace(running("a0"), replica="a")
    rest = tuple(coming(f"a{host}", replica="a") for host in range(1, 4))
    question = ask(first, *rest, types=(slices,), gangs=(apart_gang(4),))
    choice = choice_of(question, blocking(question, *names_of(rest)))
    assert (choice.reply.launches, choice.kept) == ({}, set(names_of(rest)))


# --- gangs that wait -------------------------------------------------------------------------------------------------


@pytest.mark.rule("SC:S5")
@pytest.mark.parametrize("why", [NO_CAPACITY, BROKEN], ids=["no room", "broken"])
def test_nodes_are_not_idle_while_their_gang_waits_for_a_blocked_group(why):
    ready = tuple(running(f"r{index}", idle_ms=500_000) for index in range(9))
    apart = Request(CPU4, anti_affinity=("_PG_1", ""))
    gang = Gang("1:STRICT_SPREAD|PENDING", (apart,) * 10)
    question = ask(*ready, coming("late"), types=(SPOT,), gangs=(gang,), idle_timeout_s=30.0)
    choice = choice_of(question, blocking(question, "late", why=why))
    assert choice.reply.terminations == ()
    alone = choice_of(replace(question, gangs=()), blocking(question, "late", why=why))
    assert len(alone.reply.terminations) == 9, "without the gang they are idle"


@pytest.mark.rule("SC:S5")
def test_nodes_are_not_idle_while_the_others_of_their_gang_start_slowly():
    ready = tuple(running(f"r{index}", idle_ms=500_000) for index in range(5))
    late = tuple(coming(f"l{index}") for index in range(5))
    apart = Request(CPU4, anti_affinity=("_PG_1", ""))
    question = ask(*ready, *late, gangs=(Gang("1:STRICT_SPREAD|PENDING", (apart,) * 10),), idle_timeout_s=30.0)
    choice = choice_of(question, free(question))
    assert (choice.reply.launches, choice.reply.terminations) == ({}, ())


# --- upscaling speed -------------------------------------------------------------------------------------------------


def speed(question: SchedulingRequest) -> SchedulingRound:
    return launched_conservatively(choice_of(question, free(question)), schedule)


@pytest.mark.rule("AS:B-11", "AS:C-5")
def test_default_and_aggressive_have_no_limit_not_even_ten():
    question = ask(types=(replace(SPOT, max_nodes=1000),), tasks=(Demand(ONE, 1000),))
    assert choice_of(question, free(question)).launches == {"spot": 1000}


@pytest.mark.rule("AS:R-40", "AS:V-2")
@pytest.mark.parametrize(
    ("there", "goes", "waits"),
    [
        pytest.param([], 1, 14, id="none runs: one at a time"),
        pytest.param([coming("c")], 0, 14, id="one is on its way: none more"),
        pytest.param([running("r", is_busy=True)], 1, 14, id="one runs: one more"),
        pytest.param([running(f"r{i}", is_busy=True) for i in range(4)], 4, 11, id="four run: four more"),
        pytest.param(
            [*(running(f"r{i}", is_busy=True) for i in range(4)), coming("c")], 3, 11, id="less what is coming"
        ),
        pytest.param([running(f"r{i}", is_busy=True) for i in range(5)], 5, 10, id="doubling at most"),
    ],
)
def test_conservative_lets_as_many_come_as_run(there, goes, waits):
    question = ask(*there, types=(SPOT,), tasks=(Demand(ONE, 15),))
    found = speed(question)
    assert (found.launches.get("spot", 0), found.held_back.get("spot", 0)) == (goes, waits)


@pytest.mark.rule("AS:R-40")
def test_each_group_has_its_own_speed():
    question = ask(
        running("r", is_busy=True),
        running("o1", "on-demand", is_busy=True),
        running("o2", "on-demand", is_busy=True),
        types=(replace(SPOT, max_nodes=6), ON_DEMAND),
        tasks=(Demand(ONE, 10),),
    )
    assert speed(question).launches == {"spot": 1, "on-demand": 2}


@pytest.mark.rule("AS:V-2")
def test_request_resources_bypasses_the_speed():
    question = ask(types=(SPOT,), constraint=(Demand(ONE, 12),), tasks=(Demand(ONE, 15),))
    assert speed(question).launches == {"spot": 12}


@pytest.mark.rule("AS:V-2")
def test_the_minimum_bypasses_the_speed():
    question = ask(types=(replace(SPOT, min_nodes=7),), tasks=(Demand(ONE, 15),))
    assert speed(question).launches == {"spot": 7}


@pytest.mark.rule("AS:B-8")
def test_whole_replicas_come_even_slowly():
    slices = NodeType("spot", max_nodes=16, resources=CPU4, num_of_hosts=4)
    question = ask(types=(slices,), tasks=(Demand(ONE, 16),))
    found = speed(question)
    assert (found.launches, found.held_back) == ({"spot": 4}, {"spot": 12})


def test_pods_that_wait_for_capacity_count_as_pending():
    stuck = stuck_pods(2)
    question = ask(*stuck, types=(SPOT,), tasks=(Demand(ONE, 9),))
    choice = choice_of(question, blocking(question, *names_of(stuck)))
    assert launched_conservatively(choice, schedule).launches == {}


def test_nothing_planned_nothing_limited():
    choice = SchedulingRound(SchedulingReply(terminations=(Termination("a", None),)), ask(), {})  # type: ignore[arg-type]
    assert launched_conservatively(choice, schedule).launches == {}
