"""Which job gets the capacity of terminating pods, and that no donor shrinks twice for it."""

from dataclasses import replace

import pytest

from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.algorithm.model import COOLING_DOWN, FRAGMENTED, INSUFFICIENT, INSUFFICIENT_GPU
from support.elastic_builders import (
    World,
    companion,
    external_pod,
    id_of,
    job,
    master,
    node,
    resizes_of,
    shape,
    waiting_of,
)

pytestmark = pytest.mark.rule("TJ:4")


def in_between(world: World) -> World:
    """After a plan: removed pods are terminating and still exist."""
    return world.resized(allocate(world.pool()), only_released=True, is_graceful=True)


def reasons_of(world: World) -> dict[str, str]:
    return {one.id.name: one.reason for one in allocate(world.pool()).waiting}


@pytest.mark.parametrize("priority", [0, 7], ids="pods of other workloads of priority {}".format)
def test_external_pods_do_not_hold_what_a_donor_leaves_to_a_claimant(priority):
    world = World([node(cpu=2)], [job("donor", 0, 2, 2), job("claimant", 1, 1, 1)])
    world.external_pods = (external_pod(1, count=2, priority=priority),)
    assert resizes_of(allocate(world.pool())) == {"donor": -1}
    assert resizes_of(allocate(in_between(world).pool())) == {}, "the donor pays once"


def test_a_surplus_pod_does_not_hold_what_a_donor_leaves_to_a_claimant():
    world = World([node(cpu=2)], [job("donor", 1, 2, 2), job("claimant", 1, 1, 0, is_gang=True)])
    world = in_between(world)
    world.jobs[id_of("other")] = World([], [job("other", 0, 2, 1)]).jobs[id_of("other")]
    plan = allocate(world.pool())
    assert resizes_of(plan) == {"claimant": 1}
    assert not plan.resizes[0].is_released


def test_a_part_of_a_floor_does_not_hold_what_a_whole_one_needs():
    world = in_between(World([node(cpu=2)], [job("donor", 1, 2, 2), job("claimant", 1, 1, 1)]))
    world.jobs[id_of("huge")] = World([], [job("huge", 9, 9, 9, priority=5)]).jobs[id_of("huge")]
    plan = allocate(world.pool())
    assert (resizes_of(plan), waiting_of(plan)) == ({}, {"huge": INSUFFICIENT})


def test_what_claims_leave_over_is_for_external_pods_before_growth():
    grower = job("grower", 1, 9, 1, uses_limits=False)
    world = World([node(cpu=3)], [grower, job("leaver", 0, 2, 2)]).changed(leaver={"ceiling": 0})
    world = in_between(world)
    assert resizes_of(allocate(world.pool())) == {"grower": 2}
    world.external_pods = (external_pod(1),)
    assert resizes_of(allocate(world.pool())) == {"grower": 1}


@pytest.mark.rule("TJ:D5")
def test_pods_that_fit_no_node_do_not_keep_other_jobs_from_growing():
    """They exist because a job without a gang starts before capacity is known to be free; limits count them as all pods."""
    world = World([node(cpu=4)], [job("possible", 1, 4, 1), job("impossible", 1, 1, 1, cpu=1000)])
    assert resizes_of(allocate(world.pool())) == {"possible": 3}


@pytest.mark.rule("TJ:7.8")
def test_gpus_are_named_where_there_are_too_few_for_all():
    world = World([node(cpu=32, gpu=3)], [job("new", 4, 4, 0, gpu=1)])
    assert reasons_of(world) == {"new": INSUFFICIENT_GPU}


@pytest.mark.rule("TJ:7.8")
def test_enough_gpus_on_too_many_nodes_are_fragmented():
    world = World([node(name, cpu=32, gpu=3) for name in ("a", "b")], [job("new", 3, 3, 0, gpu=2)])
    assert reasons_of(world) == {"new": FRAGMENTED}


@pytest.mark.rule("TJ:7.8", "TJ:7.10")
@pytest.mark.parametrize(
    ("rich", "reason"),
    [
        pytest.param(6, COOLING_DOWN, id="a job with a higher score will shrink"),
        pytest.param(3, INSUFFICIENT, id="no job is ahead by a step"),
    ],
)
def test_a_job_in_cooldown_reports_it_only_if_it_waits_for_nothing_else(rich, reason):
    jobs = [job("rich", 1, 9, rich, rebalances=True), job("rests", 1, 9, 2, may_grow=False, rebalances=True)]
    world = World([node(cpu=rich + 2)], jobs)
    plan = allocate(world.pool())
    assert plan.resizes == ()
    assert {one.id.name: one.reason for one in plan.waiting}["rests"] == reason


