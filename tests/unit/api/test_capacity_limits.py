"""What is kept of pods, nodes and quotas that tenants write: bounded, whatever they say, and gone with them."""

import gc
import itertools
import json
import tracemalloc

import pytest

from raytide.api.capacity import decode_capacity_node, decode_capacity_pod, decode_capacity_quota
from raytide.api.limits import MAX_CONSTRAINTS, MAX_QUOTA_RESOURCES, MAX_RESOURCES, MAX_UID
from raytide.fairshare.algorithm.model import Node
from raytide.fairshare.algorithm.node_affinity import admits
from raytide.fairshare.node_usage import external_pods

pytestmark = pytest.mark.rule("FD:SEC3-2")
KEPT_BYTES = 64 * 1024


def long_list(count: int) -> list[str]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return ["".join(each) for each in itertools.islice(itertools.product(letters, repeat=4), count)]


def affinity(*requirements: dict) -> dict:
    terms = [{"matchExpressions": list(requirements)}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def pod_of(number: int = 0, resources: dict | None = None, *, containers: list | None = None, **spec) -> bytes:
    container = {"name": "c", "resources": {"requests": {"cpu": "1", **(resources or {})}}}
    metadata = {"namespace": "t", "name": f"p{number}", "uid": f"u{number}", **spec.pop("metadata", {})}
    return json.dumps({"metadata": metadata, "spec": {"containers": containers or [container], **spec}}).encode()


IN = {"operator": "In", "key": "kubernetes.io/hostname"}
PODS = {
    "values of an affinity": lambda n: pod_of(n, affinity=affinity({**IN, "values": [f"x{n}", *long_list(60_000)]})),
    "requirements": lambda n: pod_of(n, affinity=affinity(*({**IN, "values": [f"x{n}-{k}"]} for k in range(10_000)))),
    "long values": lambda n: pod_of(n, affinity=affinity({**IN, "values": [str(n) + "x" * 1_000_000]})),
    "selectors": lambda n: pod_of(n, nodeSelector={f"key-{n}-{k}": "v" for k in range(20_000)}),
    "tolerations": lambda n: pod_of(n, tolerations=[{"key": f"key-{n}-{k}"} for k in range(20_000)]),
    "resources": lambda n: pod_of(n, {f"a.b/{n}x{k}": "1" for k in range(20_000)}),
    "resources of many containers": lambda n: pod_of(
        n, containers=[{"resources": {"limits": {f"a.b/{n}x{k}": "1"}}} for k in range(10_000)]
    ),
}
OTHER_PODS = {
    "uids of owners": lambda n: pod_of(n, metadata={"ownerReferences": [{"uid": f"{n}" + "u" * 900_000, "controller": True}]}),
    "labels": lambda n: pod_of(n, metadata={"labels": {f"l{n}-{k}": "v" * 60 for k in range(10_000)}}),
    "annotations": lambda n: pod_of(n, metadata={"annotations": {"a": f"{n}" + "\u202e" * 80_000}}),
    "gates": lambda n: pod_of(n, schedulingGates=[{"name": f"g{n}-{k}"} for k in range(20_000)]),
}  # fmt: skip


def of_metadata(kind, n, **fields):
    return json.dumps(
        {"metadata": {"name": f"{kind}{n}", "namespace": "t", **fields.pop("metadata", {})}, **fields}
    ).encode()


OTHERS = {
    "labels of a node": lambda n: decode_capacity_node(
        of_metadata("n", n, metadata={"labels": {f"l{n}-{k}": "v" * 60 for k in range(20_000)}})
    ),
    "taints of a node": lambda n: decode_capacity_node(of_metadata("n", n, spec={"taints": [{"key": f"t{n}-{k}"} for k in range(20_000)]})),
    "resources of a node": lambda n: decode_capacity_node(of_metadata("n", n, status={"allocatable": {f"a.b/{n}x{k}": "1" for k in range(20_000)}})),
    "resources of a quota": lambda n: decode_capacity_quota(of_metadata("q", n, spec={"hard": {f"requests.a.b/{n}x{k}": "1" for k in range(20_000)}})),
    "classes of a quota": lambda n: decode_capacity_quota(
        of_metadata("q", n, spec={"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": [f"{n}-{each}" for each in long_list(50_000)]}]}})
    ),
}  # fmt: skip
EVERYTHING = {
    **{name: lambda n, make=make: decode_capacity_pod(make(n)) for name, make in {**PODS, **OTHER_PODS}.items()},
    **OTHERS,
}


@pytest.mark.parametrize("decode", EVERYTHING.values(), ids=EVERYTHING)
def test_what_is_kept_of_one_object_is_bounded_and_gone_with_it(decode):
    decode(99)
    gc.collect()
    tracemalloc.start()
    try:
        kept = [decode(number) for number in range(3)]
        gc.collect()
        while_stored = tracemalloc.get_traced_memory()[0]
        kept.clear()
        gc.collect()
        afterwards = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert while_stored < 3 * KEPT_BYTES
    assert afterwards < KEPT_BYTES, "no cache holds what was deleted; msgspec keeps 512 short keys"


@pytest.mark.parametrize("make", PODS.values(), ids=PODS)
def test_a_pod_with_too_much_matches_no_node_and_counts_with_its_cpu(make):
    found = decode_capacity_pod(make(0))
    assert found.is_too_large
    assert len(found.requests) <= MAX_RESOURCES
    if make is not PODS["resources of many containers"]:
        assert found.requests["cpu"] == 1000
    assert found.requests["pods"] == 1
    assert not admits(Node("n", {}, labels={"kubernetes.io/hostname": "x0", "": ""}), found.constraints)
    assert external_pods([found]) == (), "no capacity is kept for what no node admits"


def test_what_a_usual_pod_has_stays_as_it_is():
    nodes = [f"ip-10-0-{number}-1.eu-west-1.compute.internal" for number in range(300)]
    tolerations = [{"key": f"k{number}", "operator": "Exists"} for number in range(MAX_CONSTRAINTS - 1)]
    found = decode_capacity_pod(pod_of(affinity=affinity({**IN, "values": nodes}), tolerations=tolerations))
    assert not found.is_too_large
    assert found.constraints.terms[0][0].values == frozenset(nodes)
    assert len(found.constraints.tolerations) == MAX_CONSTRAINTS - 1


def test_equal_pods_share_their_requests_and_constraints():
    one, other = (decode_capacity_pod(pod_of(number, nodeSelector={"zone": "a"})) for number in range(2))
    assert one.requests is other.requests
    assert one.constraints is other.constraints


@pytest.mark.parametrize("row", ["labels of a node", "taints of a node", "resources of a node"])
def test_a_node_with_too_much_counts_as_cordoned(row):
    found = OTHERS[row](0)
    assert (found.is_too_large, found.is_cordoned) == (True, True)
    assert len(found.allocatable) <= MAX_RESOURCES
    assert (dict(found.labels), found.taints) == ({}, ())


def test_of_a_quota_the_resources_of_kubernetes_come_first():
    hard = {"cpu": "1", "zz": "2", **{f"requests.a.b/{k}": "1" for k in range(20_000)}}
    found = decode_capacity_quota(json.dumps({"metadata": {"name": "q"}, "spec": {"hard": hard}}).encode())
    assert len(found.hard) == MAX_QUOTA_RESOURCES
    assert (found.hard["cpu"], found.hard["zz"]) == (1000, 2)


def test_the_uid_of_an_owner_is_cut_and_owns_nothing():
    found = decode_capacity_pod(OTHER_PODS["uids of owners"](0))
    assert len(found.owner_uid) == MAX_UID
