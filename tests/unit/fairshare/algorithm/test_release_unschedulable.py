"""Instances above the floor that find no node are released: no pod is pending for ever (SC:S25)."""

from dataclasses import replace

import pytest

from raytide.api.sharing_record import INSUFFICIENT_CAPACITY, REBALANCED
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.algorithm.model import ClusterSnapshot
from support.elastic_builders import World, companion, external_pod, id_of, job, node, quota, resizes_of, shape

pytestmark = pytest.mark.rule("SC:S25")


def starving(world: World, **long: int) -> ClusterSnapshot:
    """The pool in which so many of a job's pods have had no node for long."""
    pool = world.pool()
    known = (replace(one, unplaced_for_long=long.get(one.id.name, 0)) for one in pool.participants)
    return replace(pool, participants=tuple(known))


def test_what_found_no_node_for_long_is_taken_back_with_its_reason():
    (resize,) = allocate(starving(World([node(cpu=8)], [job("a", 2, 20, 12)]), a=4)).resizes
    assert (resize.before, resize.after, resize.reason, resize.is_released) == (12, 8, INSUFFICIENT_CAPACITY, True)
    assert resize.message == "ScaledDown 12→8: 4 of its pods had no node for 20 s"


@pytest.mark.parametrize(
    ("more", "cpu", "long", "taken"),
    [
        pytest.param({}, 8, 0, 0, id="not yet after a moment"),
        pytest.param({}, 8, 3, -3, id="those that were made a moment ago may still wait"),
        pytest.param({"floor": 10}, 8, 4, -2, id="never below the minimum"),
        pytest.param({"floor": 12}, 8, 4, 0, id="not the minimum itself"),
        pytest.param({"step": 4, "floor": 0}, 9, 3, -4, id="down to a multiple of the step"),
        pytest.param({"sizes": (2, 6, 12)}, 8, 4, -6, id="down to a size of the list"),
        pytest.param({"is_scaling_enabled": False}, 8, 4, 0, id="not if scaling is disabled"),
        pytest.param(
            {"may_shrink": False, "may_grow": False},
            8,
            4,
            -4,
            id="in a cooldown too: only pending trainers are released",
        ),
    ],
)
def test_how_much_is_taken_back(more, cpu, long, taken):
    world = World([node(cpu=cpu)], [job("a", 2, 20, 12)])
    pool = starving(world, a=long)
    pool = replace(pool, participants=tuple(replace(one, **more) for one in pool.participants))
    assert resizes_of(allocate(pool)) == ({"a": taken} if taken else {})


def test_pods_that_fit_by_now_are_left_to_the_scheduler():
    """kube-scheduler retries soon; if anything else keeps the pods pending, growth would only recreate them."""
    world = World([node(cpu=8)], [job("a", 2, 20, 12)])
    bigger = replace(starving(world, a=4), nodes=(node("node-1", cpu=12, used={"cpu": 8000}),))
    assert allocate(bigger).resizes == ()


def test_companions_are_released_with_their_instances():
    world = World([node(cpu=8)], [job("a", 2, 20, 12, cpu=0.5, companion=companion(2, 1, 9, cpu=0.5))])
    (resize,) = allocate(starving(world, a=2)).resizes
    assert (resize.after, resize.companions) == (10, (6, 5))


def test_after_unschedulable_pods_are_released_no_job_is_resized_again():
    world = World([node(cpu=12)], [job("a", 2, 20, 12), job("b", 2, 20, 4)])
    world.jobs[id_of("a")].trainers = ["node-1"] * 8 + [""] * 4
    world.jobs[id_of("b")].trainers = ["node-1"] * 4
    plan = allocate(starving(world, a=4))
    assert resizes_of(plan) == {"a": -4}
    assert allocate(world.carried_out(plan).pool()).resizes == ()


# --- behind pods of a higher priority ----------------------------------------------------------------------------------


def behind(world: World, *external_pods, **more) -> ClusterSnapshot:
    """The pool in which those pods wait for a node, for a short time only."""
    pool = replace(world.pool(), external_pods=external_pods)
    return replace(pool, participants=tuple(replace(one, **more) for one in pool.participants))


def test_trainers_behind_pods_of_higher_priority_are_released_at_once():
    """kube-scheduler evicted four of twelve for them; recreated, the four would only be pending."""
    pool = behind(World([node(cpu=8)], [job("a", 2, 20, 12)]), external_pod(count=3, priority=1, name="shop/web-0"))
    (resize,) = allocate(pool).resizes
    assert (resize.before, resize.after, resize.reason) == (12, 8, INSUFFICIENT_CAPACITY)
    assert resize.full_message == (
        "ScaledDown 12→8: no capacity is left for more of its pods after shop/web-0, which has a higher priority and no node"
    )


@pytest.mark.parametrize(
    ("first", "more", "taken"),
    [
        pytest.param(external_pod(priority=0), {}, 0, id="pods of equal priority: trainers get the usual delay"),
        pytest.param(external_pod(cpu=9, priority=1), {}, 0, id="a pod that no node can hold releases no trainer"),
        pytest.param(external_pod(cpu=8, priority=1), {}, -4, id="a large pod blocks all of them"),
        pytest.param(external_pod(priority=1), {"floor": 10}, -2, id="never below the minimum"),
        pytest.param(external_pod(priority=1), {"step": 4, "floor": 0}, -4, id="down to a multiple of the step"),
        pytest.param(
            external_pod(priority=1),
            {"may_shrink": False},
            -4,
            id="in a cooldown too: only pending trainers are released",
        ),
        pytest.param(external_pod(priority=1), {"is_scaling_enabled": False}, 0, id="not if scaling is disabled"),
        pytest.param(
            external_pod(priority=1), {"pods_to_create": 4}, -4, id="trainers that are not created yet are released too"
        ),
        pytest.param(
            external_pod(priority=1), {"pods_to_create": 4}, -4, id="pods that are not made yet need not be made"
        ),
    ],
)
def test_pods_ahead_that_release_trainers(first, more, taken):
    pool = behind(World([node(cpu=8)], [job("a", 2, 20, 12)]), first, **more)
    assert resizes_of(allocate(pool)) == ({"a": taken} if taken else {})


