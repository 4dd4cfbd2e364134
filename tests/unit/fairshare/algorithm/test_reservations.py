"""Capacity reserved for the first job in line while it waits for its minimum, and what other jobs still get."""

from dataclasses import replace

import pytest

from raytide.api.pod_requirements import CPU
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.algorithm.model import (
    CAPACITY_RESERVED,
    HIGHER_PRIORITY,
    INSUFFICIENT_GPU,
    UNSATISFIABLE,
    AllocationOptions,
)
from support.elastic_builders import (
    World,
    amounts,
    companion,
    external_pod,
    id_of,
    job,
    node,
    resizes_of,
    shape,
    waiting_of,
)

pytestmark = pytest.mark.rule("FD:SH-B9", "TJ:3.10", "D24")

OLD, YOUNG, YOUNGEST = (f"2026-01-01T00:00:0{n}Z" for n in range(3))


def gang(name: str, count: int, *, born: str = YOUNG, **more):
    """Trainers with one GPU each that start together or not at all."""
    return job(name, count, count, 0, gpu=1, created_at=born, **more)


def crowded(*others, **more) -> World:
    """Eight GPUs, of which four are in use for a long time, and a gang of eight that comes first."""
    nodes = [node(name, cpu=64, gpu=4) for name in ("a", "b")]
    running = job("running", 4, 4, 4, gpu=1)
    return World(nodes, [running, gang("large", 8, born=OLD, priority=1000, **more), *others])


def message_to(plan, name: str) -> str:
    return next(one.message for one in plan.waiting if one.id.name == name)


def reserving(plan) -> set[str]:
    return {one.id.name for one in plan.waiting if one.is_reserving}


def test_younger_gangs_do_not_start_on_what_the_first_in_line_needs():
    """Four of one GPU each were admitted, again and again, and the gang of eight never was."""
    plan = allocate(crowded(*(gang(f"small-{n}", 1) for n in range(4))).pool())
    assert resizes_of(plan) == {}
    assert waiting_of(plan) == {"large": INSUFFICIENT_GPU, **{f"small-{n}": CAPACITY_RESERVED for n in range(4)}}
    assert reserving(plan) == {"large"}
    assert message_to(plan, "small-0") == (
        "needs 1 x (1 nvidia.com/gpu and 1 cpu) to reach its minimum of 1, reserved for default/large (first in line)"
    )


def test_the_first_in_line_starts_as_soon_as_there_is_enough():
    world = crowded(*(gang(f"small-{n}", 1) for n in range(4)))
    del world.jobs[id_of("running")]
    assert resizes_of(allocate(world.pool())) == {"large": 8}


def test_a_lapsed_reservation_lets_those_behind_it_start():
    plan = allocate(crowded(gang("small", 1), is_reservation_lapsed=True).pool())
    assert resizes_of(plan) == {"small": 1}
    assert reserving(plan) == set()


def test_then_the_next_in_line_has_one():
    others = gang("second", 6), gang("third", 1, born=YOUNGEST)
    plan = allocate(crowded(*others, is_reservation_lapsed=True).pool())
    assert resizes_of(plan) == {}
    assert reserving(plan) == {"second"}


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(gang("large", 9, born=OLD), id="more than the cluster has"),
        pytest.param(job("large", 1, 1, 0, gpu=5, created_at=OLD), id="more than any node has"),
        pytest.param(
            gang("large", 8, born=OLD, is_forbidden=True, pods_to_create=8), id="pods that the API server rejects"
        ),
    ],
)
def test_what_cannot_start_reserves_nothing(first):
    world = crowded(gang("small", 1))
    del world.jobs[id_of("large")]
    world.add(first)
    assert resizes_of(allocate(world.pool())) == {"small": 1}


def test_pods_of_other_workloads_are_there_to_stay():
    """What they use does not become free when jobs end."""
    nodes = [node("a", cpu=64, gpu=8, used={"nvidia.com/gpu": 4})]
    plan = allocate(World(nodes, [gang("large", 8, born=OLD), gang("small", 1)]).pool())
    assert resizes_of(plan) == {"small": 1}


