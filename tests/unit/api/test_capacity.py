"""Requests of pods and capacity of nodes as kube-scheduler computes them, also with missing fields."""

import msgspec
import pytest

from raytide.api.capacity import (
    Priority,
    capacity_node_from_object,
    capacity_pod_from_object,
    capacity_quota_from_object,
    decode_capacity_node,
    decode_capacity_pod,
    priorities_of,
    priority_class_from_object,
)
from raytide.api.pod_requirements import NOWHERE, NodeRequirement, PodToleration
from raytide.api.quantity import QuantityError

MI = 1 << 20
GPU = "nvidia.com/gpu"


def pod(spec=None, *, phase="", **metadata):
    return capacity_pod_from_object(
        {"metadata": {"namespace": "ns", "name": "p", **metadata}, "spec": spec or {}, "status": {"phase": phase}}
    )


def box(requests=None, limits=None, **more):
    return {"name": "c", "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def side(requests):
    return box(requests, restartPolicy="Always")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, {}, id="a pod without containers requests only one of `pods`"),
        pytest.param({"containers": [{"name": "c"}]}, {}, id="so does one without resources"),
        pytest.param({"containers": None, "initContainers": None}, {}, id="and one with nulls"),
        pytest.param(
            {"containers": [box({"cpu": "500m", "memory": "1Mi"}), box({"cpu": 1})]},
            {"cpu": 1500, "memory": MI},
            id="containers add up, and numbers are quantities",
        ),
        pytest.param(
            {
                "containers": [box({"cpu": "1"})],
                "initContainers": [box({"cpu": "3"}), box({"cpu": "2", "memory": "5"})],
            },
            {"cpu": 3000, "memory": 5},
            id="of init containers the hungriest counts, resource by resource",
        ),
        pytest.param(
            {"containers": [box({"cpu": "1"})], "initContainers": [side({"cpu": "2"}), box({"cpu": "4"})]},
            {"cpu": 6000},
            id="an init container runs together with the sidecars before it",
        ),
        pytest.param(
            {"containers": [box({"cpu": "5"})], "initContainers": [box({"cpu": "4"}), side({"cpu": "2"})]},
            {"cpu": 7000},
            id="sidecars run together with the containers, and not with init containers before them",
        ),
        pytest.param(
            {"containers": [box({"cpu": "1"})], "overhead": {"cpu": "250m", "memory": "1"}},
            {"cpu": 1250, "memory": 1},
            id="overhead comes on top",
        ),
        pytest.param(
            {"containers": [box({"cpu": "1", "memory": "1"})], "resources": {"requests": {"cpu": "4"}}},
            {"cpu": 4000, "memory": 1},
            id="pod-level requests take precedence",
        ),
        pytest.param(
            {"containers": [box({"memory": "1"})], "resources": {"limits": {"cpu": "4", "memory": "9"}}},
            {"cpu": 4000, "memory": 1},
            id="a pod-level limit is a request if no container has one",
        ),
        pytest.param(
            {"containers": [box({}, {GPU: 2, "cpu": "1"})]},
            {"cpu": 1000, GPU: 2},
            id="a limit alone is requested, as the API server fills in",
        ),
        pytest.param(
            {"containers": [box({"cpu": "0.1m", "memory": "100m"})]},
            {"cpu": 1, "memory": 1},
            id="fractions are rounded up",
        ),
    ],
)
def test_requests(spec, expected):
    assert pod(spec).requests == {**expected, "pods": 1}


@pytest.mark.rule("TJ:3.5")
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"containers": [box({"cpu": "1"}, {"cpu": "2"})]}, {"cpu": 2000}, id="limits"),
        pytest.param(
            {"containers": [box({"cpu": "1"}, {"cpu": "2"}), box({"cpu": "3"})]},
            {"cpu": 5000},
            id="a container without a limit counts its request",
        ),
        pytest.param(
            {"containers": [box({"cpu": "1"})], "resources": {"limits": {"cpu": "8"}}},
            {"cpu": 8000},
            id="those of the whole pod",
        ),
        pytest.param(
            {"containers": [box({"cpu": "1"})], "resources": {"requests": {"cpu": "8"}}},
            {"cpu": 8000},
            id="or its request where it has none",
        ),
    ],
)
def test_limits(spec, expected):
    assert pod(spec).limits == expected


