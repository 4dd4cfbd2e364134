"""What one plan considers: a bounded number of shapes, those of each namespace in turn; names that no node has cost nothing."""

from dataclasses import replace

import pytest

from raytide.api.pod_requirements import CPU, PODS, NodeRequirement, PodConstraints
from raytide.api.tenants import Tenant
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
    kinds, in_a = NodeKinds(nodes), PodConstraints((("zone", "a"),))
    assert kinds.cost(selectors[0]) == 20 + 1 * 301
    assert kinds.cost(in_a) == 20 + 2 * 2
    assert kinds.admitting(selectors[0]) == []
    assert len(kinds.admitting(in_a)) == 10


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
    assert "different pods (requests, selector, affinity, tolerations)" in message
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


HOSTS = tuple(node(f"n{number}", cpu=4, labels={"host": f"n{number}"}) for number in range(100))
PINNED = PodConstraints(terms=((NodeRequirement("metadata.name", "In", frozenset({"n1"}), is_field=True),),))


def elsewhere(number):
    """Constraints that read each node's name, and that no other pod has."""
    return PodConstraints(terms=((NodeRequirement("host", "NotIn", frozenset({f"x{number}"})),),))


@pytest.mark.rule("FD:SEC3-3")
def test_constraints_that_tell_each_node_apart_cost_their_own_namespace(monkeypatch):
    monkeypatch.setattr(shape_limits, "MAX_CHECKS", 1_000)
    plain = tuple(map(distinct, range(30)))
    pinned = ExternalPods(Shape(amounts(1, pods=1), {}, PINNED), name="kube-system/agent")
    considered = shape_limits.within_limits(ClusterSnapshot(HOSTS, plain, (pinned,)))
    assert not considered.omitted, "a pod of a DaemonSet that waits for its node takes nothing from others"
    hosts = tuple(
        job(f"h{number}", 1, 1, 1, namespace="other", shape=Shape(amounts(1, pods=1), {}, elsewhere(number)))
        for number in range(9)
    )
    considered = shape_limits.within_limits(ClusterSnapshot(HOSTS, (*plain, *hosts)))
    assert [each.id.name for each in considered.omitted] == [f"h{number}" for number in range(2, 9)]


@pytest.mark.rule("FD:SEC3-3")
def test_many_requirements_cost_more_than_few(monkeypatch):
    monkeypatch.setattr(shape_limits, "MAX_CHECKS", 2_000)
    terms = tuple((NodeRequirement("host", "NotIn", frozenset({f"x{number}"})),) for number in range(50))
    large = Shape(amounts(1, pods=1), {}, PodConstraints(terms=terms))
    jobs = (job("large", 1, 1, 1, namespace="bad", shape=large), job("small", 1, 1, 1, namespace="good"))
    considered = shape_limits.within_limits(ClusterSnapshot(HOSTS, jobs))
    assert [each.id.name for each in considered.omitted] == ["large"]


@pytest.mark.rule("FD:SEC3-3")
@pytest.mark.usefixtures("few")
def test_what_an_omitted_job_uses_counts_against_its_tenant():
    tenants = (Tenant("hog", nominal_quota={CPU: 50_000}, borrowing_limit={CPU: 0}), Tenant("other"))
    own = [replace(distinct(number), tenant="hog", placed={"node-1": 1}, ceiling=9) for number in range(40)]
    there = node(cpu=500, used={CPU: 60_000})
    plan = allocate(ClusterSnapshot((there,), tuple(own), tenants=tenants))
    assert sum(resize.after - resize.before for resize in plan.resizes) * 1000 <= 50_000 - 40_000