def test_resources_that_the_first_in_line_does_not_need_are_free():
    """Without GPUs, as many as its CPUs leave: 2 x 64 less the four that run and its own eight."""
    plan = allocate(crowded(job("cpu", 116, 116, 0, is_gang=True), job("more", 1, 1, 0, is_gang=True)).pool())
    assert resizes_of(plan) == {"cpu": 116}
    assert waiting_of(plan)["more"] == CAPACITY_RESERVED


def test_another_pool_has_its_own_line():
    """Each pool has four GPUs, of which two are in use."""
    nodes = [node(name, cpu=64, gpu=4, labels={"pool": name}) for name in ("east", "west")]
    jobs = []
    for pool in ("east", "west"):
        where = shape(1, gpu=1, node_selector=(("pool", pool),))
        jobs += [job(f"running-{pool}", 2, 2, 2, shape=where), job(f"small-{pool}", 1, 1, 0, shape=where, is_gang=True)]
    east = shape(1, gpu=1, node_selector=(("pool", "east"),))
    large = job("large", 4, 4, 0, shape=east, is_gang=True, created_at="2025-01-01T00:00:00Z")
    assert resizes_of(allocate(World(nodes, [*jobs, large]).pool())) == {"small-west": 1}


def test_growth_uses_what_is_reserved_until_the_first_in_line_can_start():
    """What is above a minimum is reclaimed then, so that no GPU is idle meanwhile."""
    world = crowded(job("elastic", 0, 8, 0, gpu=1, is_gang=False, rebalances=True, priority=0))
    grown = world.carried_out(allocate(world.pool()))
    assert grown.sizes()["elastic"] == 4
    del grown.jobs[id_of("running")]
    assert resizes_of(allocate(grown.pool())) == {"elastic": -4, "large": 8}


def test_pods_that_exist_are_placed_by_kube_scheduler_anyway():
    world = crowded()
    world.external_pods = (external_pod(1, gpu=1, count=2, is_unschedulable=True),)
    assert resizes_of(allocate(world.pool())) == {}


def test_a_job_whose_pods_get_what_the_first_in_line_leaves_grows_in_the_same_plan():
    """Its pod exists, so kube-scheduler binds it to what is left of the 3 CPUs that the oldest job frees; the rest is growth."""
    donor = job("donor", 2, 3, 3, shape=shape(3))
    oldest = job("oldest", 1, 1, 0, shape=shape(2), is_gang=True, created_at=OLD)
    first = job("first", 1, 1, 1, shape=shape(2), created_at=YOUNG)
    small = job("small", 1, 2, 1, shape=shape(0.5), created_at=YOUNGEST, uses_limits=False)
    world = World([node(cpu=10, used=amounts(cpu=1))], [donor, oldest, first, small])
    plan = allocate(world.pool())
    assert resizes_of(plan) == {"donor": -1, "oldest": 1, "small": 1}
    assert reserving(plan) == {"first"}
    assert allocate(world.carried_out(plan).pool()).resizes == ()


@pytest.mark.rule("TJ:3.15")
def test_what_a_reservation_withholds_adds_nothing_to_the_load_limit():
    """Two gangs are tried and placed nowhere; the load is above its limit, and stays as it is."""
    running = job("running", 3, 5, 3, shape=shape(0.5), uses_limits=False)
    waiting = [
        job(name, 1, 3, 0, shape=shape(3), is_gang=True, companion=companion(2, 1, 3, cpu=0.5)) for name in ("a", "b")
    ]
    world = World(
        [node(cpu=6, used=amounts(cpu=2.5))], [running, *waiting], options=AllocationOptions(max_load_percent={CPU: 10})
    )
    assert resizes_of(allocate(world.pool())) == {}


