"""Rebalancing: when it starts, how far it goes, and what it never changes. Each resize changes a membership."""

from dataclasses import replace

import pytest

from raytide.api.pod_requirements import CPU
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.algorithm.model import AllocationOptions
from support.elastic_builders import World, added, amounts, id_of, job, node, resizes_of, shape

pytestmark = pytest.mark.rule("TJ:3.16")


def jobs_of(**sizes: int):
    """Jobs of 2 to 60; by default a receiver has to have less than four fifths of a donor's trainers above the minimum."""
    return [job(name, 2, 60, size, rebalances=True) for name, size in sizes.items()]


def full(**sizes: int) -> World:
    return World([node(cpu=sum(sizes.values()), pods=500)], jobs_of(**sizes))


@pytest.mark.rule("TJ:3.15")
@pytest.mark.parametrize("percent", [100, 90, 10])
def test_beyond_the_load_limit_a_receiver_gets_what_donors_give(percent):
    """Pods of other workloads, and minimums, may exceed the limit; without rebalancing new jobs would stay at their minimum."""
    world = full(a=22, b=14)
    world.options = AllocationOptions({CPU: percent})
    plan = allocate(world.pool())
    assert resizes_of(plan) == {"a": -3, "b": 3}
    assert allocate(world.carried_out(plan).pool()).resizes == ()


@pytest.mark.rule("TJ:3.15")
@pytest.mark.parametrize("used", [0, 6])
def test_no_trainer_ends_for_a_load_limit_that_is_exceeded_already(used):
    """Whether pods of other workloads exceed the limit or the jobs do: no job pays without another one growing."""
    there = node(cpu=36 + used, used=amounts(cpu=used), pods=500)
    for sizes in ({"a": 36}, {"a": 22, "b": 18}):
        world = World([there], jobs_of(**sizes), options=AllocationOptions({CPU: 50}))
        assert resizes_of(allocate(world.pool())) == {}


@pytest.mark.rule("TJ:3.15")
def test_what_a_large_donor_gives_beyond_the_load_limit_is_filled_again():
    """A trainer of 8 CPUs ends for eight of 1 CPU, and not for one of them."""
    large = job("large", 0, 8, 6, shape=shape(8), rebalances=True)
    small = job("small", 0, 64, 2, rebalances=True)
    world = World([node(cpu=64, pods=500)], [large, small], options=AllocationOptions({CPU: 50}))
    assert resizes_of(allocate(world.pool())) == {"large": -3, "small": 24}


@pytest.mark.rule("TJ:3.15")
@pytest.mark.parametrize("donor_uses_limits", [True, False], ids=["by limits", "by requests"])
def test_limits_beyond_the_capacity_do_not_stop_rebalancing(donor_uses_limits):
    """Their sum does not rise."""
    wanted = shape(1, limits={CPU: 4000})
    jobs = [job(name, 2, 60, size, shape=wanted, rebalances=True) for name, size in (("a", 22), ("b", 14))]
    world = World([node(cpu=36, pods=500)], jobs).changed(a={"uses_limits": donor_uses_limits})
    plan = allocate(world.pool())
    assert resizes_of(plan) == {"a": -3, "b": 3}
    assert allocate(world.carried_out(plan).pool()).resizes == ()


@pytest.mark.parametrize(
    ("sizes", "moved"),
    [
        pytest.param({"a": 22, "b": 18}, {}, id="within the gap no job moves"),
        pytest.param({"a": 22, "b": 14}, {"a": -3, "b": 3}, id="beyond it they come within the gap"),
        pytest.param({"a": 22, "b": 18, "c": 14}, {"a": -3, "c": 3}, id="a job in the middle stays"),
        pytest.param({"a": 22, "b": 17, "c": 14}, {"a": -3, "c": 3}, id="also one that is behind, but not far"),
        pytest.param({"a": 42, "b": 14, "c": 10}, {"a": -18, "b": 7, "c": 11}, id="all that are far behind receive"),
    ],
)
def test_rebalancing_starts_beyond_the_gap_and_ends_within_it(sizes, moved):
    world = full(**sizes)
    plan = allocate(world.pool())
    assert resizes_of(plan) == moved
    assert allocate(world.carried_out(plan).pool()).resizes == ()


def test_few_donors_give_for_one_receiver():
    """Within the gap it does not matter which of them gives, and each resize changes a membership."""
    world = full(a=20, b=20, c=20, d=20, e=14)
    assert resizes_of(allocate(world.pool())) == {"c": -1, "d": -2, "e": 3}


@pytest.mark.rule("SC:S25")
def test_free_capacity_goes_to_the_least_fulfilled_step_by_step():
    world = full(a=20, b=20, c=20, d=15)
    world.nodes = (*world.nodes, node("more", cpu=8))
    assert resizes_of(allocate(world.pool())) == {"a": 1, "b": 1, "c": 1, "d": 5}


@pytest.mark.rule("FD:TJ3-6")
def test_the_next_pass_does_not_undo_growth():
    """One that grew already was preferred beyond the gap, and gave a trainer back in the next pass."""
    world = World([node(cpu=8)], [job("a", 3, 8, 3, rebalances=True), job("b", 1, 4, 2, rebalances=True)])
    plan = allocate(world.pool())
    assert resizes_of(plan) == {"a": 2, "b": 1}
    assert allocate(world.carried_out(plan).pool()).resizes == ()


def test_a_single_step_may_be_more_than_the_gap():
    world = World([node(cpu=4)], [job("a", 1, 3, 3, rebalances=True), job("b", 1, 3, 1, rebalances=True)])
    assert resizes_of(allocate(world.pool())) == {"a": -1, "b": 1}


