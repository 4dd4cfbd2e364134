"""When does evening out begin, how far does it go, and what does nobody give for it? Each resize changes a membership."""

from dataclasses import replace

import pytest

from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.algorithm.model import ClusterSnapshot
from support.elastic_builders import World, added, amounts, id_of, job, node, resizes_of, shape

pytestmark = pytest.mark.rule("TJ:3.16")


def jobs_of(**sizes: int):
    """Jobs of 2 to 60; by default scores have to be a tenth apart, which is 5.8 trainers."""
    return [job(name, 2, 60, size, rebalances=True) for name, size in sizes.items()]


def full(**sizes: int) -> World:
    return World([node(cpu=sum(sizes.values()), pods=500)], jobs_of(**sizes))


def fresh(pool: ClusterSnapshot, *names: str) -> ClusterSnapshot:
    return replace(pool, participants=tuple(replace(one, is_fresh=one.id.name in names) for one in pool.participants))


@pytest.mark.parametrize(
    ("sizes", "moved"),
    [
        pytest.param({"a": 13, "b": 8}, {}, id="within a tenth nobody moves"),
        pytest.param({"a": 14, "b": 8}, {"a": -3, "b": 3}, id="beyond it they meet"),
        pytest.param({"a": 16, "b": 12, "c": 8}, {"a": -4, "c": 4}, id="who is in the middle stays"),
        pytest.param({"a": 18, "b": 13, "c": 8}, {"a": -5, "c": 5}, id="a giver begins for who is far behind alone"),
        pytest.param({"a": 19, "b": 10, "c": 7}, {"a": -7, "b": 2, "c": 5}, id="and then gives to all"),
    ],
)
def test_evening_out_begins_late_and_goes_all_the_way(sizes, moved):
    world = full(**sizes)
    plan = allocate(world.pool())
    assert resizes_of(plan) == moved
    assert allocate(world.carried_out(plan).pool()).resizes == ()


@pytest.mark.rule("SC:S25")
def test_who_was_resized_lately_corrects_that_to_the_last_step():
    pool = full(a=22, b=20, c=18).pool()
    assert resizes_of(allocate(pool)) == {}
    assert resizes_of(allocate(fresh(pool, "a"))) == {"a": -2, "c": 2}
    assert resizes_of(allocate(fresh(pool, "c"))) == {}, "it is the giver who goes on"


def test_a_single_step_may_be_more_than_the_gap():
    world = World([node(cpu=4)], [job("a", 1, 3, 3, rebalances=True), job("b", 1, 3, 1, rebalances=True)])
    assert resizes_of(allocate(world.pool())) == {"a": -1, "b": 1}


def test_only_those_count_who_could_give_each_other_something():
    here, there = (("zone", "here"),), (("zone", "there"),)
    world = World(
        [node("here", cpu=21, labels={"zone": "here"}), node("there", cpu=2, labels={"zone": "there"})],
        [
            job("a", 2, 60, 13, rebalances=True, shape=shape(1, node_selector=here)),
            job("b", 2, 60, 8, rebalances=True, shape=shape(1, node_selector=here)),
            job("poor", 2, 60, 2, rebalances=True, shape=shape(1, node_selector=there)),
        ],
    )
    assert allocate(world.pool()).resizes == ()


def placed(world: World, **nodes: str) -> World:
    for name, where in nodes.items():
        world.jobs[id_of(name)].trainers = list(where)
    return world


def test_nobody_gives_what_it_would_take_back():
    """Small ones on many nodes would all have to go before one large one fits, and most of them would come back."""
    spots = [node(name, cpu=2) for name in "abcd"]
    small, large = job("small", 0, 6, 6, rebalances=True), job("large", 0, 4, 1, cpu=2, rebalances=True)
    scattered = placed(World(spots, [small, large]), small="abcabc", large="d")
    assert allocate(scattered.pool()).resizes == ()
    together = placed(World(spots, [small, large]), small="aabbcc", large="d")
    assert resizes_of(allocate(together.pool())) == {"small": -2, "large": 1}


