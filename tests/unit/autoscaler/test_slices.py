"""Multi-host replicas whose pods start at different times, or that exceed the names of one record."""

import pytest

from raytide.autoscaler.model import NodeStatus
from raytide.autoscaler.state.worker_groups import spec_groups
from raytide.raycluster.desired_replicas import clamp_replicas
from support.builders import group, worker_group
from unit.autoscaler.simulated_cluster import World

HOSTS = 4


def in_parts(demand: int) -> World:
    """Two slices are wanted; the first comes, and of the second one host."""
    world = World([group("tpu", replicas=0, numOfHosts=HOSTS)], start_s=5)
    world.demand(demand)
    world.run_until(lambda: len(world.pods) == 2 * HOSTS, 30)
    late = sorted({pod.replica for pod in world.pods.values()})[1]
    for pod in [pod for pod in world.pods.values() if pod.replica == late][1:]:
        pod.starts_at = None
    world.blocked.add("tpu")
    return world


@pytest.mark.rule("FD:AS-A3")
def test_a_slice_that_comes_in_parts_ends_no_slice_that_works():
    world = in_parts(2 * HOSTS)
    world.run(90)
    assert sum(node.status is NodeStatus.RUNNING for node in world.nodes.values()) == HOSTS + 1
    assert world.drain_calls == []


@pytest.mark.rule("FD:AS-A3")
def test_a_slice_is_drained_only_after_its_idle_timeout_while_another_is_partly_pending():
    world = in_parts(2 * HOSTS)
    world.run(30)
    world.demand(HOSTS)
    world.run(18)
    assert world.drain_calls == []


@pytest.mark.rule("FD:AS-A3")
def test_the_part_of_a_slice_that_works_is_not_ended_for_the_part_that_does_not_come():
    world = in_parts(2 * HOSTS)
    world.run(30)
    late = next(node for node in world.nodes.values() if node.pod == "demo-tpu-worker-0004")
    world.tasks = [task for task in world.tasks if task.node == late.node_id]
    world.run(18)
    assert (len(world.tasks), world.drain_calls) == (1, [])


@pytest.mark.rule("FD:AS-A10", "RM:I6")
def test_a_replica_of_more_hosts_than_one_record_can_name_leaves_whole_when_it_is_idle():
    hosts = 512
    world = World([group("tpu", replicas=0, numOfHosts=hosts, high=2)], start_s=5)
    world.demand(hosts)
    world.run_until(lambda: world.waiting() == 0 and bool(world.tasks), 60)
    world.demand(0)
    world.run(60)
    assert (world.live("tpu"), world.replicas("tpu")) == ([], 0)


@pytest.mark.rule("FD:AS-A24", "RC:WG-2")
@pytest.mark.parametrize(
    ("replicas", "least", "most", "wanted"), [(7, 5, 3, 3), (4, 5, 3, 5), (7, 1, 3, 3), (0, 1, 3, 1), (2, 1, 3, 2)]
)
def test_sidecar_and_operator_read_the_same_number_of_replicas(replicas, least, most, wanted):
    written = group("cpu", replicas=replicas, low=least, high=most)
    (seen,) = spec_groups({"spec": {"workerGroupSpecs": [written]}})
    made = clamp_replicas(worker_group(replicas=replicas, low=least, high=most))
    assert (seen.spec_replicas, made) == (wanted, wanted)
