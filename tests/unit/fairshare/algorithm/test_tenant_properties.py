"""Properties of every plan with tenants for random clusters (D25); test_properties.py has the rest."""

import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from raytide.fairshare.algorithm.allocate import allocate
from support.elastic_builders import World
from support.explored import explored
from unit.fairshare.algorithm.random_snapshots import SEEDS, equal_worlds, worlds
from unit.fairshare.algorithm.test_tenants import of, settled, tenant

everywhere = explored()
pytestmark = [pytest.mark.rule("TJ:7.13", "D25"), pytest.mark.timeout(1800)]


TENANTS = st.sampled_from("abc")
PRIORITIES = st.sampled_from([-1, 0, 1])


def with_tenants(world: World, data: st.DataObject) -> World:
    """Each job belongs to one of three tenants, or to none."""
    chance = random.Random(data.draw(SEEDS))
    world.tenants = tuple(
        tenant(
            name,
            nominal=chance.randint(0, 8),
            limit=chance.choice([None, None, 0, 4]),
            weight=chance.choice(["1", "1", "2", "1/3"]),
        )
        for name in "abc"
    )
    tenant_of = {id_.name: chance.choice(["a", "b", "c", ""]) for id_ in sorted(world.jobs)}
    return world.changed(**{name: {"tenant": one, "rebalances": True} for name, one in tenant_of.items()})


def used(world: World) -> dict[str, float]:
    """CPUs by tenant."""
    cpus = dict.fromkeys("abc", 0.0)
    for pods in world.jobs.values():
        if pods.job.tenant:
            cpus[pods.job.tenant] += sum(bool(where) for where in pods.trainers)
    return cpus


@everywhere
@given(worlds(), st.data())
def test_plans_with_tenants_come_to_an_end(world, data):
    settled(with_tenants(world, data), passes=60)


@everywhere
@given(equal_worlds(), st.data())
def test_three_plans_are_enough_for_equal_pods_of_tenants(world, data):
    settled(with_tenants(world, data), passes=4)


@everywhere
@given(worlds(are_usable=True), st.sampled_from(["a", ""]))
def test_one_tenant_for_all_jobs_changes_nothing(world, name):
    """Apart from the order if pods have no node: with tenants, claims that borrow come after all of these."""
    world = world.changed(**{id_.name: {"may_grow": True, "may_shrink": True} for id_ in world.jobs})
    world.external_pods = ()
    world = world.without_waiting()
    assume(world.jobs)
    expected = allocate(world.pool()).resizes
    world = world.changed(**{id_.name: {"tenant": name} for id_ in world.jobs})
    world.tenants = (tenant("a"), tenant("b", nominal=1))
    assert allocate(world.pool()).resizes == expected


@everywhere
@given(equal_worlds(), st.data())
def test_no_tenant_loses_what_is_within_its_nominal_quota(world, data):
    """An instance is one CPU, so that none can be half within it; pods without a node go where kube-scheduler puts them."""
    world = with_tenants(world.without_waiting(), data)
    before = used(world)
    late = data.draw(TENANTS)
    world.add(of(late, "late", 3, 9, 0, is_gang=True, priority=data.draw(PRIORITIES)))
    after = used(world.carried_out(allocate(world.pool())))
    for one in world.tenants:
        if one.name != late:
            assert after[one.name] >= min(before[one.name], one.nominal_quota.get("cpu", 0) / 1000)


@everywhere
@given(equal_worlds(is_gang=True), st.data())
def test_borrowing_limits_hold(world, data):
    world = with_tenants(world.without_waiting(), data)
    before, plan = used(world), allocate(world.pool())
    after = used(world.carried_out(plan))
    for one in world.tenants:
        if one.borrowing_limit:
            most = (one.nominal_quota.get("cpu", 0) + one.borrowing_limit["cpu"]) / 1000
            assert after[one.name] <= max(most, before[one.name])
