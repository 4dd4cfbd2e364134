"""What does the demo ask of the cluster?

A kubeconfig goes in; the few questions and orders of the demo come out as methods, through the product's own wires and,
for commands in pods, the API's exec over a WebSocket. It waits for nothing itself. Used by the demo only.
"""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from raytide.api.constants import GCS_SERVER_PORT
from raytide.api.errors import ApiStatusError
from raytide.api.meta import PODS, RAYCLUSTERS, SERVICES, Key
from raytide.autoscaler.gcs.channel import connect_gcs
from raytide.autoscaler.gcs.client import Gcs
from raytide.autoscaler.gcs.credentials import gcs_access
from raytide.autoscaler.model import NodeStatus
from raytide.cli.lane_watch import LaneWatch
from raytide.explain.overview import Lane
from raytide.kube.client import Client
from raytide.kube.kubeconfig import connect
from raytide.runtime.clock import Clock

from demo_scaling import Look

NAMESPACE = "default"
STDOUT, STDERR, ERROR = 1, 2, 3
"""Channels of `v5.channel.k8s.io`."""


class DemoError(Exception):
    """The demo cannot go on; the message says why."""


def is_ready(pod: dict[str, Any]) -> bool:
    """Whether the pod's Ready condition is True."""
    conditions = pod.get("status", {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


class DemoCluster:
    """One API server, seen by the demo."""

    def __init__(self, client: Client, kubeconfig: Path) -> None:
        self._client = client
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        self._server = cluster["server"]
        self._token = config["users"][0]["user"]["token"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._ssl = ssl.create_default_context(cadata=authority)

    @classmethod
    @asynccontextmanager
    async def at(cls, kubeconfig: Path) -> AsyncIterator["DemoCluster"]:
        """Connected, and closed at the end."""
        clock = Clock()
        transport = await connect(kubeconfig)
        try:
            yield cls(Client(transport, clock=clock), kubeconfig)
        finally:
            await transport.close()

    @asynccontextmanager
    async def lanes(self) -> AsyncIterator[Callable[[], list[Lane]]]:
        """What `raytide top` draws, followed for as long as the block lasts."""
        watch = LaneWatch(self._client, (NAMESPACE,), Clock())
        following = asyncio.create_task(watch.run())
        try:
            yield watch.lanes
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    # --- orders ----------------------------------------------------------------------------------------------------
    async def create(self, manifest: dict[str, Any]) -> None:
        """As `kubectl create`."""
        manifest["metadata"]["namespace"] = NAMESPACE
        try:
            await self._client.create(RAYCLUSTERS, manifest)
        except ApiStatusError as error:
            raise DemoError(f"the API server rejected {manifest['metadata']['name']}: {error}") from error

    async def delete(self, name: str) -> None:
        """As `kubectl delete raycluster`."""
        found = await self._client.get(RAYCLUSTERS, Key(NAMESPACE, name))
        if found:
            await self._client.delete(RAYCLUSTERS, Key(NAMESPACE, name), found["metadata"]["uid"])

    @asynccontextmanager
    async def exposed(self, name: str, what: str, port: int, *, is_kept: bool = False) -> AsyncIterator[str]:
        """A NodePort service for a port of the head: host:port on this machine, for as long as the block lasts."""
        selector = {"ray.io/cluster": name, "ray.io/node-type": "head"}
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": f"{name}-{what}", "namespace": NAMESPACE},
            "spec": {"type": "NodePort", "selector": selector, "ports": [{"name": what, "port": port}]},
        }
        made = await self._client.create(SERVICES, service)
        try:
            yield f"127.0.0.1:{made['spec']['ports'][0]['nodePort']}"
        finally:
            if not is_kept:
                metadata = made["metadata"]
                await self._client.delete(SERVICES, Key(NAMESPACE, metadata["name"]), metadata["uid"])

    @asynccontextmanager
    async def gcs(self, name: str) -> AsyncIterator[Gcs]:
        """The head's GCS, reachable from this machine as long as the block lasts."""
        async with self.exposed(name, "gcs", GCS_SERVER_PORT) as address:
            gcs = connect_gcs(address, gcs_access({}))
            try:
                yield gcs
            finally:
                await gcs.close()

    async def execute(self, pod: str, command: list[str], *, on_line: Callable[[str], None]) -> tuple[str, int]:
        """Run a command in the pod's first container, each line told as it comes; returns its output and exit code."""
        found = await self._client.get(PODS, Key(NAMESPACE, pod)) or {}
        container = found["spec"]["containers"][0]["name"]
        query = [("container", container), ("stdout", "true"), ("stderr", "true")]
        query += [("command", word) for word in command]
        url = f"{self._server}/api/v1/namespaces/{NAMESPACE}/pods/{pod}/exec"
        output, result, printed = bytearray(), "", 0
        headers = {"authorization": f"Bearer {self._token}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.ws_connect(
                url, params=query, ssl=self._ssl, protocols=("v5.channel.k8s.io",), max_msg_size=0
            ) as socket,
        ):
            async for message in socket:
                channel, payload = message.data[0], message.data[1:]
                if channel in (STDOUT, STDERR):
                    output += payload
                    while (end := output.find(b"\n", printed)) >= 0:
                        on_line(output[printed:end].decode(errors="replace"))
                        printed = end + 1
                elif channel == ERROR:
                    result = payload.decode()
        if not result:
            raise DemoError(f"exec in {pod} ended without a verdict: {output.decode(errors='replace')[-300:]}")
        return output.decode(errors="replace"), exit_code(result)

    # --- questions -------------------------------------------------------------------------------------------------
    async def _pods(self, name: str) -> list[dict[str, Any]]:
        selector = f"ray.io/cluster={name}"
        return [pod async for pod in self._client.list(PODS, NAMESPACE, label_selector=selector)]

    async def head(self, name: str) -> str:
        """The head pod's name."""
        return next(str(p["metadata"]["name"]) for p in await self._pods(name) if is_of(p, "head"))

    async def is_head_ready(self, name: str) -> tuple[bool, str]:
        """Whether the head is Ready, and no worker is there."""
        pods = await self._pods(name)
        heads = sum(is_of(pod, "head") and is_ready(pod) for pod in pods)
        workers = sum(is_of(pod, "worker") for pod in pods)
        return heads == 1 and not workers, f"head {heads}/1 Ready, {workers} workers"

    async def look(self, name: str, gcs: Gcs) -> Look:
        """What Ray asks for, what is wanted, and what is there."""
        cluster, pods, ray = await asyncio.gather(
            self._client.get(RAYCLUSTERS, Key(NAMESPACE, name)), self._pods(name), gcs.state()
        )
        workers = [pod for pod in pods if is_of(pod, "worker")]
        names = {pod["metadata"]["name"] for pod in workers}
        nodes = [node for node in ray.nodes if node.is_alive and node.instance_id in names]
        leaving = sum(node.status is NodeStatus.DRAINING for node in nodes)
        return Look(
            demand=sum(task.count for task in ray.tasks) + sum(len(gang.bundles) for gang in ray.gangs),
            wanted=sum(group["replicas"] for group in (cluster or {})["spec"]["workerGroupSpecs"]),
            pods=len(workers),
            ready_pods=sum(map(is_ready, workers)),
            nodes=len(nodes) - leaving,
            leaving=leaving,
        )

    async def is_gone(self, name: str) -> tuple[bool, str]:
        """Whether the RayCluster, its pods and its services are no more."""
        cluster = await self._client.get(RAYCLUSTERS, Key(NAMESPACE, name))
        pods = await self._pods(name)
        selector = f"ray.io/cluster={name}"
        services = [s async for s in self._client.list(SERVICES, NAMESPACE, label_selector=selector)]
        seen = f"{len(pods)} pods, {len(services)} services{', the RayCluster' if cluster else ''} left"
        return not pods and not services and cluster is None, seen


def is_of(pod: dict[str, Any], node_type: str) -> bool:
    """Whether the pod is a head or a worker."""
    labels = pod["metadata"].get("labels") or {}
    return bool(labels.get("ray.io/node-type") == node_type)


def exit_code(result: str) -> int:
    """The exit code in the Status that ends an exec; -1 when there is none."""
    status = yaml.safe_load(result) or {}
    if status.get("status") == "Success":
        return 0
    causes = (status.get("details") or {}).get("causes") or []
    return next((int(c["message"]) for c in causes if c.get("reason") == "ExitCode"), -1)
