"""Capacity of the cluster: sums by node and by what a pod belongs to, whatever the order of changes."""

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from raytide.api.quantity import QuantityError
from raytide.explain.cluster_capacity import (
    CapacityView,
    ClusterCapacity,
    Holder,
    NodeOffer,
    PodRequests,
    ResourceUse,
    as_json,
    decode_node_offer,
    decode_pod_requests,
)

pytestmark = pytest.mark.rule("SC:S21")

GPU = "nvidia.com/gpu"
RAY, JOB, OTHER = Holder.RAYCLUSTER, Holder.TRAININGJOB, Holder.OTHER


def node(name: str = "n0", *, is_usable: bool = True, **amounts: int) -> NodeOffer:
    return NodeOffer(name, amounts or {"cpu": 8000}, is_usable)


def pod(cpu: int, holder: Holder = RAY, node: str = "n0", **more: int) -> PodRequests:
    return PodRequests(node, holder, {"cpu": cpu, **more})


def view_of(*objects: NodeOffer | PodRequests) -> CapacityView:
    capacity = ClusterCapacity([GPU])
    for each in objects:
        (capacity.change_node if isinstance(each, NodeOffer) else capacity.change_pod)(None, each)  # type: ignore[operator]
    return capacity.view()


def test_the_parts_of_a_resource_add_up_to_what_nodes_offer():
    found = view_of(node(), node("n1", is_usable=False), pod(2000), pod(1000, JOB), pod(500, OTHER, "n1"))
    assert found.nodes == 2
    assert found.resources[0] == ResourceUse("cpu", 16_000, (2000, 1000, 500), free=5000, unusable=7500, unscheduled=0)


def test_what_is_free_on_one_node_is_not_used_up_by_another_that_is_overcommitted():
    found = view_of(node(cpu=1000), node("n1", cpu=1000), pod(3000))
    assert found.resources[0] == ResourceUse("cpu", 2000, (3000, 0, 0), free=1000, unusable=0, unscheduled=0)


def test_pods_without_a_node_are_apart_and_those_of_a_node_that_is_gone_do_not_count():
    found = view_of(node(), pod(2000, node=""), pod(4000, JOB, node=""), pod(1000, node="gone"))
    assert found.resources[0] == ResourceUse("cpu", 8000, (0, 0, 0), free=8000, unusable=0, unscheduled=6000)


@pytest.mark.parametrize(
    ("objects", "names"),
    [
        ((node(),), ["cpu", "memory"]),
        ((), ["cpu", "memory"]),
        ((node(**{"cpu": 1, GPU: 4, "example.com/other": 1}),), ["cpu", GPU, "memory"]),
        ((node(), pod(1, node="", **{GPU: 1})), ["cpu", GPU, "memory"]),
    ],
)
def test_gpus_are_shown_where_they_exist_or_are_requested(objects, names):
    assert [each.name for each in view_of(*objects).resources] == names


def test_the_json_has_cores_and_bytes():
    found = as_json(view_of(node(cpu=8000, memory=2**30), pod(250, memory=2**20)))
    cpu, memory = found["resources"]
    assert (cpu["allocatable"], cpu["rayClusters"], cpu["free"]) == (8, 0.25, 7.75)
    assert (memory["allocatable"], memory["rayClusters"]) == (2**30, 2**20)


@pytest.mark.parametrize(
    ("labels", "holder"),
    [
        ({"ray.io/cluster": "a"}, RAY),
        ({"training.raytide.io/job": "a"}, None),
        ({"app": "x"}, OTHER),
        ({}, OTHER),
        (None, OTHER),
    ],
)
def test_the_labels_of_a_pod_say_what_it_belongs_to(labels, holder):
    from raytide.api.trainingjob_constants import JOB_LABEL

    if holder is None:
        labels, holder = {JOB_LABEL: "a"}, JOB
    found = decode_pod_requests(msgspec.json.encode({"metadata": {"name": "p", "labels": labels}}))
    assert (found.holder, found.node) == (holder, "")


@pytest.mark.parametrize(
    ("spec", "status", "is_usable"),
    [
        ({}, "True", True),
        ({"unschedulable": True}, "True", False),
        ({}, "False", False),
        ({}, "Unknown", False),
    ],
)
def test_a_cordoned_or_unready_node_takes_no_pods(spec, status, is_usable):
    body = {"metadata": {"name": "n"}, "spec": spec, "status": {"conditions": [{"type": "Ready", "status": status}]}}
    assert decode_node_offer(msgspec.json.encode(body)).is_usable is is_usable


def test_a_request_that_is_no_quantity_is_an_error():
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"resources": {"requests": {"cpu": "many"}}}]}}
    with pytest.raises(QuantityError):
        decode_pod_requests(msgspec.json.encode(body))


pods = st.builds(
    PodRequests,
    st.sampled_from(["", "n0", "n1", "gone"]),
    st.sampled_from(list(Holder)),
    st.fixed_dictionaries({}, optional={"cpu": st.integers(0, 9), GPU: st.integers(0, 2), "pods": st.just(1)}),
)


@given(st.lists(st.tuples(st.integers(0, 4), st.none() | pods), max_size=40))
def test_after_any_changes_the_sums_are_those_of_the_pods_that_remain(changes):
    changing, there = ClusterCapacity([GPU]), {}
    for each in (node(), node("n1")):
        changing.change_node(None, each)
    for name, new in changes:
        changing.change_pod(there.get(name), new)
        there[name] = new
    assert changing.view() == view_of(node(), node("n1"), *filter(None, there.values()))
    for each in (node(), node("n1")):
        changing.change_node(each, None)
    for each in filter(None, there.values()):
        changing.change_pod(each, None)
    assert changing.view() == view_of()
    assert changing._requested == {}
