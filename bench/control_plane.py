"""Real control plane for benchmarks, with the operator and with a bare client.

etcd, kube-apiserver and kube-controller-manager with fsync, without scheduler and kwok, with which operators differ measurably
(PF §1.8); `raytide operator` as a process with the permissions of its chart; and the client of the benchmark. Operator and client use
service accounts, because members of `system:masters` are exempt from API priority and fairness. The interface is that of
`harness.py`. The bare client sends the same requests as the operator in the same run: the machine limits the control plane, so that
a figure is only comparable with what any client reaches on the same machine.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec

from raytide_sandbox.controlplane.processes import ControlPlane, PlaneSettings, find_binary
from support.operator_process import OperatorProcess
from support.plane_admin import PlaneAdmin, token_of

from harness import CLUSTERS, PODS, cluster

PARTS = ("etcd", "kube-apiserver", "kube-controller-manager")
HOME = "raytide-system"
POLL_INTERVAL_S = 0.02
GONE_WITHIN_S = 120
IN_FLIGHT = 32
"""Concurrent requests of the bare client: as many as the operator sends for one key (D7)."""


class ControlPlaneHarness:
    """One control plane, the bench's client, and once started one operator.

    `operator` may be replaced by another one while none runs.
    """

    def __init__(self, client: PlaneAdmin, operator: OperatorProcess, admin: PlaneAdmin, folder: Path) -> None:
        self.admin = admin
        self.folder = folder
        self.base = client.server
        self.session = client.session
        self.call = client.call
        self.operator = operator

    async def start_operator(self) -> int:
        """Start the operator and wait until it is ready; returns its pid."""
        await asyncio.to_thread(self.operator.start)
        return self.operator.pid

    async def count_pods(self) -> int:
        """Number of pods; unlike a watch, this costs the API server almost nothing."""
        listed = await self.call("GET", f"{PODS}?limit=1")
        return len(listed["items"]) + (listed["metadata"].get("remainingItemCount") or 0)

    async def wait_for_pods(self, count: int, deadline_s: float = 120) -> float:
        """Wait for this number of pods; returns the time on the clock of the loop."""
        now = asyncio.get_running_loop().time
        async with asyncio.timeout(deadline_s):
            while await self.count_pods() < count:
                await asyncio.sleep(POLL_INTERVAL_S)
        return now()

    async def create_clusters(self, clusters: Sequence[dict]) -> None:
        """Create all clusters concurrently."""
        await asyncio.gather(*(self.call("POST", CLUSTERS, each) for each in clusters))

    async def clear(self) -> None:
        """Delete all RayClusters and pods, and wait until they are gone."""
        await self.call("DELETE", CLUSTERS)
        async with asyncio.timeout(GONE_WITHIN_S):
            while (await self.call("GET", f"{CLUSTERS}?limit=1"))["items"]:
                await asyncio.sleep(0.2)
            await self.call("DELETE", f"{PODS}?gracePeriodSeconds=0")
            await self.call("DELETE", "/api/v1/namespaces/bench/events")
            while await self.count_pods():
                await asyncio.sleep(0.2)

    async def watch_pods(self, seen: asyncio.Event | None = None, *, selector: str = "") -> AsyncIterator[dict]:
        """Watch events of pods from now on; `seen` is set when the watch is open. If the server closes it, it is opened again."""
        version = (await self.call("GET", f"{PODS}?limit=1"))["metadata"]["resourceVersion"]
        patience = aiohttp.ClientTimeout(total=None)
        while True:
            query = {"watch": "true", "resourceVersion": version, "labelSelector": selector}
            async with self.session.get(self.base + PODS, params=query, timeout=patience) as answer:
                if seen is not None:
                    seen.set()
                async for line in lines_of(answer.content):
                    event = msgspec.json.decode(line)
                    version = event["object"]["metadata"]["resourceVersion"]
                    yield event


async def lines_of(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The lines of a response, of any length."""
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line


