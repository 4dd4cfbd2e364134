"""S20: what is deleted while no operator runs goes all the same, by Kubernetes' own garbage collector."""

import asyncio

import pytest

from acceptance.stage import Stage
from acceptance.world import allowing, eventually

WORKERS = 20
GONE_S = 30.0


async def collects_children_of_rayclusters(stage: Stage) -> None:
    """A garbage collector knows a kind half a minute after its CRD; in a cluster that was long ago."""
    await stage.fleet.put(1, 0)
    (cluster,) = (await stage.admin.call("GET", stage.fleet.path))["items"]
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "c000", "uid": cluster["metadata"]["uid"]}
    path = f"/api/v1/namespaces/{stage.namespace}/configmaps"
    await stage.admin.call("POST", path, {"metadata": {"name": "child", "ownerReferences": [owner]}})
    await stage.fleet.remove("c000")

    async def is_collected() -> bool:
        return await allowing([404], stage.admin.call("GET", f"{path}/child")) is None

    await eventually("the garbage collector knows RayClusters", is_collected, within_s=90)


@pytest.mark.kube
@pytest.mark.timeout(600)
async def test_a_cluster_and_then_its_namespace_go_while_we_are_off(stage: Stage):
    await collects_children_of_rayclusters(stage)
    account = await stage.account("op")
    operator = await stage.operator(stage.direct_kubeconfig(account))
    await stage.fleet.put(1, WORKERS)
    await stage.fleet.steady(60)
    assert await operator.stop() == 0

    loop = asyncio.get_running_loop()
    began = loop.time()
    await stage.fleet.remove("c000")

    async def is_nothing_left() -> bool:
        return not stage.pods.by_name and not (await stage.admin.call("GET", stage.fleet.path))["items"]

    await eventually("the cluster and its pods are gone", is_nothing_left, within_s=GONE_S)
    cluster_s = loop.time() - began

    await stage.fleet.put(1, WORKERS)
    operator = await stage.operator(stage.direct_kubeconfig(account))
    await stage.fleet.steady(60)
    assert await operator.stop() == 0
    began = loop.time()
    await stage.admin.call("DELETE", f"/api/v1/namespaces/{stage.namespace}")

    async def is_gone() -> bool:
        return await allowing([404], stage.admin.call("GET", f"/api/v1/namespaces/{stage.namespace}")) is None

    await eventually("the namespace is gone", is_gone, within_s=GONE_S)
    stage.tell(f"S20: cluster gone after {cluster_s:.1f} s, namespace after {loop.time() - began:.1f} s")
