"""Requests of the demos to the cluster: objects, NodePort services, GCS, and commands in pods.

Uses the API client and the GCS client of the operator, and the API's exec over a WebSocket. Does not wait for states. Used by
demo.py and demo_elastic_cluster.py.
"""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml

from raytide.api.constants import GCS_SERVER_PORT
from raytide.api.errors import ApiStatusError
from raytide.api.meta import PODS, RAYCLUSTERS, SERVICES, Key, Resource
from raytide.autoscaler.gcs.channel import connect_gcs
from raytide.autoscaler.gcs.client import Gcs
from raytide.autoscaler.gcs.credentials import gcs_access
from raytide.autoscaler.model import NodeStatus
from raytide.cli.lane_watch import LaneWatch
from raytide.explain.overview import Lane
from raytide.kube.client import Client
from raytide.kube.kubeconfig import connect
from raytide.runtime.clock import Clock

from demo_scaling import Snapshot

Json = dict[str, Any]

NAMESPACE = "default"
STDOUT, STDERR, ERROR = 1, 2, 3
"""Channels of the protocol `v5.channel.k8s.io`."""


class DemoError(Exception):
    """The demo has failed; the message has the reason."""


def is_ready(pod: dict[str, Any]) -> bool:
    """Whether the condition Ready of the pod is True."""
    conditions = pod.get("status", {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


class DemoCluster:
    """Client of the API server of the demo."""

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
    async def at(cls, kubeconfig: Path) -> AsyncIterator[Self]:
        """Connect to the API server until the block ends."""
        transport = await connect(kubeconfig)
        try:
            yield cls(Client(transport, clock=Clock()), kubeconfig)
        finally:
            await transport.close()

    @asynccontextmanager
    async def lanes(self) -> AsyncIterator[Callable[[], list[Lane]]]:
        """Function that returns the current lanes of `raytide top`, which are watched until the block ends."""
        watch = LaneWatch(self._client, (NAMESPACE,), Clock())
        following = asyncio.create_task(watch.run())
        try:
            yield watch.lanes
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def create(self, resource: Resource, manifest: Json) -> Json:
        """Create an object in the demo's namespace; raises DemoError if the API server rejects it."""
        manifest["metadata"]["namespace"] = NAMESPACE
        try:
            return await self._client.create(resource, manifest)
        except ApiStatusError as error:
            raise DemoError(f"the API server rejected {manifest['metadata']['name']}: {error}") from error

    async def expose(self, name: str, port_name: str, port: int, selector: dict[str, str]) -> tuple[str, Json]:
        """Create a NodePort service; returns its host:port on this machine, and the service."""
        spec = {"type": "NodePort", "selector": selector, "ports": [{"name": port_name, "port": port}]}
        metadata = {"name": f"{name}-{port_name}"}
        service = await self.create(
            SERVICES, {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
        )
        return f"127.0.0.1:{service['spec']['ports'][0]['nodePort']}", service

    async def delete(self, name: str) -> None:
        """Delete a RayCluster, if it exists."""
        found = await self._client.get(RAYCLUSTERS, Key(NAMESPACE, name))
        if found:
            await self._client.delete(RAYCLUSTERS, Key(NAMESPACE, name), found["metadata"]["uid"])

    @asynccontextmanager
    async def gcs(self, name: str) -> AsyncIterator[Gcs]:
        """Client of the GCS in the head of a RayCluster, until the block ends."""
        address, service = await self.expose(name, "gcs", GCS_SERVER_PORT, head_selector(name))
        gcs = connect_gcs(address, gcs_access({}))
        try:
            yield gcs
        finally:
            await gcs.close()
            metadata = service["metadata"]
            await self._client.delete(SERVICES, Key(NAMESPACE, metadata["name"]), metadata["uid"])

    async def execute(self, pod: str, command: list[str], *, on_line: Callable[[str], None]) -> tuple[str, int]:
        """Run a command in the first container of a pod; calls `on_line` for each line, returns output and exit code."""
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
            raise DemoError(f"exec in {pod} ended without a status: {output.decode(errors='replace')[-300:]}")
        return output.decode(errors="replace"), exit_code(result)

    async def _pods(self, name: str) -> list[dict[str, Any]]:
        selector = f"ray.io/cluster={name}"
        return [pod async for pod in self._client.list(PODS, NAMESPACE, label_selector=selector)]

    async def head(self, name: str) -> str:
        """Name of the head pod."""
        return next(str(p["metadata"]["name"]) for p in await self._pods(name) if is_of(p, "head"))

    async def is_head_ready(self, name: str) -> tuple[bool, str]:
        """Whether the head is Ready and there are no workers, and the state."""
        pods = await self._pods(name)
        heads = sum(is_of(pod, "head") and is_ready(pod) for pod in pods)
        workers = sum(is_of(pod, "worker") for pod in pods)
        return heads == 1 and not workers, f"head {heads}/1 Ready, {workers} workers"

    async def snapshot(self, name: str, gcs: Gcs) -> Snapshot:
        """Demand, desired replicas, pods and Ray nodes of a RayCluster."""
        cluster, pods, ray = await asyncio.gather(
            self._client.get(RAYCLUSTERS, Key(NAMESPACE, name)), self._pods(name), gcs.state()
        )
        workers = [pod for pod in pods if is_of(pod, "worker")]
        names = {pod["metadata"]["name"] for pod in workers}
        nodes = [node for node in ray.nodes if node.is_alive and node.instance_id in names]
        draining = sum(node.status is NodeStatus.DRAINING for node in nodes)
        return Snapshot(
            demand=sum(task.count for task in ray.tasks) + sum(len(gang.bundles) for gang in ray.gangs),
            wanted=sum(group["replicas"] for group in (cluster or {})["spec"]["workerGroupSpecs"]),
            pods=len(workers),
            ready_pods=sum(map(is_ready, workers)),
            nodes=len(nodes) - draining,
            draining=draining,
        )

    async def is_gone(self, name: str) -> tuple[bool, str]:
        """Whether the RayCluster, its pods and its services are deleted, and what is left."""
        cluster = await self._client.get(RAYCLUSTERS, Key(NAMESPACE, name))
        pods = await self._pods(name)
        selector = f"ray.io/cluster={name}"
        services = [s async for s in self._client.list(SERVICES, NAMESPACE, label_selector=selector)]
        seen = f"{len(pods)} pods, {len(services)} services{', the RayCluster' if cluster else ''} left"
        return not pods and not services and cluster is None, seen


def head_selector(name: str) -> dict[str, str]:
    """Labels of the head of a RayCluster."""
    return {"ray.io/cluster": name, "ray.io/node-type": "head"}


def is_of(pod: dict[str, Any], node_type: str) -> bool:
    """Whether the pod has this node type: head or worker."""
    labels = pod["metadata"].get("labels") or {}
    return bool(labels.get("ray.io/node-type") == node_type)


def exit_code(result: str) -> int:
    """The exit code in the Status that ends an exec; -1 if it has none."""
    status = yaml.safe_load(result) or {}
    if status.get("status") == "Success":
        return 0
    causes = (status.get("details") or {}).get("causes") or []
    return next((int(c["message"]) for c in causes if c.get("reason") == "ExitCode"), -1)