def test_only_the_companion_with_the_highest_index_frees_capacity():
    """The highest index is deleted: counting the node of the other one would shrink and grow the job for ever."""
    rich = job("rich", 1, 3, 3, cpu=0.5, companion=companion(2, 1, 3, cpu=0.5))
    world = World([node("a", cpu=9, pods=2), node("b", cpu=9)], [rich])
    rich_pods = world.jobs[id_of("rich")]
    rich_pods.trainers, rich_pods.companions = ["b", "b", "b"], ["a", "b"]
    world.add(job("holder", 1, 1, 1, shape=shape(1, node_selector=())))
    world.jobs[id_of("holder")].trainers = ["a"]
    world.nodes = (replace(world.nodes[0], labels={"only": "here"}), world.nodes[1])
    world.add(job("claimant", 1, 1, 1, shape=shape(1, node_selector=(("only", "here"),))))
    plan = allocate(world.pool())
    assert (resizes_of(plan), waiting_of(plan)) == ({}, {"claimant": INSUFFICIENT})


def test_a_donor_in_cooldown_releases_nothing_to_a_less_fulfilled_job():
    jobs = [job("a", 1, 9, 8, rebalances=True), job("b", 1, 9, 2, rebalances=True)]
    pool = World([node(cpu=10)], jobs).pool()
    resting = replace(pool, participants=tuple(replace(one, may_shrink=False) for one in pool.participants))
    assert resizes_of(allocate(pool)) == {"a": -3, "b": 3}
    assert allocate(resting).resizes == ()


def settling(world: World, *names: str):
    """The pool while the last resizes of these are under way."""
    pool = world.pool()
    under_way = [
        replace(one, is_settled=False, may_grow=False) if one.id.name in names else one for one in pool.participants
    ]
    return replace(pool, participants=tuple(under_way))


@pytest.mark.rule("TJ:3.17")
def test_the_only_settled_job_takes_no_more_than_its_share():
    world = World([node(cpu=10)], [job("a", 1, 9, 1), job("b", 1, 9, 1)])
    assert resizes_of(allocate(world.pool())) == {"a": 4, "b": 4}
    assert resizes_of(allocate(settling(world, "b"))) == {"a": 4}, "the rest is kept for b"


@pytest.mark.rule("TJ:7.10")
@pytest.mark.parametrize(("grows_soon", "size"), [(True, 4), (False, 8)])
def test_capacity_is_kept_for_the_share_of_a_job_in_a_cooldown_that_ends_soon(grows_soon, size):
    pool = World([node(cpu=10)], [job("a", 1, 9, 1), job("b", 1, 9, 1)]).pool()
    a, b = pool.participants
    resting = replace(b, may_grow=False, grows_soon=grows_soon)
    assert resizes_of(allocate(replace(pool, participants=(a, resting)))) == {"a": size}


@pytest.mark.rule("TJ:3.17")
@pytest.mark.parametrize("under_way", ["rich", "poor"])
def test_no_job_releases_to_a_less_fulfilled_one_while_either_is_settling(under_way):
    world = World([node(cpu=10)], [job("rich", 1, 9, 8, rebalances=True), job("poor", 1, 9, 2, rebalances=True)])
    assert resizes_of(allocate(world.pool())) == {"rich": -3, "poor": 3}
    assert allocate(settling(world, under_way)).resizes == ()


@pytest.mark.rule("TJ:3.7")
def test_a_job_that_shrinks_for_its_own_master_names_no_receiver():
    world = World([node(cpu=4)], [job("a", 1, 9, 4, core=(master(),))])
    pods = world.jobs[id_of("a")]
    pods.trainers, pods.cores = ["node-1"] * 4, {"master": [""]}
    (resize,) = allocate(world.pool()).resizes
    assert (resize.before, resize.after, resize.for_id) == (4, 3, None)
    assert resize.message == "ScaledDown 4→3 for its own pods that have no node"