def test_what_a_pod_is():
    seen = pod(
        {"nodeName": "n", "priority": 7, "schedulingGates": [{"name": "g"}]},
        phase="Running",
        uid="u",
        labels={
            "raytide.io/training-job": "j",
            "raytide.io/training-role": "trainer",
            "raytide.io/training-index": "3",
        },
        ownerReferences=[{"uid": "other"}, {"uid": "o", "controller": True}],
        deletionTimestamp="2026-01-01T00:00:00Z",
        creationTimestamp="2025-01-01T00:00:00Z",
    )
    assert (seen.job_key, seen.role, seen.index, seen.owner_uid) == (("ns", "j"), "trainer", 3, "o")
    assert (seen.node, seen.priority, seen.is_running, seen.is_terminating, seen.is_finished) == (
        "n",
        7,
        True,
        True,
        False,
    )
    assert not seen.is_scheduling_gated, "it has a node, so the gates are open"
    assert pod({"schedulingGates": [{"name": "g"}]}).is_scheduling_gated
    ready = {"metadata": {"name": "p"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert capacity_pod_from_object(ready).is_ready
    assert not seen.is_ready
    assert pod(phase="Failed").is_finished
    assert pod(phase="Succeeded").is_finished
    assert pod(labels={"raytide.io/training-index": "-1"}).index is None


def test_node_selectors_and_affinity_of_a_pod():
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}], "matchFields": None}
    field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term, field, {}]}}
    seen = pod(
        {
            "nodeSelector": {"disk": "ssd"},
            "affinity": {"nodeAffinity": required},
            "tolerations": [{"operator": "Exists"}, {"key": "k", "value": "v", "effect": "NoSchedule"}],
        }
    ).constraints
    assert seen.node_selector == (("disk", "ssd"),)
    assert seen.terms == (
        (NodeRequirement("zone", "In", frozenset({"a"})),),
        (NodeRequirement("metadata.name", "In", frozenset({"n"}), is_field=True),),
    )
    assert seen.tolerations == (PodToleration("", "Exists"), PodToleration("k", "Equal", "v", "NoSchedule"))
    required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] = [{}]
    nowhere = pod({"affinity": {"nodeAffinity": required}}).constraints
    assert nowhere.terms == (NOWHERE,), "an empty term selects no node"


def test_equal_pods_share_their_requests():
    one, other = (pod({"containers": [box({"cpu": "1"})]}, uid=uid) for uid in ("1", "2"))
    assert one.requests is other.requests


def test_nodes():
    node = capacity_node_from_object(
        {
            "metadata": {"name": "n", "labels": {"zone": "a"}},
            "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {
                "capacity": {"cpu": "9"},
                "allocatable": {"cpu": "7910m", "memory": "1Ki", "pods": "110", GPU: "8"},
                "conditions": [{"type": "Ready", "status": "Unknown"}],
            },
        }
    )
    assert node.allocatable == {"cpu": 7910, "memory": 1024, "pods": 110, GPU: 8}
    assert (node.is_ready, node.is_cordoned, node.labels) == (False, True, {"zone": "a"})
    assert [tuple(taint) for taint in node.taints] == [("k", "", "NoSchedule")]
    bare = capacity_node_from_object({"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "2"}}})
    assert bare.allocatable == {"cpu": 2000}
    assert (bare.is_ready, bare.is_cordoned) == (True, False)


def test_quotas_by_their_own_names():
    quota = capacity_quota_from_object(
        {
            "metadata": {"name": "q", "namespace": "ns"},
            "spec": {
                "hard": {"requests.cpu": "9"},
                "scopes": ["NotTerminating"],
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]
                },
            },
            "status": {"hard": {"requests.cpu": "2", "limits.cpu": "4", "pods": "5"}, "used": {"requests.cpu": "500m"}},
        }
    )
    assert quota.hard == {"requests.cpu": 2000, "limits.cpu": 4000, "pods": 5}
    assert quota.used == {"requests.cpu": 500}
    assert quota.scopes == ("NotTerminating", "PriorityClass")
    assert quota.admits_class("high")
    assert not quota.admits_class("low")


def test_priorities_have_a_default():
    classes = [
        priority_class_from_object({"metadata": {"name": "low"}, "value": -5, "preemptionPolicy": "Never"}),
        priority_class_from_object({"metadata": {"name": "usual"}, "value": 10, "globalDefault": True}),
    ]
    assert priorities_of(classes) == {"low": Priority(-5, may_preempt=False), "usual": Priority(10), "": Priority(10)}


def test_bytes_and_objects_give_equal_values():
    obj = {"metadata": {"name": "p", "namespace": "ns"}, "spec": {"containers": [box({"cpu": "1"})]}}
    assert decode_capacity_pod(msgspec.json.encode(obj)) == capacity_pod_from_object(obj)
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1"}}}
    assert decode_capacity_node(msgspec.json.encode(node)) == capacity_node_from_object(node)


def test_an_invalid_quantity_is_named_in_the_error():
    with pytest.raises(QuantityError, match="lots"):
        pod({"containers": [box({"cpu": "lots"})]})


def test_only_changes_of_scheduling_fields_change_the_scheduling_state():
    before = pod({"containers": [box({"cpu": "1"})]}, resourceVersion="1")
    assert pod({"containers": [box({"cpu": "1"})]}, resourceVersion="2").scheduling_state == before.scheduling_state
    assert pod({"containers": [box({"cpu": "2"})]}, resourceVersion="2").scheduling_state != before.scheduling_state
    assert pod({"containers": [box({"cpu": "1"})], "nodeName": "n"}).scheduling_state != before.scheduling_state
