"""Sums of limits and load per pool of nodes, without nodes that no job may use, from manifests (FD:SH-B8)."""

import msgspec
import pytest

from raytide.api.config import SharingConfig
from raytide.api.trainingjob import TrainingJob
from raytide.fairshare.algorithm.allocate import allocate
from support.elastic_builders import resizes_of, waiting_of
from unit.fairshare.harness import job_manifest
from unit.fairshare.test_participants import made, node, pod_of

pytestmark = pytest.mark.rule("FD:SH-B8")

CONTROL_PLANE = {"taints": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]}
HALF = SharingConfig(max_load_percent={"cpu": 50})


def running(name, low, high, pool="", *, limit=1, **trainer):
    """A job with one trainer of one CPU, in one pool if it is named."""
    obj = job_manifest(name, low, high)
    obj["metadata"] |= {"namespace": "ns", "uid": f"uid-{name}", "generation": 1}
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": str(limit)}}
    where = {"nodeSelector": {"pool": pool}} if pool else {}
    obj["spec"]["trainer"] |= {"replicas": 1, "resources": resources, **where, **trainer}
    return TrainingJob.parse(obj)


def trainer_of(name, there, *, limit=1):
    return msgspec.structs.replace(pod_of(0, there, uid=f"uid-{name}", job=name), limits={"cpu": limit * 1000})


@pytest.mark.parametrize("limit", [1, 500])
def test_a_large_limit_in_one_pool_stops_no_growth_in_another(limit):
    """With a limit of 500 CPUs in the east, no job grew in the west, and no message named the cause."""
    nodes = [node(name, cpus, labels={"pool": name}) for name, cpus in (("east", "24"), ("west", "8"))]
    jobs = [running("fat", 1, 1, "east", limit=limit), running("growing", 1, 8, "west")]
    pods = [trainer_of("fat", "east", limit=limit), trainer_of("growing", "west")]
    plan = allocate(made(jobs, pods, nodes))
    assert (resizes_of(plan), waiting_of(plan)) == ({"growing": 7}, {})


def test_a_large_limit_still_stops_growth_in_its_own_pool():
    nodes = [node("east", "24", labels={"pool": "east"})]
    jobs = [running("fat", 1, 9, "east", limit=20)]
    assert resizes_of(allocate(made(jobs, [trainer_of("fat", "east", limit=20)], nodes))) == {}


@pytest.mark.parametrize(
    ("more", "size"),
    [
        pytest.param([], 12, id="alone"),
        pytest.param([node("control-plane", "64", **CONTROL_PLANE)], 12, id="with a control plane"),
        pytest.param([node("away", "64", unschedulable=True)], 12, id="with a cordoned node"),
        pytest.param([node("other", "24")], 24, id="with another node of the pool"),
    ],
)
def test_the_load_counts_nodes_that_a_job_may_use(more, size):
    """With a tainted control plane of 64 CPUs, 50 % of the load let a job use all 24 CPUs of the only other node."""
    pool = made([running("growing", 1, 60)], [trainer_of("growing", "n")], [node("n", "24"), *more], config=HALF)
    assert resizes_of(allocate(pool)) == {"growing": size - 1}
