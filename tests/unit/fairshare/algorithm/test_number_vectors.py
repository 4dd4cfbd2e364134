"""TJ §4: the number vectors of the reference algorithm, as they are printed there.

A row is what there is, then who is changed by how much, then who waits below its minimum with which reason. Every plan is
also carried out and planned again: nothing is left to do. Instances are placed by the builder's scheduler.
"""

from dataclasses import dataclass, field
from fractions import Fraction

import pytest

from raytide.api.pod_requirements import CPU
from raytide.api.sharing_record import REBALANCED
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.algorithm.model import (
    COOLING_DOWN,
    FRAGMENTED,
    INSUFFICIENT,
    INSUFFICIENT_GPU,
    AllocationOptions,
    Participant,
)
from support.elastic_builders import GPU, World, amounts, job, master, node, resizes_of, shape, waiting_of


@dataclass(frozen=True)
class Row:
    """Nodes, jobs, and what is expected of the plan."""

    jobs: list[Participant]
    resizes: dict[str, int]
    waiting: dict[str, str] = field(default_factory=dict)
    cpu: float = 100
    gpu: int = 0


def gpu_jobs(*bounds: tuple[str, int, int, int], cpu: float = 1) -> list[Participant]:
    """Name, floor, ceiling, current; one GPU each, the last the youngest."""
    return [
        job(name, floor, ceiling, current, gpu=1, cpu=cpu, created_at=f"2026-01-0{number + 1}T00:00:00Z")
        for number, (name, floor, ceiling, current) in enumerate(bounds)
    ]


V13 = [job("a", 1, 3, 1, gpu=2, cpu=1), job("b", 1, 3, 1, gpu=1, cpu=4), job("c", 1, 3, 1, gpu=1, cpu=2)]
HALF_OF_LIMIT = shape(0.5, limits={CPU: 1000})

ROWS = {
    "V1 the least fulfilled job gets all six, although the other one is further below its maximum": Row(
        [job("a", 1, 20, 2), job("b", 1, 10, 5), job("other", 20, 20, 20)], {"a": 6}, cpu=33
    ),
    "V2 ten equal jobs get eight each": Row(
        [job(f"job-{n}", 2, 20, 2) for n in range(10)], {f"job-{n}": 8 for n in range(10)}, cpu=100
    ),
    "V3 the most fulfilled job shrinks for the new job": Row(
        gpu_jobs(("A", 1, 8, 8), ("B", 1, 8, 4), ("C", 2, 4, 0)), {"A": -2, "C": 2}, gpu=12
    ),
    "V4 a tie is taken from the larger CPU job": Row(
        [job("A", 2, 6, 6, gpu=1, cpu=1), job("B", 2, 10, 9, gpu=1, cpu=2), job("C", 3, 3, 0, gpu=1, cpu=1)],
        {"A": -1, "B": -2, "C": 3},
        gpu=15,
    ),
    "V5 with all jobs at their minimum a gang waits": Row(
        gpu_jobs(("A", 4, 8, 4), ("B", 2, 2, 2), ("C", 1, 4, 0)), {}, {"C": INSUFFICIENT_GPU}, gpu=6
    ),
    "V5 with all jobs at their minimum CPU pods wait, and no job shrinks": Row(
        [job("A", 4, 8, 4), job("B", 2, 2, 2), job("C", 1, 4, 1)], {}, {"C": INSUFFICIENT}, cpu=6
    ),
    "V6 half of what a minimum needs is not taken": Row(
        gpu_jobs(("A", 2, 4, 3), ("C", 2, 2, 0)), {}, {"C": INSUFFICIENT_GPU}, gpu=3
    ),
    "V7 no job is larger than its maximum, however much is free": Row([job("A", 1, 3, 3)], {}, cpu=53),
    "V9 by limits ten CPUs hold five more": Row([job("A", 1, 10, 5, shape=HALF_OF_LIMIT)], {"A": 5}, cpu=10),
    "V9 by limits eight CPUs hold three more": Row([job("A", 1, 10, 5, shape=HALF_OF_LIMIT)], {"A": 3}, cpu=8),
    "V9 by requests ten CPUs hold five more": Row(
        [job("A", 1, 10, 5, shape=HALF_OF_LIMIT, uses_limits=False)], {"A": 5}, cpu=10
    ),
    "V9 by requests eight CPUs hold five more": Row(
        [job("A", 1, 10, 5, shape=HALF_OF_LIMIT, uses_limits=False)], {"A": 5}, cpu=8
    ),
    "V10 a job above its maximum shrinks in one step": Row([job("A", 1, 4, 6)], {"A": -2}),
    "V11 below the minimum with much free capacity: to the maximum": Row([job("A", 5, 8, 3)], {"A": 5}, cpu=13),
    "V11 below the minimum with just enough free capacity: to the minimum": Row([job("A", 5, 8, 3)], {"A": 2}, cpu=5),
    "V12 only the holder of the GPU shrinks": Row(
        [job("X", 1, 10, 10), job("G", 1, 4, 3, gpu=1), job("C", 1, 2, 0, gpu=1)], {"G": -1, "C": 1}, cpu=13, gpu=3
    ),
    "V13 one free GPU goes to the smaller CPU": Row(V13, {"c": 1}, gpu=5),
    "V13 two free GPUs go to both small ones": Row(V13, {"c": 1, "b": 1}, gpu=6),
    "V13 of three the one that needs two gets none": Row(V13, {"c": 2, "b": 1}, gpu=7),
    "V13 of four free GPUs each job gets its share": Row(V13, {"c": 1, "b": 1, "a": 1}, gpu=8),
    "V14 the seed's job reaches five of six from nothing": Row(
        [job("job-1", 3, 6, 0, gpu=1, cpu=0.5, core=(master(0.5), master(0.5, count=3)))], {"job-1": 5}, gpu=5
    ),
    "V16 the last instance goes to the job that stays least fulfilled": Row(
        [job("A", 1, 9, 5), job("B", 1, 5, 3)], {"A": 3, "B": 1}, cpu=12
    ),
    "V17 without rebalancing the first job keeps its size": Row([job("A", 2, 20, 20), job("B", 2, 20, 2)], {}, cpu=22),
    "V18 two new jobs are served by the most fulfilled job alone": Row(
        [
            job("A", 2, 20, 20),
            job("B", 2, 20, 12),
            job("C", 2, 4, 0, is_gang=True, created_at="2026-01-02T00:00:00Z"),
            job("D", 3, 6, 0, is_gang=True, created_at="2026-01-03T00:00:00Z"),
        ],
        {"A": -4, "C": 2, "D": 3},
        cpu=33,
    ),
}


