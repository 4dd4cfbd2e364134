"""The control plane of benches: how it is started, filled and measured.

etcd, kube-apiserver and kube-controller-manager with fsync, without scheduler and kwok, because there operators can be
told apart (PF:1.8); `raytide operator` as a process with the rights of its chart; and the bench's own client. Operator
and client are service accounts: who is in `system:masters` never waits for priority and fairness. Same shape as
`harness.py`, so that a bench can run on either; run with `tests` on PYTHONPATH, as `make bench` does.
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

from harness import CLUSTERS, cluster

PARTS = ("etcd", "kube-apiserver", "kube-controller-manager")
PODS = "/api/v1/namespaces/bench/pods"
HOME = "raytide-system"
POLL_INTERVAL_S = 0.02
GONE_WITHIN_S = 120


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
        """How many pods there are; costs the API server next to nothing, unlike one more watch."""
        listed = await self.call("GET", f"{PODS}?limit=1")
        return len(listed["items"]) + (listed["metadata"].get("remainingItemCount") or 0)

    async def wait_for_pods(self, count: int, deadline_s: float = 120) -> float:
        """When that many were there first, on the loop's clock."""
        now = asyncio.get_running_loop().time
        async with asyncio.timeout(deadline_s):
            while await self.count_pods() < count:
                await asyncio.sleep(POLL_INTERVAL_S)
        return now()

    async def create_clusters(self, clusters: Sequence[dict]) -> None:
        """All at once."""
        await asyncio.gather(*(self.call("POST", CLUSTERS, each) for each in clusters))

    async def clear(self) -> None:
        """Delete every RayCluster and pod, and wait until they are gone."""
        await self.call("DELETE", CLUSTERS)
        async with asyncio.timeout(GONE_WITHIN_S):
            while (await self.call("GET", f"{CLUSTERS}?limit=1"))["items"]:
                await asyncio.sleep(0.2)
            await self.call("DELETE", f"{PODS}?gracePeriodSeconds=0")
            await self.call("DELETE", "/api/v1/namespaces/bench/events")
            while await self.count_pods():
                await asyncio.sleep(0.2)

    async def watch_pods(self, seen: asyncio.Event | None = None, *, selector: str = "") -> AsyncIterator[dict]:
        """Events of pods from now on; `seen` is set once the watch is open. A busy server closes watches: it goes on."""
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
    """Lines of any length."""
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line


def probed(name: str, workers: int) -> dict:
    """A small RayCluster whose pods a watch can select."""
    manifest = cluster(name, workers)
    groups = [manifest["spec"]["headGroupSpec"], *manifest["spec"]["workerGroupSpecs"]]
    for group in groups:
        group["template"]["metadata"] = {"labels": {"probe": "yes"}}
    return manifest


@asynccontextmanager
async def control_plane_harness() -> AsyncIterator[ControlPlaneHarness]:
    """Everything started fresh, on loopback, and ended at the end."""
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
