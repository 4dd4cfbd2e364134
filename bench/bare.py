"""The costs of the same requests without an operator.

A bare client beside the operator's figures, in the same run: the machine sets the pace of a control plane, and a figure says
something about the operator only next to what any client gets there. Used by benches on a real control plane.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from control_plane import PODS, ControlPlaneHarness, probed

from harness import CLUSTERS

IN_FLIGHT = 32
"""As many as the operator has for one key (D7)."""


async def pod_template(ours: ControlPlaneHarness, kind: str) -> dict:
    """A pod as the operator sends it, `head` or `worker`."""
    pods = (await ours.call("GET", f"{PODS}?labelSelector=ray.io/node-type%3D{kind}&limit=1"))["items"]
    kept = {key: pods[0]["metadata"][key] for key in ("labels", "annotations") if key in pods[0]["metadata"]}
    spec = pods[0]["spec"]
    own_volumes = [each for each in spec["volumes"] if not each["name"].startswith("kube-api-access")]
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        mounts = container.get("volumeMounts", [])
        container["volumeMounts"] = [each for each in mounts if not each["name"].startswith("kube-api-access")]
    # no operator must take them for its own
    kept["labels"] = {**kept["labels"], "ray.io/cluster": "bare"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": {**spec, "volumes": own_volumes}}


@asynccontextmanager
async def operator_away(ours: ControlPlaneHarness) -> AsyncIterator[None]:
    """The bare client works alone: the operator's watch would be a second one."""
    await asyncio.to_thread(ours.operator.stop)
    try:
        yield
    finally:
        await ours.start_operator()


async def foreign_cluster(ours: ControlPlaneHarness, name: str) -> str:
    """Make a RayCluster of another controller, so that its pods are left alone; gives its uid."""
    container = {"name": "ray-head", "image": "rayproject/ray:2.60.0"}
    spec = {"managedBy": "kueue.x-k8s.io/multikueue", "rayVersion": "2.60.0"}
    spec["headGroupSpec"] = {"template": {"spec": {"containers": [container]}}}
    manifest = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name}, "spec": spec}
    uid: str = (await ours.call("POST", CLUSTERS, manifest))["metadata"]["uid"]
    return uid


async def bare_creates(ours: ControlPlaneHarness, template: dict, pods: int) -> float:
    """Pods per second of a client that does nothing else, but for one watch that it decodes.

    They have an owner as the operator's have: admission asks for each whether its maker may block the owner's deletion.
    """
    now = asyncio.get_running_loop().time
    is_open = asyncio.Event()
    uid = await foreign_cluster(ours, "bare")
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "bare", "uid": uid}
    owner |= {"controller": True, "blockOwnerDeletion": True}

    async def watch() -> None:
        async for _ in ours.watch_pods(is_open):
            pass

    async def create(first: int) -> None:
        headers = {"Content-Type": "application/json"}
        for number in range(first, pods, IN_FLIGHT):
            metadata = {**template["metadata"], "name": f"bare-{number:05d}", "ownerReferences": [owner]}
            body = msgspec.json.encode({**template, "metadata": metadata})
            async with ours.session.post(ours.base + PODS, data=body, headers=headers) as answer:
                assert answer.status == 201, await answer.text()
                msgspec.json.decode(await answer.read())

    watching = asyncio.create_task(watch())
    await is_open.wait()
    started = now()
    creating = asyncio.gather(*(create(first) for first in range(IN_FLIGHT)))
    ended = await ours.wait_for_pods(pods)
    await creating
    watching.cancel()
    return pods / (ended - started)


async def bare_cluster(ours: ControlPlaneHarness, template: dict, name: str) -> None:
    """What has to happen at the least until a new cluster's first pod: the cluster is made, read, and gets a pod."""
    await ours.call("POST", CLUSTERS, probed(name, 1))
    await ours.call("GET", f"{CLUSTERS}/{name}")
    labels = {**template["metadata"]["labels"], "ray.io/cluster": name, "probe": "yes"}
    metadata = {**template["metadata"], "name": f"{name}-head", "labels": labels}
    await ours.call("POST", PODS, {**template, "metadata": metadata})