def test_only_jobs_that_share_nodes_are_compared_for_rebalancing():
    here, there = (("zone", "here"),), (("zone", "there"),)
    world = World(
        [node("here", cpu=24, labels={"zone": "here"}), node("there", cpu=2, labels={"zone": "there"})],
        [
            job("a", 2, 60, 13, rebalances=True, shape=shape(1, node_selector=here)),
            job("b", 2, 60, 11, rebalances=True, shape=shape(1, node_selector=here)),
            job("poor", 2, 60, 2, rebalances=True, shape=shape(1, node_selector=there)),
        ],
    )
    assert allocate(world.pool()).resizes == ()


def placed(world: World, **nodes: str) -> World:
    for name, where in nodes.items():
        world.jobs[id_of(name)].trainers = list(where)
    return world


@pytest.mark.rule("FD:SH-B3")
@pytest.mark.parametrize("where", ["aabbcc", "abcabc"], ids=["one after the other", "in turn"])
def test_one_large_costs_the_small_ones_of_one_node(where):
    """When victims went by index, those in turn would all have had to go, and none went."""
    spots = [node(name, cpu=2) for name in "abcd"]
    small, large = job("small", 0, 6, 6, rebalances=True), job("large", 0, 4, 1, cpu=2, rebalances=True)
    world = placed(World(spots, [small, large]), small=where, large="d")
    assert resizes_of(allocate(world.pool())) == {"small": -2, "large": 1}


@pytest.mark.parametrize(
    ("spots", "moved"),
    [
        pytest.param([node("hole", cpu=1)], {"small": -1, "large": 1}, id="capacity for one of the two"),
        pytest.param([node("hole", cpu=2)], {"small": -2, "large": 2}, id="capacity for a large one"),
    ],
)
def test_a_donor_takes_what_only_it_can_use_in_the_same_plan(spots, moved):
    """The small one is as large as it may be, so free capacity elsewhere was of no use to it."""
    small, large = job("small", 0, 6, 6, rebalances=True), job("large", 0, 4, 1, cpu=2, rebalances=True)
    world = placed(World([*(node(name, cpu=2) for name in "abcd"), *spots], [small, large]), small="aabbcc", large="d")
    plan = allocate(world.pool())
    assert resizes_of(plan) == moved
    assert [one.is_released for one in plan.resizes if one.id.name == "small"] in ([], [True], [True, False])
    assert allocate(world.carried_out(plan).pool()).resizes == ()


def test_what_one_step_frees_is_enough_for_several():
    large, small = job("large", 0, 4, 4, cpu=4, rebalances=True), job("small", 0, 16, 0, rebalances=True)
    world = World([node(name, cpu=4) for name in "abcd"], [large, small])
    assert resizes_of(allocate(world.pool())) == {"large": -2, "small": 8}


def test_no_donor_shrinks_while_terminating_pods_free_capacity():
    """Limits still count terminating pods, so no job may grow into their capacity yet; it is for the jobs that are behind."""
    pool = full(a=20, b=2).pool()
    roomy = node("node-1", cpu=44, pods=500)
    assert resizes_of(allocate(pool)) == {"a": -8, "b": 8}
    leaving = {"cpu": 22_000}
    there = replace(
        pool.nodes[0],
        allocatable=roomy.allocatable,
        used=added(pool.nodes[0].used, leaving),
        terminating=leaving,
        charged={"cpu": 44_000},
    )
    plan = allocate(replace(pool, nodes=(there,)))
    assert resizes_of(plan) == {"a": 2, "b": 20}, "and a gives nothing for what is about to be free"
    assert not any(one.is_released for one in plan.resizes)


@pytest.mark.rule("TJ:3.8")
def test_a_minimum_is_served_with_the_fewest_victims():
    """The job with small instances has the higher score, but would have to release two of them."""
    spots = [node(name, cpu=2) for name in "abcde"]
    small, large = job("small", 0, 6, 6), job("large", 0, 4, 2, cpu=2)
    world = placed(World(spots, [small, large]), small="abcabc", large="de")
    world.add(job("new", 1, 1, 0, cpu=2, is_gang=True))
    assert resizes_of(allocate(world.pool())) == {"large": -1, "new": 1}
    alone = placed(World(spots, [small, large]).changed(large={"floor": 2}), small="abcabc", large="de")
    alone.add(job("new", 1, 1, 0, cpu=2, is_gang=True))
    assert resizes_of(allocate(alone.pool())) == {"small": -2, "new": 1}, "where no other job can give, they do"


@pytest.mark.rule("TJ:7.11")
def test_a_higher_priority_never_gives_so_that_a_lower_one_is_spared():
    small, large = job("small", 0, 6, 6), job("large", 0, 1, 1, cpu=2, priority=5)
    world = placed(World([node(name, cpu=2) for name in "abcd"], [small, large]), small="abcabc", large="d")
    world.add(job("new", 1, 1, 0, cpu=2, is_gang=True, priority=10))
    assert resizes_of(allocate(world.pool())) == {"small": -2, "new": 1}


@pytest.mark.rule("FD:SH-B5")
def test_what_leaves_counts_as_free_and_stops_nothing():
    """One CPU is about to be free: it goes to the job that is behind, and the other one gives one less."""
    pool = World([node(cpu=21, pods=500, used=amounts(1, pods=1))], jobs_of(a=18, b=2)).pool()
    pool = replace(pool, nodes=(replace(pool.nodes[0], terminating=amounts(1, pods=1)),))
    assert resizes_of(allocate(pool)) == {"a": -7, "b": 8}
    moving = job("c", 0, 1, 0, priority=-1, is_settled=False, may_grow=False)
    assert resizes_of(allocate(replace(pool, participants=(*pool.participants, moving)))) == {"a": -7, "b": 8}
