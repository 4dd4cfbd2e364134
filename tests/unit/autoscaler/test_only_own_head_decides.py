"""Only the sidecar in the current head pod of its own RayCluster writes decisions."""

from dataclasses import replace

import pytest
from msgspec import structs

from raytide.api.pod import PodView
from raytide.autoscaler.sidecar.reconcile import reconcile
from raytide.autoscaler.state.snapshot import ReconcileResult, ReconcilerState, Snapshot
from support.builders import CLUSTER_UID, group
from unit.autoscaler.simulated_cluster import World


def seen(world: World, *heads: PodView, own: str = "demo-head") -> Snapshot:
    """What a sidecar in the head pod `own` sees when these are the heads."""
    snapshot = world.snapshot()
    workers = tuple(pod for pod in snapshot.pods if not pod.is_head)
    return replace(snapshot, pods=(*heads, *workers), settings=replace(snapshot.settings, head_pod=own))


def orders_nothing(plan: ReconcileResult) -> bool:
    return not (plan.patch or plan.drains or plan.report) and bool(plan.why_not)


@pytest.fixture
def world() -> World:
    """A cluster with workers, and a record in it."""
    world = World([group("cpu", replicas=0)])
    world.demand(3)
    world.run(30)
    assert world.record().groups["cpu"].replicas == 3
    return world


def head_of(world: World, **fields: object) -> PodView:
    return structs.replace(next(pod for pod in world.snapshot().pods if pod.is_head), **fields)


DYING = {"deletion_timestamp": "2026-01-01T00:01:00Z"}


@pytest.mark.parametrize("is_recorded", [True, False], ids=["our operator", "another operator"])
@pytest.mark.rule("RM:I23", "AS:K-2")
def test_a_sidecar_whose_head_is_being_deleted_orders_nothing_more(world: World, is_recorded):
    dying = head_of(world, **DYING)
    snapshot = seen(world, dying)
    snapshot = replace(snapshot, settings=replace(snapshot.settings, is_recorded=is_recorded))
    world.demand(9)
    assert orders_nothing(reconcile(snapshot, world.state))


@pytest.mark.rule("RM:I23")
def test_it_orders_nothing_for_a_head_that_follows_its_own(world: World):
    following = head_of(world, name="demo-head-2", uid="uid-head-2")
    assert orders_nothing(reconcile(seen(world, head_of(world, **DYING), following), world.state))
    assert orders_nothing(reconcile(seen(world, following), world.state))


def test_the_sidecar_of_the_head_that_follows_orders_at_once(world: World):
    following = head_of(world, name="demo-head-2", uid="uid-head-2")
    plan = reconcile(seen(world, head_of(world, **DYING), following, own="demo-head-2"), ReconcilerState())
    assert plan.record is not None
    assert plan.record.head == "uid-head-2"


@pytest.mark.rule("RM:I4")
def test_a_sidecar_left_over_from_a_cluster_of_the_same_name_orders_nothing(world: World):
    assert orders_nothing(reconcile(seen(world, head_of(world, owner_uid="uid-of-the-one-before")), world.state))
    assert not reconcile(seen(world, head_of(world, owner_uid=CLUSTER_UID)), world.state).why_not


@pytest.mark.rule("RM:I4")
def test_workers_of_an_earlier_cluster_of_the_same_name_are_ignored():
    world = World([group("cpu", replicas=0)])
    snapshot = world.snapshot()
    left = PodView(
        namespace="default",
        name="demo-cpu-worker-old",
        uid="uid-old",
        owner_uid="uid-of-the-one-before",
        cluster="demo",
        group="cpu",
        node_type="worker",
        phase="Running",
        node_name="n0",
    )
    plan = reconcile(replace(snapshot, pods=(*snapshot.pods, left)), ReconcilerState())
    assert plan.decisions["cpu"].replicas == 0
