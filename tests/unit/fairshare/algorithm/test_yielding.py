"""Only jobs that yield shrink for pods of other workloads with a higher priority (TJ §3 row 6c)."""

from dataclasses import replace

import pytest

from raytide.api.sharing_record import RECLAIMED, YIELDED_TO_PODS
from raytide.fairshare.algorithm.allocate import allocate
from support.elastic_builders import LeavingPod, World, companion, external_pod, id_of, job, node, resizes_of, shape

pytestmark = pytest.mark.rule("TJ:3.6")

WEB = {"priority": 100, "is_unschedulable": True, "name": "web/nginx-0"}


def a_cluster(*others, cpu=6, **more) -> World:
    """Six CPUs, all taken by a job that gives."""
    jobs = [job("donor", 2, 8, 6, **{"yields": True, **more}), *others]
    return World([node(cpu=cpu)], jobs)


def after(world: World, **more) -> World:
    """With the plan carried out, pods that have to leave gone or still on their way."""
    return world.resized(allocate(world.pool()), only_released=True, **more)


@pytest.mark.parametrize(
    ("who", "donor", "expected"),
    [
        pytest.param(external_pod(1, **WEB), {}, {"donor": -1}, id="one pod, one trainer"),
        pytest.param(external_pod(1, count=3, **WEB), {}, {"donor": -3}, id="each pod by itself"),
        pytest.param(external_pod(1, count=9, **WEB), {}, {"donor": -4}, id="never below the minimum"),
        pytest.param(
            external_pod(3, count=2, **WEB), {}, {"donor": -3}, id="a part of what cannot be whole is not given"
        ),
        pytest.param(external_pod(7, **WEB), {}, {}, id="no job is shrunk for a pod that fits no node"),
        pytest.param(
            external_pod(5, **WEB), {}, {}, id="nor for a pod that would not fit after releasing all above the minimum"
        ),
        pytest.param(external_pod(1, **WEB), {"yields": False}, {}, id="a job that does not yield is not shrunk"),
        pytest.param(external_pod(1, **WEB), {"priority": 100}, {}, id="nor a job of the same priority"),
        pytest.param(external_pod(1, **WEB), {"is_scaling_enabled": False}, {}, id="nor whose scaling is off"),
        pytest.param(
            external_pod(1, **WEB), {"may_shrink": False}, {"donor": -1}, id="a higher priority waits for no cool-down"
        ),
        pytest.param(
            external_pod(1, **{**WEB, "is_unschedulable": False}),
            {},
            {},
            id="kube-scheduler has not looked at the pod yet",
        ),
        pytest.param(
            external_pod(1, count=2, **WEB),
            {"companion": companion(2, 1, 4, current=2), "floor": 2, "current": 4},
            {"donor": -2},
            id="what comes with the trainers leaves with them",
        ),
    ],
)
def test_donors_shrink_for_a_pending_external_pod(who, donor, expected):
    world = a_cluster(**{name: value for name, value in donor.items() if name not in ("floor", "current")})
    if "current" in donor:
        world = World(
            [node(cpu=6)],
            [job("donor", donor["floor"], 8, donor["current"], yields=True, companion=donor["companion"])],
        )
    world.external_pods = (who,)
    plan = allocate(world.pool())
    assert resizes_of(plan) == expected
    assert all(one.reason == YIELDED_TO_PODS and one.for_id is None for one in plan.resizes)


def test_only_donors_on_nodes_where_the_pod_may_run_shrink():
    world = World(
        [node("red", cpu=4, labels={"colour": "red"}), node("blue", cpu=4, labels={"colour": "blue"})],
        [
            job("red", 1, 4, 4, yields=True, shape=shape(1, node_selector=(("colour", "red"),))),
            job("blue", 1, 9, 4, yields=True, shape=shape(1, node_selector=(("colour", "blue"),))),
        ],
    )
    world.external_pods = (replace(external_pod(1, **WEB), shape=shape(1, node_selector=(("colour", "red"),))),)
    assert resizes_of(allocate(world.pool())) == {"red": -1}


@pytest.mark.parametrize("is_graceful", [True, False], ids=["its pods are leaving", "its pods are gone"])
def test_a_donor_shrinks_once_for_the_same_pods(is_graceful):
    world = a_cluster()
    world.external_pods = (external_pod(1, count=2, **WEB),)
    again = after(world, is_graceful=is_graceful)
    assert resizes_of(allocate(again.pool())) == {}, "neither again, nor back into what it gave"


def test_when_they_are_gone_it_grows_back():
    world = a_cluster()
    world.external_pods = (external_pod(1, count=2, **WEB),)
    world = after(world)
    world.external_pods = ()
    assert resizes_of(allocate(world.pool())) == {"donor": 2}


def test_capacity_of_terminating_pods_is_used_before_a_donor_shrinks():
    giver = job("giver", 0, 1, 1, yields=True, may_shrink=False)
    leaver = job("leaver", 0, 4, 4)
    world = World([node(cpu=5)], [giver, leaver]).changed(leaver={"ceiling": 3})
    world = after(world, is_graceful=True)
    world.external_pods = (external_pod(1, **WEB),)
    assert resizes_of(allocate(world.pool())) == {}
    world.external_pods = (external_pod(1, count=2, **WEB),)
    assert resizes_of(allocate(world.pool())) == {"giver": -1}


def test_the_message_names_the_pods_that_a_job_yields_to():
    world = a_cluster()
    world.external_pods = (external_pod(1, **WEB),)
    (one,) = allocate(world.pool()).resizes
    assert one.full_message == "ScaledDown 6→5 for web/nginx-0, which has a higher priority and no node"
    world.external_pods = (external_pod(1, count=3, **WEB),)
    (three,) = allocate(world.pool()).resizes
    assert (
        three.full_message
        == "ScaledDown 6→3 for web/nginx-0 and 2 more pods of other workloads, which have a higher priority and no node"
    )


def test_one_that_gives_to_a_job_too_names_both():
    world = a_cluster(job("claimant", 1, 1, 1, created_at="2026-01-02T00:00:00Z"))
    world.external_pods = (external_pod(1, **WEB),)
    (one,) = allocate(world.pool()).resizes
    assert (one.reason, one.for_id) == (RECLAIMED, id_of("claimant"))
    assert one.full_message == (
        "ScaledDown 6→4 for default/claimant, which needs 1 to reach its minimum, "
        "and for web/nginx-0, which has a higher priority and no node"
    )


@pytest.mark.rule("FD:SH-B5")
def test_a_job_in_another_pool_that_yields_changes_nothing():
    """The pod got what terminating pods release in its own pool before a job's minimum, although no job there yields."""
    east, west = {"node_selector": (("pool", "east"),)}, {"node_selector": (("pool", "west"),)}
    nodes = [node(name, cpu=2, labels={"pool": name}) for name in ("east", "west")]
    claimant = job("claimant", 1, 1, 0, shape=shape(1, **east), is_gang=True)
    plans = []
    for yields in (False, True):
        world = World(nodes, [job("running", 1, 1, 1, shape=shape(1, **east)), claimant])
        world.leaving = (LeavingPod("east", shape(1)),)
        world.add(job("elsewhere", 1, 2, 2, shape=shape(1, **west), yields=yields))
        waiting = replace(external_pod(1, **WEB), shape=shape(1, **east))
        plans.append(resizes_of(allocate(replace(world.pool(), external_pods=(waiting,)))))
    assert plans == [{"claimant": 1}, {"claimant": 1}]
