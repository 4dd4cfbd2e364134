"""Which node comes closest to one more pod, and what it lacks."""

import pytest

from raytide.api.pod_requirements import CPU, PODS
from raytide.fairshare.algorithm.model import MEMORY, ClusterSnapshot, Node, Shape, Taint
from raytide.simulator.closest_node import why_unschedulable
from support.elastic_builders import GPU, World, amounts, job, node


@pytest.mark.parametrize(
    ("nodes", "of", "sentence"),
    [
        pytest.param(
            [node("one", cpu=4, used=amounts(cpu=4)), node("two", cpu=4, used=amounts(cpu=4))],
            job("b", 1, 4),
            "node one comes closest, of 2 that it may run on: it lacks 1 cpu (it requests 1 cpu; 0 of 4 free)",
            id="all nodes are full",
        ),
        pytest.param(
            [node("one", cpu=4, gpu=1), node("two", cpu=4, is_usable=False), node("three", cpu=4, labels={})],
            job("a", 1, 2, gpu=2),
            "1 node not usable: not ready, or cordoned; node one comes closest, of 2 that it may run on: it lacks 1 nvidia.com/gpu "
            "(it requests 2 nvidia.com/gpu; 1 of 1 free)",
            id="nodes that do not count are counted",
        ),
        pytest.param(
            [node("one", cpu=4, taints=(Taint("dedicated"),))],
            job("a", 0, 2),
            "1 node excluded by node selector, affinity or taints; it may run on none of the usable nodes",
            id="a taint is named as such",
        ),
        pytest.param(
            [node("plain", cpu=64), node("gpus", cpu=64, gpu=4, used=amounts(gpu=4))],
            job("a", 1, 2, gpu=1),
            f"node gpus comes closest, of 2 that it may run on: it lacks 1 {GPU} (it requests 1 {GPU}; 0 of 4 free)",
            id="a node that has the resource comes before one that has none",
        ),
        pytest.param([node("one", cpu=4)], job("a", 1, 2), "", id="there is room"),
    ],
)
def test_why_one_more_pod_fits_on_no_node(nodes, of, sentence):
    assert why_unschedulable(World(nodes, []).pool(), of.shape) == sentence


def test_what_a_terminating_pod_uses_counts_as_free():
    pool = ClusterSnapshot((Node("one", {CPU: 2000, MEMORY: 9}, {CPU: 2000}, terminating={CPU: 1000}),), ())
    assert why_unschedulable(pool, Shape({CPU: 1000})) == ""


def test_a_node_without_a_pod_limit_can_hold_any_number_of_pods():
    pool = ClusterSnapshot((Node("one", {CPU: 2000, MEMORY: 9}, {CPU: 1000, PODS: 2}),), ())
    assert why_unschedulable(pool, Shape({CPU: 1000, PODS: 1})) == ""
