"""A maximum beyond what the nodes could ever hold buys no capacity: scores count up to what is reachable."""

import pytest

from raytide.fairshare.algorithm.allocate import allocate
from support.elastic_builders import World, external_pod, job, node, shape

pytestmark = pytest.mark.rule("FD:SH-GAMING", "TJ:2")


def settled(world: World) -> dict[str, int]:
    """The sizes when nothing more is to be done."""
    for _ in range(20):
        plan = allocate(world.pool())
        if not plan.resizes:
            return world.sizes()
        world = world.carried_out(plan)
    raise AssertionError("twenty plans, and still something to do")


def two(high: int, *, cpu: int = 80, **more) -> World:
    """One job of 1 to 8 and one of 1 to `high`, both new."""
    jobs = [job("modest", 1, 8, 1, rebalances=True), job("greedy", 1, high, 1, rebalances=True, **more)]
    return World([node(f"node-{number}", cpu=cpu // 5) for number in range(5)], jobs)


def test_a_maximum_of_ten_clusters_counts_as_one_cluster():
    """The modest one had 2 of 8, the other one 78."""
    assert settled(two(800)) == settled(two(80)) == {"modest": 8, "greedy": 72}


@pytest.mark.parametrize("high", [80, 800, 8_000_000])
def test_a_higher_maximum_gains_nothing(high):
    assert settled(two(high)) == settled(two(80))


def test_what_other_workloads_use_now_does_not_count():
    """Otherwise scores, and with them sizes, would change whenever a pod comes or goes."""
    world = two(800)
    world.nodes = tuple(node(each.name, cpu=16, used={"cpu": 8000}) for each in world.nodes)
    sizes = settled(world)
    assert sizes == {"modest": 5, "greedy": 35}
    world.external_pods = (external_pod(1000),)
    assert settled(world) == sizes


def test_only_nodes_that_it_may_use_count():
    east = shape(1, node_selector=(("pool", "east"),))
    world = two(800, shape=east)
    world.nodes = (*world.nodes[:4], node("node-4", cpu=16, labels={"pool": "east"}))
    assert settled(world) == {"modest": 8, "greedy": 16}


def test_a_job_that_the_cluster_cannot_hold_changes_nothing():
    world = two(80)
    world.add(job("huge", 1, 8, 0, cpu=1000, is_gang=True, rebalances=True))
    assert settled(world) == {**settled(two(80)), "huge": 0}