@pytest.mark.parametrize(("count", "taken"), [(3, 0), (5, 0), (6, -4)])
def test_trainers_are_released_only_if_the_pods_ahead_exceed_the_free_capacity(count, taken):
    """Five CPUs are free: up to five pods will be bound in a moment, and pending trainers get the usual delay."""
    pool = behind(World([node(cpu=8)], [job("a", 2, 20, 12)]), external_pod(count=count, priority=1))
    roomy = replace(pool, nodes=(node("node-1", cpu=13, used={"cpu": 8000}),))
    assert resizes_of(allocate(roomy)) == ({"a": taken} if taken else {})


def test_pods_ahead_that_wait_for_other_nodes_release_no_trainers():
    """A GPU pod waits for a GPU node; trainers that may not run there do not wait behind it."""
    nodes = [node("cpu-1", cpu=8, labels={"kind": "cpu"}), node("gpu-1", cpu=8, gpu=1, labels={"kind": "gpu"})]
    trainers = job("a", 2, 20, 12, shape=shape(1, node_selector=(("kind", "cpu"),)))
    waits = replace(external_pod(gpu=1, count=2, priority=1), shape=shape(1, gpu=1, node_selector=(("kind", "gpu"),)))
    assert allocate(behind(World(nodes, [trainers]), waits)).resizes == ()


def test_what_a_quota_refuses_waits_for_the_quota():
    """Otherwise it would be given up one by one, pass by pass: each one less is one less that the quota refuses."""
    pool = behind(World([node(cpu=8)], [job("a", 2, 20, 12)]), external_pod(count=3, priority=1), pods_to_create=4)
    assert allocate(replace(pool, quotas=(quota(cpu=-3000),))).resizes == ()


def test_capacity_of_released_companions_goes_to_companions_of_the_same_job_first():
    """With three of the four pending trainers two parameter servers are removed, and one trainer fits then."""
    world = World([node(cpu=8)], [job("a", 1, 8, 8, companion=companion(2, 1, 4))])
    world.jobs[id_of("a")].companions, world.jobs[id_of("a")].trainers = ["node-1"] * 4, ["node-1"] * 4 + [""] * 4
    first = external_pod(8, priority=1)
    plan = allocate(behind(world, first))
    assert resizes_of(plan) == {"a": -3}
    assert allocate(behind(world.carried_out(plan), first)).resizes == ()


def test_capacity_released_by_a_step_is_offered_to_all_waiting_trainers():
    """One of the four removed trainers has no node; the pending trainer of the other job gets the capacity of the rest."""
    world = World([node(cpu=14)], [job("a", 0, 12, 12, step=4), job("b", 2, 20, 4, rebalances=False)])
    world.jobs[id_of("a")].trainers, world.jobs[id_of("b")].trainers = ["node-1"] * 11 + [""], ["node-1"] * 3 + [""]
    plan = allocate(behind(world, external_pod(14, priority=1)))
    assert [(one.id.name, one.before, one.after) for one in plan.resizes if one.after < one.before] == [("a", 12, 8)]


def test_a_shrink_to_the_maximum_and_for_missing_capacity_has_both_reasons():
    (resize,) = allocate(behind(World([node(cpu=6)], [job("a", 2, 10, 12)]), external_pod(count=2, priority=1))).resizes
    assert resize.full_message == (
        "ScaledDown 12→6: its maximum is 10; "
        "no capacity is left for more of its pods after web/pod, which has a higher priority and no node"
    )


@pytest.mark.rule("FD:SH-B12")
def test_a_maximum_that_is_no_allowed_size_is_not_given_as_the_reason():
    (resize,) = allocate(World([node(cpu=20)], [job("a", 2, 9, 9, step=4)]).pool()).resizes
    assert resize.message == "ScaledDown 9→6: 6 is the largest allowed size up to its maximum of 9"


def test_carried_out_it_is_the_end_of_it():
    world = World([node(cpu=8)], [job("a", 2, 20, 12)])
    pool = behind(world, external_pod(count=3, priority=1))
    after = behind(world.carried_out(allocate(pool)), external_pod(count=3, priority=1))
    assert allocate(after).resizes == ()


def test_a_job_that_also_gives_running_trainers_is_rebalanced():
    """Otherwise a resize that ends running trainers would say that its pods had no node."""
    jobs = [job("b", 1, 20, 2, rebalances=True), job("a", 2, 20, 8, rebalances=True)]
    resizes = {
        one.id.name: one
        for one in allocate(starving(World([node(cpu=8)], jobs), a=2)).resizes
        if one.after < one.before
    }
    assert (resizes["a"].before, resizes["a"].reason, resizes["a"].for_id) == (8, REBALANCED, id_of("b"))
    assert resizes["a"].after < 6
    assert resizes["a"].message == (
        "ScaledDown 8→4 for default/b, which is less fulfilled; 2 of its pods had no node for 20 s"
    )