class FirstPods:
    """Times at which a watch shows the first pods of RayClusters made by `probed()`."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()
        self._seen: dict[str, asyncio.Future[float]] = {}

    def of(self, name: str) -> asyncio.Future[float]:
        """The time on the clock of the loop, once the pod exists."""
        return self._seen.setdefault(name, asyncio.get_running_loop().create_future())

    async def follow(self, ours: ControlPlaneHarness) -> None:
        """Watch until cancelled."""
        now = asyncio.get_running_loop().time
        async for event in ours.watch_pods(self.is_open, selector="probe=yes"):
            first = self.of(event["object"]["metadata"]["labels"]["ray.io/cluster"])
            if event["type"] == "ADDED" and not first.done():
                first.set_result(now())

    @asynccontextmanager
    async def following(self, ours: ControlPlaneHarness) -> AsyncIterator[None]:
        """Watch in the background."""
        task = asyncio.create_task(self.follow(ours))
        await self.is_open.wait()
        yield
        task.cancel()


def probed(name: str, workers: int) -> dict:
    """A small RayCluster whose pods have a label for a watch."""
    manifest = cluster(name, workers)
    groups = [manifest["spec"]["headGroupSpec"], *manifest["spec"]["workerGroupSpecs"]]
    for group in groups:
        group["template"]["metadata"] = {"labels": {"probe": "yes"}}
    return manifest


@asynccontextmanager
async def control_plane_harness() -> AsyncIterator[ControlPlaneHarness]:
    """A new control plane and its clients, on loopback, until the block ends."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raytide-bench-")))
        settings = PlaneSettings(parts=PARTS, gogc=400, is_durable=True)
        plane = stack.enter_context(ControlPlane(folder / "plane", find_binary(), settings))
        admin = await stack.enter_async_context(PlaneAdmin(plane.server, plane.authority, plane.admin_token))
        await admin.install_crd()
        await admin.make_namespaces("bench", HOME)
        account = await admin.operator_account(HOME, folder)
        token = token_of(await admin.powerful_account(HOME, folder, "bench"))
        client = await stack.enter_async_context(PlaneAdmin(plane.server, plane.authority, token))
        operator = OperatorProcess(account, folder / "operator.log", environment={"POD_NAMESPACE": HOME})
        stack.callback(operator.stop)
        yield ControlPlaneHarness(client, operator, admin, folder)


# --- the bare client -------------------------------------------------------------------------------------------------------


async def pod_template(ours: ControlPlaneHarness, kind: str) -> dict:
    """A pod as the operator sends it, `head` or `worker`."""
    pods = (await ours.call("GET", f"{PODS}?labelSelector=ray.io/node-type%3D{kind}&limit=1"))["items"]
    kept = {key: pods[0]["metadata"][key] for key in ("labels", "annotations") if key in pods[0]["metadata"]}
    spec = pods[0]["spec"]
    own_volumes = [each for each in spec["volumes"] if not each["name"].startswith("kube-api-access")]
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        mounts = container.get("volumeMounts", [])
        container["volumeMounts"] = [each for each in mounts if not each["name"].startswith("kube-api-access")]
    # with the label of another cluster, so that the operator does not adopt or delete them
    kept["labels"] = {**kept["labels"], "ray.io/cluster": "bare"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": {**spec, "volumes": own_volumes}}


@asynccontextmanager
async def operator_stopped(ours: ControlPlaneHarness) -> AsyncIterator[None]:
    """Stop the operator until the block ends: its watch would be a second one."""
    await asyncio.to_thread(ours.operator.stop)
    try:
        yield
    finally:
        await ours.start_operator()


async def foreign_cluster(ours: ControlPlaneHarness, name: str) -> str:
    """Create a RayCluster of another controller, which the operator ignores; returns its uid."""
    container = {"name": "ray-head", "image": "rayproject/ray:2.60.0"}
    spec = {"managedBy": "kueue.x-k8s.io/multikueue", "rayVersion": "2.60.0"}
    spec["headGroupSpec"] = {"template": {"spec": {"containers": [container]}}}
    manifest = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name}, "spec": spec}
    uid: str = (await ours.call("POST", CLUSTERS, manifest))["metadata"]["uid"]
    return uid


async def bare_creates(ours: ControlPlaneHarness, template: dict, pods: int) -> float:
    """Pods per second of a client that only creates pods and decodes one watch.

    The pods have an owner like those of the operator: admission checks whether the creator may block the deletion of the owner.
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
    """Send the requests for the first pod of a new RayCluster: create and read the RayCluster, create the pod."""
    await ours.call("POST", CLUSTERS, probed(name, 1))
    await ours.call("GET", f"{CLUSTERS}/{name}")
    labels = {**template["metadata"]["labels"], "ray.io/cluster": name, "probe": "yes"}
    metadata = {**template["metadata"], "name": f"{name}-head", "labels": labels}
    await ours.call("POST", PODS, {**template, "metadata": metadata})
