"""What one plan considers: a bounded number of shapes, those of each namespace in turn; names that no node has cost nothing."""

from dataclasses import replace

import pytest

from raytide.api.pod_requirements import CPU, PODS, PodConstraints
from raytide.fairshare.algorithm import shape_limits
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.algorithm.model import (
    MEMORY,
    TOO_MANY_SHAPES,
    UNSATISFIABLE,
    ClusterSnapshot,
    ExternalPods,
    Shape,
)
from raytide.fairshare.algorithm.node_affinity import NodeKinds
from raytide.fairshare.algorithm.placement import UNOFFERED, ClusterCapacity
from support.elastic_builders import amounts, job, node

GPUS = frozenset({"nvidia.com/gpu"})


def names_of(one, count=3_000):
    return {f"a.b/{one}x{number}": 1 for number in range(count)}


def distinct(number, namespace="bad"):
    """A job whose pods are like those of no other job."""
    return job(f"j{number:04}", 1, 2, 1, namespace=namespace, shape=Shape(amounts(1 + number / 1000, pods=1)))


# --- resources -------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("FD:SEC3-1")
def test_resources_that_no_node_has_get_no_number_in_each_node():
    shapes = [Shape({CPU: 1000, PODS: 1, **names_of(one)}, names_of(one)) for one in range(10)]
    capacity = ClusterCapacity([node(cpu=4)], shapes, GPUS)
    assert capacity.resources == (UNOFFERED, CPU, MEMORY, PODS)
    pods = [capacity.pod(shape) for shape in shapes]
    assert [(len(pod.requests), pod.reachable, pod.unoffered) for pod in pods[:1]] == [(3, 0, "a.b/0x0")]
    assert capacity.find(pods[0]) is None
    assert not capacity.could_hold(pods[0])


@pytest.mark.rule("FD:SEC3-1")
def test_the_reason_names_the_first_resource_that_no_node_has():
    wanted = job("a", 1, 1, 0, is_gang=True, shape=Shape({CPU: 1000, PODS: 1, "z/last": 1, "a.b/first": 2}))
    (waiting,) = allocate(ClusterSnapshot((node(cpu=4),), (wanted,))).waiting
    assert waiting.reason == UNSATISFIABLE
    assert waiting.message.startswith("needs 2 a.b/first on one node; the largest node has 0")


@pytest.mark.rule("FD:SEC3-3")
def test_labels_that_no_node_has_distinguish_no_nodes():
    nodes = [node(f"n{number}", cpu=4, labels={"zone": "ab"[number % 2]}) for number in range(20)]
    selectors = [PodConstraints(tuple((f"k{one}-{key}", "v") for key in range(300))) for one in range(60)]
    kinds = NodeKinds(nodes, [*selectors, PodConstraints((("zone", "a"),))])
    assert kinds.count == 2
    assert kinds.admitting(selectors[0]) == []
    assert len(kinds.admitting(PodConstraints((("zone", "a"),)))) == 10


# --- shapes ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(shape_limits, "MAX_SHAPES", 10)


@pytest.mark.rule("FD:SEC3-3")
@pytest.mark.usefixtures("few")
def test_many_shapes_of_one_namespace_delay_only_that_namespace():
    same = Shape(amounts(2, pods=1))
    healthy = [job(name, 1, 4, 1, namespace="good", shape=same, created_at="2026-09-01T00:00:00Z") for name in "ab"]
    plan = allocate(ClusterSnapshot((node(cpu=64),), (*map(distinct, range(50)), *healthy)))
    assert {resize.id.name for resize in plan.resizes} >= {"a", "b"}
    omitted = {each.id.name for each in plan.waiting if each.reason == TOO_MANY_SHAPES}
    assert omitted == {f"j{number:04}" for number in range(9, 50)}, "nine of its shapes, and one of the other namespace"
    (message,) = {each.message for each in plan.waiting if each.reason == TOO_MANY_SHAPES}
    assert "10 different pods (requests, selector, affinity, tolerations)" in message
    assert not [resize for resize in plan.resizes if resize.id.name in omitted], "they keep their size"


@pytest.mark.rule("FD:SEC3-3")
@pytest.mark.usefixtures("few")
def test_pending_pods_of_many_shapes_keep_no_capacity_from_jobs():
    pods = [ExternalPods(Shape(amounts(1 + n / 1000, pods=1)), created_at="2025", name=f"bad/p{n}") for n in range(60)]
    plan = allocate(ClusterSnapshot((node(cpu=64),), (job("a", 1, 50, 1, namespace="good"),), tuple(pods)))
    (resize,) = plan.resizes
    assert resize.after > 40, "nine of them are considered"


@pytest.mark.rule("FD:SEC3-3")
@pytest.mark.usefixtures("few")
def test_jobs_with_pods_come_first_in_their_namespace_and_equal_shapes_count_once():
    running = distinct(49)
    same = Shape(amounts(1, pods=1))
    equal = [job(f"e{number}", 1, 1, 1, namespace="good", shape=same) for number in range(40)]
    placed = replace(running, placed={"node-1": 1})
    considered = shape_limits.within_limits(
        ClusterSnapshot((node(cpu=64),), (*map(distinct, range(49)), placed, *equal))
    )
    names = {each.id.name for each in considered.participants}
    assert {"j0049", *(each.id.name for each in equal)} <= names
    assert len({id(each.shape) for each in considered.participants}) == 10


@pytest.mark.rule("FD:SEC3-3")
def test_on_many_kinds_of_nodes_fewer_shapes_are_considered(monkeypatch):
    monkeypatch.setattr(shape_limits, "MAX_CHECKS", 100)
    hosts = tuple(node(f"n{number}", cpu=4, labels={"host": f"n{number}"}) for number in range(10))
    jobs = tuple(map(distinct, range(30)))
    assert not shape_limits.within_limits(ClusterSnapshot(hosts, jobs)).omitted, "no pod asks for a host: one kind"
    apart = Shape(amounts(1, pods=1), {}, PodConstraints((("host", "n1"),)))
    considered = shape_limits.within_limits(ClusterSnapshot(hosts, (*jobs, job("x", 1, 1, 1, shape=apart))))
    assert considered.max_shapes == 10
    assert len(considered.participants) == 10