def test_a_higher_priority_comes_before_an_earlier_creation():
    plan = allocate(crowded(gang("urgent", 4, priority=2000)).pool())
    assert resizes_of(plan) == {"urgent": 4}


def test_one_that_waits_for_a_higher_priority_to_shrink_has_a_reservation():
    nodes = [node("a", cpu=64, gpu=8)]
    high = job("high", 1, 6, 6, gpu=1, priority=2000)
    plan = allocate(World(nodes, [high, gang("large", 4, born=OLD), gang("small", 1)]).pool())
    assert waiting_of(plan) == {"large": HIGHER_PRIORITY, "small": CAPACITY_RESERVED}


def test_an_unsatisfiable_job_behind_a_reservation_is_reported_as_unsatisfiable():
    plan = allocate(crowded(job("wide", 1, 1, 0, gpu=5, created_at=YOUNG)).pool())
    assert waiting_of(plan)["wide"] == UNSATISFIABLE


def test_a_reservation_of_another_namespace_is_reported_without_a_name():
    plan = allocate(crowded(gang("small", 1, namespace="elsewhere")).pool())
    (said,) = (one for one in plan.waiting if one.id.name == "small")
    assert "reserved for a job of another namespace (first in line)" in said.message
    assert "default/large" in said.full_message


def test_the_plan_does_not_depend_on_the_order_of_the_input():
    pool = crowded(*(gang(f"small-{n}", 1) for n in range(4))).pool()
    assert allocate(replace(pool, participants=pool.participants[::-1], nodes=pool.nodes[::-1])) == allocate(pool)


def test_a_reservation_stays_on_its_nodes_while_another_node_becomes_nearly_free():
    """It moved to the node where less was lacking, and a gang behind it took the node that it left."""
    nodes = [node("a", cpu=7), node("b", cpu=8)]
    world = World(nodes, [job("on-a", 1, 1, 1, cpu=5), job("on-b", 1, 1, 1, cpu=4), job("stays-on-b", 1, 1, 1, cpu=3)])
    world.add(job("large", 1, 1, 0, cpu=6, is_gang=True, created_at=OLD))
    plan = allocate(world.pool())
    assert [one.reserved_nodes for one in plan.waiting if one.id.name == "large"] == [("a",)]
    world = world.carried_out(plan)
    del world.jobs[id_of("on-b")]
    world.add(job("small", 1, 1, 0, cpu=2, is_gang=True))
    world = world.carried_out(allocate(world.pool()))
    assert world.jobs[id_of("small")].trainers == ["b"]
    del world.jobs[id_of("on-a")]
    assert resizes_of(allocate(world.pool())) == {"large": 1}


def test_a_reservation_moves_when_its_node_cannot_hold_the_pods_any_more():
    nodes = [node("a", cpu=7, used={"cpu": 2000}), node("b", cpu=8)]
    running = [job("on-b", 1, 1, 1, cpu=6)]
    large = job("large", 1, 1, 0, cpu=6, is_gang=True, created_at=OLD, reserved_nodes=("a", "gone"))
    plan = allocate(World(nodes, [*running, large]).pool())
    assert [one.reserved_nodes for one in plan.waiting if one.id.name == "large"] == [("b",)]


@pytest.mark.parametrize("others", [(), (job("impossible", 1, 1, 0, cpu=50, is_gang=True, priority=1000),)])
def test_nothing_is_reserved_for_a_job_that_pending_pods_of_other_workloads_leave_no_capacity_for(others):
    """A job that no node can hold was looked at before these pods, and made the cluster seem large enough for the next one."""
    large, small = (
        job(name, 1, 1, 0, cpu=cpu, is_gang=True, priority=cpu) for name, cpu in (("large", 3), ("small", 1))
    )
    world = World([node("a", cpu=4)], [large, small, *others])
    world.external_pods = (external_pod(1, count=2, priority=9, is_unschedulable=True),)
    plan = allocate(world.pool())
    assert resizes_of(plan) == {"small": 1}
    assert reserving(plan) == set()