def world_of(row: Row) -> World:
    return World([node(cpu=row.cpu, gpu=row.gpu)], row.jobs)


@pytest.mark.parametrize(
    "row", [pytest.param(row, marks=pytest.mark.rule(f"TJ:{name.split()[0]}"), id=name) for name, row in ROWS.items()]
)
def test_vectors(row):
    world = world_of(row)
    plan = allocate(world.pool())
    assert resizes_of(plan) == row.resizes
    assert waiting_of(plan) == row.waiting
    assert allocate(world.carried_out(plan).pool()).resizes == ()


@pytest.mark.rule("TJ:V1")
def test_final_scores_of_v1():
    a, b, _ = (pods.job for pods in world_of(ROWS[next(iter(ROWS))]).jobs.values())
    assert (a.score_at(8), b.score_at(5)) == (Fraction(7, 19), Fraction(4, 9))


@pytest.mark.rule("TJ:V8")
def test_four_gpus_on_two_nodes_are_not_four_on_one():
    """V8: no growth, and the reason is Fragmented."""
    there = [node(name, cpu=32, gpu=4, used=amounts(gpu=2)) for name in ("one", "two")]
    world = World([*there, node("busy", cpu=32, gpu=4)], [job("A", 1, 3, 1, gpu=4)])
    plan = allocate(world.pool())
    assert plan.resizes == ()
    assert [(one.reason, one.is_below_floor, one.message) for one in plan.waiting] == [
        (FRAGMENTED, False, f"needs 4 {GPU} free on one node; the best node has 2 free, to grow beyond 1")
    ]


@pytest.mark.rule("TJ:V14")
@pytest.mark.parametrize(
    ("size", "score"),
    [(3, Fraction(0)), (4, Fraction(1, 3)), (5, Fraction(2, 3)), (6, Fraction(1))],
    ids="at {}".format,
)
def test_scores_of_the_seeds_job(size, score):
    assert job("job-1", 3, 6).score_at(size) == score


