"""What is kept of pods, nodes and quotas that tenants write: bounded, whatever they say, and gone with them."""

import gc
import json
import tracemalloc

import pytest

from raytide.api import constants
from raytide.api import trainingjob_constants as job_constants
from raytide.api.capacity import decode_capacity_node, decode_capacity_pod, decode_capacity_quota
from raytide.api.limits import MAX_CONSTRAINTS, MAX_QUOTA_RESOURCES, MAX_RESOURCES, MAX_UID
from raytide.api.pod import decode_pod
from raytide.api.service import decode_service
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_object import decode_job_object
from raytide.api.trainingjob_pod import decode_job_pod
from raytide.fairshare.algorithm.model import Node
from raytide.fairshare.algorithm.node_affinity import admits
from raytide.fairshare.job_view import decode_shared_job
from raytide.fairshare.node_usage import external_pods
from support.worst_objects import LARGE_NODES, LARGE_PODS, TOO_LARGE_PODS, WORST, affinity, host_in, job, pod, quota

pytestmark = pytest.mark.rule("FD:SEC3-2")
KEPT_BYTES = 128 * 1024
KEPT_BYTES_OF_A_JOB = 160 * 1024
"""Ten times the JSON of its scheduling fields."""
DECODERS = {
    "pods": decode_capacity_pod,
    "nodes": decode_capacity_node,
    "resourcequotas": decode_capacity_quota,
    "services": decode_service,
    "configmaps": decode_job_object,
    "trainingjobs.paddlepaddle.org": decode_shared_job,
}


def decoded(plural, obj):
    return DECODERS[plural](json.dumps(obj).encode())


@pytest.mark.parametrize("worst", WORST.values(), ids=WORST)
def test_what_is_kept_of_one_object_is_bounded_and_gone_with_it(worst):
    decoded(worst.plural, worst.make(99))
    documents = [json.dumps(worst.make(number)).encode() for number in range(3)]
    assert max(map(len, documents)) < 1_500_000, "the API server stores no more"
    gc.collect()
    tracemalloc.start()
    try:
        kept = [DECODERS[worst.plural](each) for each in documents]
        gc.collect()
        while_stored = tracemalloc.get_traced_memory()[0]
        kept.clear()
        gc.collect()
        afterwards = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert while_stored < 3 * (KEPT_BYTES_OF_A_JOB if "trainingjobs" in worst.plural else KEPT_BYTES)
    assert afterwards < KEPT_BYTES, "no cache holds what was deleted; msgspec keeps 512 short keys"


@pytest.mark.parametrize("worst", WORST.values(), ids=WORST)
@pytest.mark.slow
def test_objects_that_are_created_and_deleted_in_a_loop_fill_no_cache(worst):
    """A quota of one pod is no bound on what was there before."""
    first, *others = (json.dumps(worst.make(number)).encode() for number in range(20))
    DECODERS[worst.plural](first)
    gc.collect()
    tracemalloc.start()
    try:
        for document in others:
            DECODERS[worst.plural](document)
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < KEPT_BYTES, "msgspec keeps 512 short keys"


@pytest.mark.parametrize("make", TOO_LARGE_PODS.values(), ids=TOO_LARGE_PODS)
def test_a_pod_with_too_much_matches_no_node_and_counts_with_its_cpu(make):
    obj = make(0)
    found = decoded("pods", obj)
    assert found.is_too_large
    assert len(found.requests) <= MAX_RESOURCES
    has_cpu = obj["spec"]["containers"][0]["resources"].get("requests", {}).get("cpu")
    assert found.requests.get("cpu", 0) == (1000 if has_cpu or len(obj["spec"]["containers"]) == 1 else 0)
    assert found.requests["pods"] == 1
    assert not admits(Node("n", {}, labels={"kubernetes.io/hostname": "x0", "": ""}), found.constraints)
    assert external_pods([found]) == (), "no capacity is kept for what no node admits"


def test_what_a_usual_pod_has_stays_as_it_is():
    nodes = [f"ip-10-0-{number}-1.eu-west-1.compute.internal" for number in range(300)]
    tolerations = [{"key": f"k{number}", "operator": "Exists"} for number in range(MAX_CONSTRAINTS - 2)]
    found = decoded("pods", pod(0, affinity=affinity([host_in(*nodes)]), tolerations=tolerations))
    assert not found.is_too_large
    assert found.constraints.terms[0][0].values == frozenset(nodes)
    assert len(found.constraints.tolerations) == MAX_CONSTRAINTS - 2


@pytest.mark.parametrize("decode", [decode_pod, decode_job_pod, decode_service], ids=["Ray", "job", "service"])
def test_views_of_own_objects_keep_no_long_text_of_tenants(decode):
    marks = {
        constants.KUBERAY_VERSION_ANNOTATION: "v",
        constants.RECREATE_HASH_ANNOTATION: "h",
        job_constants.MEMBERSHIP_ANNOTATION: "m",
    }

    def large(n):
        metadata = {"annotations": {name: f"{n}" + text * 80_000 for name, text in marks.items()}}
        obj = pod(n, metadata={**metadata, "ownerReferences": [{"uid": f"{n}" + "u" * 900_000, "controller": True}]})
        return json.dumps(obj).encode()

    decode(large(99))
    documents = [large(number) for number in range(3)]
    tracemalloc.start()
    try:
        kept = [decode(each) for each in documents]
        assert tracemalloc.get_traced_memory()[0] < len(kept) * KEPT_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.rule("FD:SEC3-2")
def test_long_records_are_not_cached():
    texts = [json.dumps({"v": 1, "uid": f"u{number}", "x": "é" * 60_000}) for number in range(50)]
    annotation = job_constants.SHARING_ANNOTATION
    parsed = TrainingJob.parse({**job(0), "metadata": {"name": "j", "namespace": "t"}})
    tracemalloc.start()
    try:
        for text in texts:
            metadata = parsed.metadata.model_copy(update={"annotations": {annotation: text}})
            assert parsed.model_copy(update={"metadata": metadata}).record is None
        assert tracemalloc.get_traced_memory()[0] < 20 * KEPT_BYTES
    finally:
        tracemalloc.stop()


def test_equal_pods_share_their_requests_and_constraints():
    one, other = (decoded("pods", pod(number, nodeSelector={"zone": "a"})) for number in range(2))
    assert one.requests is other.requests
    assert one.constraints is other.constraints


@pytest.mark.parametrize("make", LARGE_NODES.values(), ids=LARGE_NODES)
def test_a_node_with_too_much_counts_as_cordoned(make):
    found = decoded("nodes", make(0))
    assert (found.is_too_large, found.is_cordoned) == (True, True)
    assert len(found.allocatable) <= MAX_RESOURCES
    assert (dict(found.labels), found.taints) == ({}, ())


def test_of_a_quota_the_resources_of_kubernetes_come_first():
    hard = {"cpu": "1", "zz": "2", **{f"requests.a.b/{k}": "1" for k in range(20_000)}}
    found = decoded("resourcequotas", quota(0, hard=hard))
    assert len(found.hard) == MAX_QUOTA_RESOURCES
    assert (found.hard["cpu"], found.hard["zz"]) == (1000, 2)


def test_the_uid_of_an_owner_is_cut_and_owns_nothing():
    found = decoded("pods", LARGE_PODS["the uid of an owner"](0))
    assert len(found.owner_uid) == MAX_UID
