"""S20: what is deleted while no operator runs is removed by Kubernetes' garbage collector.

A RayCluster with its state in Redis waits for the operator, which cleans up; whatever becomes of that, it is gone within a minute.
"""

import asyncio

import pytest

from acceptance.environment import Env
from acceptance.fleet import allowing, eventually

WORKERS = 20
GONE_S = 30.0
IN_REDIS = {"gcsFaultToleranceOptions": {"redisAddress": "redis:6379"}, "rayVersion": "2.52.0"}
CLEANED_UP_S = 60.0
NO_JOBS = {"metadata": {"name": "no-jobs"}, "spec": {"hard": {"count/jobs.batch": "0"}}}


async def collects_children_of_rayclusters(env: Env) -> None:
    """A garbage collector knows a kind half a minute after its CRD; in a cluster that was long ago."""
    await env.fleet.put(1, 0)
    (cluster,) = (await env.admin.call("GET", env.fleet.path))["items"]
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "c000", "uid": cluster["metadata"]["uid"]}
    path = f"/api/v1/namespaces/{env.namespace}/configmaps"
    await env.admin.call("POST", path, {"metadata": {"name": "child", "ownerReferences": [owner]}})
    await env.fleet.remove("c000")

    async def is_collected() -> bool:
        return await allowing([404], env.admin.call("GET", f"{path}/child")) is None

    await eventually("the garbage collector knows RayClusters", is_collected, within_s=90)


@pytest.mark.kube
@pytest.mark.timeout(600)
async def test_a_cluster_and_then_its_namespace_are_deleted_without_an_operator(env: Env):
    await collects_children_of_rayclusters(env)
    account = await env.account("op")
    operator = await env.operator(env.direct_kubeconfig(account))
    await env.fleet.put(1, WORKERS)
    await env.fleet.steady(60)
    assert await operator.stop() == 0

    loop = asyncio.get_running_loop()
    began = loop.time()
    await env.fleet.remove("c000")

    async def is_nothing_left() -> bool:
        return not env.pods.by_name and not (await env.admin.call("GET", env.fleet.path))["items"]

    await eventually("the cluster and its pods are gone", is_nothing_left, within_s=GONE_S)
    cluster_s = loop.time() - began

    await env.fleet.put(1, WORKERS)
    operator = await env.operator(env.direct_kubeconfig(account))
    await env.fleet.steady(60)
    assert await operator.stop() == 0
    began = loop.time()
    await env.admin.call("DELETE", f"/api/v1/namespaces/{env.namespace}")

    async def is_gone() -> bool:
        return await allowing([404], env.admin.call("GET", f"/api/v1/namespaces/{env.namespace}")) is None

    await eventually("the namespace is gone", is_gone, within_s=GONE_S)
    env.record(f"S20: cluster gone after {cluster_s:.1f} s, namespace after {loop.time() - began:.1f} s")


@pytest.mark.kube
@pytest.mark.rule("SC:S20", "RC:FIN-3")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("phase", "is_forbidden", "reason"),
    [
        pytest.param("Succeeded", False, "CreatedRedisCleanupJob", id="the Job succeeds"),
        pytest.param("Failed", False, "RedisCleanupFailed", id="the Job fails"),
        pytest.param("", True, "RedisCleanupFailed", id="a quota forbids the Job"),
    ],
)
async def test_a_cluster_with_its_state_in_redis_is_cleaned_up_by_the_next_operator(
    env: Env,
    phase: str,
    is_forbidden: bool,  # noqa: FBT001
    reason: str,
) -> None:
    env.kubelet.ends_as = lambda pod: phase if pod["metadata"]["labels"]["ray.io/node-type"] == "redis-cleanup" else ""
    if is_forbidden:
        await env.admin.call("POST", f"/api/v1/namespaces/{env.namespace}/resourcequotas", NO_JOBS)
    account = await env.account("op")
    operator = await env.operator(env.direct_kubeconfig(account))
    await env.fleet.put(1, WORKERS, **IN_REDIS)
    await env.fleet.steady(60)
    assert await operator.stop() == 0
    await env.fleet.remove("c000")
    (waiting,) = (await env.admin.call("GET", env.fleet.path))["items"]
    assert waiting["metadata"]["finalizers"] == ["ray.io/gcs-ft-redis-cleanup-finalizer"]

    loop = asyncio.get_running_loop()
    began = loop.time()
    operator = await env.operator(env.direct_kubeconfig(account))

    async def is_nothing_left() -> bool:
        return not env.pods.by_name and not (await env.admin.call("GET", env.fleet.path))["items"]

    await eventually("the cluster, its pods and those of its Job are gone", is_nothing_left, within_s=CLEANED_UP_S)
    env.record(f"S20: with a clean-up ({phase or 'forbidden'}) gone after {loop.time() - began:.1f} s")
    events = (await env.admin.call("GET", f"/api/v1/namespaces/{env.namespace}/events"))["items"]
    found = [
        event for event in events if "leanup" in event["reason"] and event["involvedObject"]["kind"] == "RayCluster"
    ]
    assert reason in {event["reason"] for event in found}
    assert sum(event.get("count") or 1 for event in found if event["type"] == "Warning") <= 10


@pytest.mark.kube
@pytest.mark.rule("SC:S20", "RC:FIN-3")
@pytest.mark.timeout(600)
async def test_a_namespace_with_such_a_cluster_is_gone_with_its_pods(env: Env) -> None:
    """Its API server rejects the Job: nothing waits for that."""
    account = await env.account("op")
    await env.operator(env.direct_kubeconfig(account))
    await env.fleet.put(1, WORKERS, **IN_REDIS)
    await env.fleet.steady(60)
    await env.admin.call("DELETE", f"/api/v1/namespaces/{env.namespace}")

    async def is_gone() -> bool:
        return await allowing([404], env.admin.call("GET", f"/api/v1/namespaces/{env.namespace}")) is None

    await eventually("the namespace is gone", is_gone, within_s=GONE_S)