@pytest.mark.rule("TJ:V17")
def test_rebalancing_is_one_resize_each():
    """The vector has one move per cooldown; Raytide makes all moves at once: each resize changes a membership."""
    jobs = [job("A", 2, 20, 20, rebalances=True), job("B", 2, 20, 2, rebalances=True)]
    world = World([node(cpu=22)], jobs)
    plan = allocate(world.pool())
    assert resizes_of(plan) == {"A": -8, "B": 8}
    assert [(one.reason, one.is_released) for one in plan.resizes] == [(REBALANCED, True), (REBALANCED, False)]
    assert [one.message for one in plan.resizes] == [
        "ScaledDown 20→12 for default/B, which is less fulfilled",
        "ScaledUp 2→10 with capacity from other jobs, as soon as terminating pods are gone",
    ]
    world = world.carried_out(plan)
    assert world.sizes() == {"A": 12, "B": 10}
    assert allocate(world.pool()).resizes == ()


@pytest.mark.rule("TJ:V17", "SC:S25")
def test_many_are_rebalanced_in_one_plan_and_each_is_resized_once():
    rich = [job(name, 2, 60, 60, rebalances=True) for name in "abcd"]
    poor = [job(name, 2, 60, 2, rebalances=True) for name in "efgh"]
    world = World([node(cpu=248, pods=500)], [*rich, *poor])
    plan = allocate(world.pool())
    assert resizes_of(plan) == {**dict.fromkeys("abcd", -26), **dict.fromkeys("efgh", 26)}
    assert len(plan.resizes) == 8
    assert (
        plan.resizes[0].message
        == "ScaledDown 60→34 for default/g, default/h, default/e and 1 more, which are less fulfilled"
    )
    world = world.carried_out(plan)
    assert set(world.sizes().values()) == {34, 28}
    assert allocate(world.pool()).resizes == ()


@pytest.mark.rule("TJ:V17")
def test_a_donor_names_three_of_its_receivers_and_counts_the_others():
    jobs = [job("A", 2, 60, 60, rebalances=True), *(job(name, 2, 60, 2, rebalances=True) for name in "bcdef")]
    gave = allocate(World([node(cpu=70)], jobs).pool()).resizes[0]
    assert gave.message == ("ScaledDown 60→13 for default/b, default/c, default/d and 2 more, which are less fulfilled")


@pytest.mark.rule("TJ:V17")
def test_several_small_instances_are_released_for_a_large_one():
    small, large = job("A", 0, 10, 10, rebalances=True), job("B", 0, 5, 0, cpu=2, rebalances=True)
    world = World([node(cpu=10)], [small, large])
    plan = allocate(world.pool())
    assert resizes_of(plan) == {"A": -4, "B": 2}, "one more, and who gave would be behind"
    assert [(one.before, one.after) for one in plan.resizes] == [(10, 6), (0, 2)]


@pytest.mark.rule("TJ:V17")
def test_a_job_that_can_never_be_served_does_not_stop_rebalancing_of_others():
    jobs = [job("A", 2, 20, 20, rebalances=True), job("B", 2, 20, 2, rebalances=True), job("C", 1, 1, 1, cpu=1000)]
    assert resizes_of(allocate(World([node(cpu=22)], jobs).pool())) == {"A": -8, "B": 8}


@pytest.mark.rule("TJ:V17")
def test_nothing_moves_while_pods_wait_that_would_be_quicker():
    jobs = [job("A", 2, 20, 20, rebalances=True), job("B", 2, 20, 2, rebalances=True), job("C", 20, 20, 20, cpu=1)]
    assert allocate(World([node(cpu=22)], jobs).pool()).resizes == ()


@pytest.mark.rule("TJ:V17")
@pytest.mark.parametrize("who", ["A", "B"])
def test_nothing_moves_in_a_cool_down(who):
    jobs = [job("A", 2, 20, 20, rebalances=True), job("B", 2, 20, 2, rebalances=True)]
    world = World([node(cpu=22)], jobs).changed(**{who: {"may_shrink": False, "may_grow": False}})
    plan = allocate(world.pool())
    assert plan.resizes == ()
    assert [(one.reason) for one in plan.waiting] == [COOLING_DOWN if who == "B" else INSUFFICIENT]


@pytest.mark.rule("TJ:V17")
def test_nothing_moves_within_the_gap():
    jobs = [job("A", 2, 20, 14, rebalances=True), job("B", 2, 20, 11, rebalances=True)]
    world = World([node(cpu=25)], jobs, options=AllocationOptions(rebalance_gap=Fraction(1, 3)))
    assert allocate(world.pool()).resizes == ()
