"""S20: what is deleted while no operator runs is removed by Kubernetes' garbage collector."""

import asyncio

import pytest

from acceptance.environment import Env
from acceptance.fleet import allowing, eventually

WORKERS = 20
GONE_S = 30.0


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