def test_room_that_was_there_before_keeps_nobody_from_giving():
    """The small one is as large as it may be, and leaves room elsewhere for one of its own but for none of the others."""
    spots = [*(node(name, cpu=2) for name in "abcd"), node("hole", cpu=1)]
    small, large = job("small", 0, 6, 6, rebalances=True), job("large", 0, 4, 1, cpu=2, rebalances=True)
    world = placed(World(spots, [small, large]), small="aabbcc", large="d")
    assert resizes_of(allocate(world.pool())) == {"small": -2, "large": 1}
    scattered = placed(World(spots, [small, large]), small="abcabc", large="d")
    assert allocate(scattered.pool()).resizes == ()
    moving = placed(World([*spots, node("more", cpu=1)], [small, large]), small="aabbcc", large="d")
    assert allocate(moving.pool()).resizes == (), "all of them would be back"


def test_what_one_step_frees_is_enough_for_several():
    large, small = job("large", 0, 4, 4, cpu=4, rebalances=True), job("small", 0, 16, 0, rebalances=True)
    world = World([node(name, cpu=4) for name in "abcd"], [large, small])
    assert resizes_of(allocate(world.pool())) == {"large": -2, "small": 8}


def test_nothing_is_given_while_room_is_about_to_be_free():
    """By limits the pods that leave still count, so nobody may grow into their room yet; it is theirs who are behind."""
    pool = full(a=20, b=2).pool()
    roomy = node("node-1", cpu=44, pods=500)
    assert resizes_of(allocate(pool)) == {"a": -9, "b": 9}
    leaving = {"cpu": 22_000}
    there = replace(
        pool.nodes[0], allocatable=roomy.allocatable, used=added(pool.nodes[0].used, leaving), leaving=leaving
    )
    assert resizes_of(allocate(replace(pool, nodes=(there,), charged={"cpu": 44_000}))) == {}


@pytest.mark.rule("TJ:3.8")
def test_for_a_minimum_those_give_who_do_not_take_it_back():
    """The small ones are better off, but three of them would have to go on three nodes for one that comes."""
    spots = [node(name, cpu=2) for name in "abcde"]
    small, large = job("small", 0, 6, 6), job("large", 0, 4, 2, cpu=2)
    world = placed(World(spots, [small, large]), small="abcabc", large="de")
    world.add(job("new", 1, 1, 0, cpu=2, is_gang=True))
    assert resizes_of(allocate(world.pool())) == {"large": -1, "new": 1}
    alone = placed(World(spots, [small, large]).changed(large={"floor": 2}), small="abcabc", large="de")
    alone.add(job("new", 1, 1, 0, cpu=2, is_gang=True))
    assert resizes_of(allocate(alone.pool())) == {"small": -4, "new": 1}, "where nobody else can give, they do"


@pytest.mark.rule("TJ:7.11")
def test_a_higher_priority_never_gives_so_that_a_lower_one_is_spared():
    small, large = job("small", 0, 6, 6), job("large", 0, 1, 1, cpu=2, priority=5)
    world = placed(World([node(name, cpu=2) for name in "abcd"], [small, large]), small="abcabc", large="d")
    world.add(job("new", 1, 1, 0, cpu=2, is_gang=True, priority=10))
    assert resizes_of(allocate(world.pool())) == {"small": -4, "new": 1}


def test_less_than_enough_that_leaves_keeps_nobody_from_evening_out():
    """Pods of others leave all the time, and some for ever; a resize under way is worth waiting for."""
    pool = World([node(cpu=21, pods=500, used=amounts(1, pods=1))], jobs_of(a=18, b=2)).pool()
    pool = replace(pool, nodes=(replace(pool.nodes[0], leaving=amounts(1, pods=1)),))
    assert resizes_of(allocate(pool)) == {"a": -8, "b": 8}
    moving = job("c", 0, 1, 0, priority=-1, is_settled=False, may_grow=False)
    assert resizes_of(allocate(replace(pool, participants=(*pool.participants, moving)))) == {}
