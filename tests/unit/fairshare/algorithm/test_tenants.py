"""Tenants: nominal quota, borrowing limit and weight, in Kueue's meaning; without tenants nothing changes (TJ:7.13, D25)."""

from fractions import Fraction

import pytest

from raytide.api.sharing_record import GROWING
from raytide.api.tenants import Tenant
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.algorithm.model import QUOTA_EXCEEDED
from support.elastic_builders import World, amounts, job, node, resizes_of, waiting_of

pytestmark = pytest.mark.rule("TJ:7.13", "D25")


def tenant(name: str, *, nominal: float = 0, limit: int | None = None, weight: str = "1", **gpus: int) -> Tenant:
    borrowing_limit = {} if limit is None else {"cpu": limit * 1000}
    return Tenant(name, amounts(cpu=nominal, **gpus), borrowing_limit, Fraction(weight))


def of(tenant: str, name: str, low: int, high: int, size: int | None = None, **more):
    """A job of the tenant; it runs with its minimum by default, and takes part in rebalancing."""
    return job(name, low, high, low if size is None else size, tenant=tenant, **{"rebalances": True, **more})


def cluster(jobs, tenants, *, cpus: int = 24) -> World:
    return World([node(f"node-{n}", cpu=cpus // 3) for n in range(3)], jobs, tenants=tenants).running()


def settled(world: World, passes: int = 30) -> dict[str, int]:
    """The sizes when nothing more is to be done."""
    for _ in range(passes):
        plan = allocate(world.pool())
        if not plan.resizes:
            return world.sizes()
        world = world.carried_out(plan)
    raise AssertionError(f"{passes} plans, and still something to do")


EQUAL = (tenant("a"), tenant("b"))


def test_free_capacity_is_shared_between_tenants_and_not_between_jobs():
    """Nine jobs of one tenant have as much together as the one job of another tenant."""
    many = [of("a", f"a-{number}", 1, 20) for number in range(9)]
    sizes = settled(cluster([*many, of("b", "b-0", 1, 40)], EQUAL))
    assert sizes.pop("b-0") == 12
    assert sorted(sizes.values()) == [1, 1, 1, 1, 1, 1, 2, 2, 2]


def test_without_tenants_jobs_share_it():
    many = [of("a", f"a-{number}", 1, 20) for number in range(9)]
    sizes = settled(cluster([*many, of("b", "b-0", 1, 40)], ()))
    assert sizes["b-0"] < 6


@pytest.mark.parametrize(("weight", "first"), [("1", 12), ("2", 16), ("3", 18), ("1/2", 8)])
def test_weights_divide_what_is_borrowed(weight, first):
    world = cluster([of("a", "a", 0, 40), of("b", "b", 0, 40)], (tenant("a", weight=weight), tenant("b")))
    assert settled(world) == {"a": first, "b": 24 - first}


def test_weights_count_above_nominal_quotas_only():
    tenants = (tenant("a", nominal=6), tenant("b", nominal=6, weight="2"))
    assert settled(cluster([of("a", "a", 0, 40), of("b", "b", 0, 40)], tenants)) == {"a": 10, "b": 14}


def test_at_equal_shares_the_priority_decides_also_after_a_minimum_that_nothing_can_hold():
    """Its tenant has not got anything by that, so the minimum of its next job does not come before a higher priority."""
    waiting = {"size": 0, "is_gang": True}
    jobs = [
        of("a", "a-huge", 100, 100, priority=10, **waiting),
        of("a", "a-low", 16, 16, priority=0, **waiting),
        of("b", "b-high", 16, 16, priority=5, **waiting),
    ]
    assert resizes_of(allocate(cluster(jobs, EQUAL).pool())) == {"b-high": 16}


def test_a_tenant_borrows_what_others_do_not_use():
    tenants = (tenant("a", nominal=12), tenant("b", nominal=12))
    assert settled(cluster([of("a", "a", 1, 40), of("b", "b", 1, 4)], tenants)) == {"a": 20, "b": 4}


@pytest.mark.parametrize("priority", [0, 1000])
def test_growth_within_a_nominal_quota_comes_before_growth_that_borrows(priority):
    """Else the borrower would lose the instance at once to the tenant that takes back its nominal quota, and so again and again."""
    tenants = (tenant("a", nominal=4), tenant("b", nominal=10))
    world = World(
        [node(cpu=8)], [of("a", "a", 1, 7, 2, cpu=2, priority=priority), of("b", "b", 1, 2, cpu=2)], tenants=tenants
    )
    plan = allocate(world.running().pool())
    assert resizes_of(plan) == {"b": 1}


def test_a_step_beyond_the_borrowing_limit_does_not_delay_smaller_steps_of_its_tenant():
    """`a-large` may not grow; counted with its step, `a` came after `b`, which had to give the trainer to `a-small` then."""
    tenants = (tenant("a", nominal=4, limit=4), tenant("b"))
    jobs = [of("a", "a-large", 1, 9, cpu=4, priority=1000), of("a", "a-small", 1, 9), of("b", "b", 2, 9)]
    plan = allocate(World([node(cpu=8)], jobs, tenants=tenants).running().pool())
    assert resizes_of(plan) == {"a-small": 1}


def test_a_tenant_does_not_borrow_for_rebalancing_what_another_tenant_would_take_back():
    """`a-high` would use one CPU that `b` cannot use alone, and `b` would take it back from the nominal quota of 4."""
    tenants = (tenant("a", nominal=3), tenant("b", nominal=4))
    jobs = [
        of("a", "a-high", 1, 9, cpu=2, priority=1),
        of("a", "a-low", 0, 1, 1),
        of("b", "b", 1, 2, cpu=2),
    ]
    world = World([node(cpu=6)], jobs, tenants=tenants).running()
    assert resizes_of(allocate(world.pool())) == {}


@pytest.mark.parametrize(("weight", "expected"), [("1/3", {}), ("3", {"b": -1, "a": 1})])
def test_no_instance_is_taken_that_the_next_plan_would_give_back(weight, expected):
    """With a weight of 1/3 a share of 4 × 3 after the step: `b` would come first in growth, and get its instance again."""
    tenants = (tenant("a", nominal=4, weight=weight), tenant("b", nominal=4))
    jobs = [of("a", "a", 1, 9, cpu=4), of("b", "b", 1, 8, 8)]
    world = World([node(cpu=15)], jobs, tenants=tenants).running()
    assert resizes_of(allocate(world.pool())) == expected
    assert sum(settled(world).values()) == sum(world.sizes().values()) + sum(expected.values())


@pytest.mark.parametrize("priority", [0, 1000, -1000])
def test_a_tenant_takes_back_its_nominal_quota_whatever_the_priorities(priority):
    tenants = (tenant("a", nominal=4), tenant("b", nominal=12))
    before = cluster([of("a", "a", 1, 40, 24, priority=priority)], tenants)
    before.add(of("b", "b", 1, 40, 0, is_gang=True))
    sizes = settled(before)
    # Beyond the nominal quotas, of 16 together, 8 are left to borrow: 4 each
    assert sizes == {"a": 8, "b": 16}


def test_nothing_within_a_nominal_quota_is_taken_by_another_tenant():
    tenants = (tenant("a", nominal=24), tenant("b"))
    world = cluster([of("a", "a", 1, 40, 24)], tenants)
    world.add(of("b", "b", 1, 40, 0, is_gang=True, priority=1000))
    assert settled(world) == {"a": 24, "b": 0}


def test_a_minimum_is_taken_from_a_tenant_that_borrows_more():
    world = cluster([of("a", "a", 1, 40, 24)], EQUAL)
    world.add(of("b", "b", 6, 6, 0, is_gang=True))
    assert settled(world) == {"a": 18, "b": 6}


def test_a_minimum_of_a_tenant_that_borrows_more_takes_nothing_of_others():
    """Even at a higher priority: priorities count within a tenant."""
    world = cluster([of("a", "a", 1, 40, 16), of("b", "b", 1, 8, 8)], EQUAL)
    world.add(of("a", "late", 2, 2, 0, is_gang=True, priority=7))
    assert settled(world) == {"a": 14, "b": 8, "late": 2}


def test_never_below_a_minimum_even_for_a_nominal_quota():
    tenants = (tenant("a"), tenant("b", nominal=24))
    world = cluster([of("a", "a", 10, 40, 24)], tenants)
    world.add(of("b", "b", 1, 40, 0, is_gang=True))
    assert settled(world) == {"a": 10, "b": 14}


def test_priorities_count_within_a_tenant():
    jobs = [of("a", "low", 1, 40), of("a", "high", 1, 10, priority=5), of("b", "b", 1, 40)]
    assert settled(cluster(jobs, EQUAL)) == {"low": 2, "high": 10, "b": 12}


@pytest.mark.parametrize(("limit", "size"), [(0, 8), (4, 12), (None, 24)])
def test_a_borrowing_limit_ends_growth(limit, size):
    world = cluster([of("a", "a", 1, 40)], (tenant("a", nominal=8, limit=limit),))
    assert settled(world) == {"a": size}


def test_growth_stopped_by_a_borrowing_limit_is_reported_as_quota_exceeded():
    world = cluster([of("a", "a", 1, 40, 12)], (tenant("a", nominal=8, limit=4), tenant("b")))
    (waiting,) = allocate(world.pool()).waiting
    assert waiting.reason == QUOTA_EXCEEDED
    assert waiting.message == (
        "tenant a has 0 left of 1 cpu needed within its nominal quota and borrowing limit, to grow beyond 12"
    )


def test_within_a_borrowing_limit_jobs_of_the_tenant_still_share():
    world = cluster([of("a", "old", 1, 40, 12)], (tenant("a", nominal=8, limit=4),))
    world.add(of("a", "new", 2, 40, 0, is_gang=True))
    assert settled(world) == {"old": 6, "new": 6}


def test_a_gang_beyond_the_borrowing_limit_waits_and_reserves_nothing():
    world = cluster([of("a", "a", 8, 8)], (tenant("a", nominal=8, limit=2), tenant("b")))
    world.add(of("a", "large", 4, 4, 0, is_gang=True))
    world.add(of("b", "b", 16, 16, 0, is_gang=True, created_at="2026-02-01T00:00:00Z"))
    plan = allocate(world.pool())
    assert resizes_of(plan) == {"b": 16}
    assert waiting_of(plan) == {"large": QUOTA_EXCEEDED}


def test_a_quota_below_what_runs_removes_nothing_by_itself():
    world = cluster([of("a", "a", 1, 40, 20)], (tenant("a", nominal=2, limit=2),))
    assert settled(world) == {"a": 20}


def test_a_tenant_above_its_quota_shrinks_for_other_tenants():
    world = cluster(
        [of("a", "a", 1, 40, 24), of("b", "b", 1, 10, 0, is_gang=True)], (tenant("a", nominal=2, limit=2), tenant("b"))
    )
    assert settled(world) == {"a": 14, "b": 10}


def test_jobs_of_no_tenant_form_one_without_a_quota():
    tenants = (tenant("a", nominal=12),)
    jobs = [of("a", "a", 1, 40), of("", "x", 1, 40), of("unknown", "y", 1, 40)]
    assert settled(cluster(jobs, tenants)) == {"a": 18, "x": 3, "y": 3}


def test_claims_within_a_nominal_quota_come_before_those_that_borrow():
    """A younger gang of a lower priority starts first: its tenant does not borrow for it."""
    tenants = (tenant("a"), tenant("b", nominal=12))
    jobs = [
        of("a", "borrows", 16, 16, 0, is_gang=True, priority=9, created_at="2026-01-01T00:00:00Z"),
        of("b", "own", 12, 12, 0, is_gang=True, created_at="2026-01-02T00:00:00Z"),
    ]
    assert resizes_of(allocate(cluster(jobs, tenants).pool())) == {"own": 12}


def test_the_dominant_resource_counts():
    """Tenant a uses half of all GPUs and few CPUs, tenant b half of all CPUs: they are even."""
    gpus = [of("a", "a", 0, 8, 4, cpu=1, gpu=1)]
    world = World([node(f"node-{n}", cpu=8, gpu=4) for n in range(2)], [*gpus, of("b", "b", 0, 16, 8)], tenants=EQUAL)
    assert {one.reason for one in allocate(world.running().pool()).resizes} == {GROWING}


# --- several resources -----------------------------------------------------------------------------------------------------


def gpu_world(jobs, tenants) -> World:
    return World([node(f"node-{n}", cpu=8, gpu=4) for n in range(3)], jobs, tenants=tenants).running()


def test_a_tenant_that_borrows_gpus_keeps_the_cpus_of_its_nominal_quota():
    tenants = (tenant("a", nominal=20, gpu=4), tenant("b", gpu=4))
    jobs = [of("a", "a-gpus", 8, 8, gpu=1), of("a", "a-cpus", 1, 40, 12), of("b", "b", 1, 40, 4)]
    sizes = settled(gpu_world(jobs, tenants))
    assert (sizes["a-gpus"], sizes["a-cpus"]) == (8, 12)


def test_a_tenant_that_borrows_gpus_takes_back_the_cpus_of_its_nominal_quota():
    tenants = (tenant("a", nominal=20, gpu=4), tenant("b", gpu=4))
    jobs = [of("a", "a-gpus", 8, 8, gpu=1), of("a", "a-cpus", 1, 40, 4), of("b", "b", 1, 40, 12)]
    assert settled(gpu_world(jobs, tenants)) == {"a-gpus": 8, "a-cpus": 12, "b": 4}


def test_resources_that_no_tenant_names_are_shared_as_within_one_tenant():
    """Otherwise GPUs would be idle for want of CPUs that no quota protects."""
    tenants = (tenant("a", gpu=4), tenant("b", gpu=4))
    world = gpu_world([of("a", "a-cpus", 1, 24, 24)], tenants)
    world.add(of("b", "b-gpus", 4, 4, 0, gpu=1, is_gang=True))
    assert settled(world) == {"a-cpus": 20, "b-gpus": 4}


def test_a_claim_of_a_lower_priority_does_not_pass_one_of_its_own_tenant_that_borrows():
    jobs = [of("a", "high", 16, 16, 0, is_gang=True, priority=9), of("a", "low", 12, 12, 0, is_gang=True)]
    assert resizes_of(allocate(cluster(jobs, (tenant("a", nominal=12), tenant("b"))).pool())) == {"high": 16}


@pytest.mark.parametrize("is_gang", [True, False])
def test_a_minimum_that_makes_two_tenants_even_is_granted(is_gang):
    world = cluster([of("a", "a", 1, 40, 24)], EQUAL)
    world.add(of("b", "b", 12, 12, 0 if is_gang else 12, is_gang=is_gang))
    assert settled(world) == {"a": 12, "b": 12}


def test_a_pod_that_no_node_can_hold_costs_its_tenant_nothing():
    tenants = (tenant("a", nominal=12), tenant("b"))
    world = cluster([of("a", "a", 1, 12, 12), of("b", "b", 1, 12, 12)], tenants)
    world.add(of("a", "huge", 1, 1, 1, cpu=100))
    assert settled(world) == {"a": 12, "b": 12, "huge": 1}


def test_where_one_tenant_may_not_give_enough_the_next_node_is_tried():
    tenants = (tenant("a", nominal=4, weight="1/2"), tenant("b", nominal=2), tenant("c", nominal=3))
    nodes = [node("node-0", cpu=5), node("node-1", cpu=4)]
    world = World(nodes, tenants=tenants)
    world.add(of("a", "a-0", 0, 9, 3))
    world.add(of("a", "a-1", 0, 9, 2))
    world.add(of("c", "c", 0, 2, 2, cpu=2))
    world.add(of("b", "b", 1, 1, 0, cpu=2, is_gang=True))
    assert settled(world)["b"] == 1


def test_a_limit_of_pods_alone_is_a_limit():
    tenants = (Tenant("a", {"pods": 4}, {"pods": 1}), tenant("b"))
    assert settled(cluster([of("a", "a", 1, 40)], tenants)) == {"a": 5}
