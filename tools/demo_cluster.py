"""What does the demo ask of the cluster?

A kubeconfig goes in; the few questions and orders of the demo come out as methods, through the product's own wires and,
for commands in pods, the API's exec over a WebSocket. It waits for nothing itself. Used by the demo only.
"""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from raytide.api.errors import Refused
from raytide.api.meta import PODS, RAYCLUSTERS, SERVICES, Key
from raytide.kube.client import Client, PatchKind
from raytide.kube.connect import connect
from raytide.runtime.clock import Clock

NAMESPACE = "default"
STDOUT, STDERR, ERROR = 1, 2, 3
"""Channels of `v5.channel.k8s.io`."""


class Failed(Exception):  # noqa: N818 - a sentence for a person
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

    # --- orders ----------------------------------------------------------------------------------------------------
    async def create(self, manifest: dict[str, Any]) -> None:
        """As `kubectl create`."""
        manifest["metadata"]["namespace"] = NAMESPACE
        try:
            await self._client.create(RAYCLUSTERS, manifest)
        except Refused as refused:
            raise Failed(f"the API refused {manifest['metadata']['name']}: {refused}") from refused

    async def scale(self, name: str, group: str, replicas: int) -> None:
        """As a user's edit of `replicas`."""
        body = [
            {"op": "test", "path": "/spec/workerGroupSpecs/0/groupName", "value": group},
            {"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": replicas},
        ]
        await self._client.patch(RAYCLUSTERS, Key(NAMESPACE, name), body, kind=PatchKind.JSON)

    async def lose(self, pod: str) -> None:
        """As a node that dies: the pod is gone at once."""
        found = await self._client.get(PODS, Key(NAMESPACE, pod))
        if found:
            await self._client.delete(PODS, Key(NAMESPACE, pod), found["metadata"]["uid"], grace_period_s=0)

    async def delete(self, name: str) -> None:
        """As `kubectl delete raycluster`."""
        found = await self._client.get(RAYCLUSTERS, Key(NAMESPACE, name))
        if found:
            await self._client.delete(RAYCLUSTERS, Key(NAMESPACE, name), found["metadata"]["uid"])

    async def expose_dashboard(self, name: str) -> str:
        """A NodePort service for the dashboard; its address on this machine."""
        selector = {"ray.io/cluster": name, "ray.io/node-type": "head"}
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": f"{name}-dashboard", "namespace": NAMESPACE},
            "spec": {"type": "NodePort", "selector": selector, "ports": [{"name": "dashboard", "port": 8265}]},
        }
        made = await self._client.create(SERVICES, service)
        return f"http://127.0.0.1:{made['spec']['ports'][0]['nodePort']}"

    async def execute(
        self, pod: str, command: list[str], *, timeout_s: float, is_cut_allowed: bool = False
    ) -> tuple[str, int]:
        """Run a command in the pod's first container; returns its output and exit code."""
        query = [("stdout", "true"), ("stderr", "true"), *(("command", word) for word in command)]
        url = f"{self._server}/api/v1/namespaces/{NAMESPACE}/pods/{pod}/exec"
        output, verdict = bytearray(), ""
        headers = {"authorization": f"Bearer {self._token}"}
        async with (
            asyncio.timeout(timeout_s),
            aiohttp.ClientSession(headers=headers) as session,
            session.ws_connect(
                url, params=query, ssl=self._ssl, protocols=("v5.channel.k8s.io",), max_msg_size=0
            ) as socket,
        ):
            async for message in socket:
                channel, payload = message.data[0], message.data[1:]
                if channel in (STDOUT, STDERR):
                    output += payload
                elif channel == ERROR:
                    verdict = payload.decode()
        if not verdict and not is_cut_allowed:
            raise Failed(f"exec in {pod} ended without a verdict: {output.decode(errors='replace')[-300:]}")
        return output.decode(errors="replace"), exit_code(verdict)

    # --- questions -------------------------------------------------------------------------------------------------
    async def _pods(self, name: str) -> list[dict[str, Any]]:
        selector = f"ray.io/cluster={name}"
        return [pod async for pod in self._client.list(PODS, NAMESPACE, label_selector=selector)]

    async def head(self, name: str) -> str:
        """The head pod's name."""
        return next(p["metadata"]["name"] for p in await self._pods(name) if is_of(p, "head"))

    async def workers(self, name: str) -> list[str]:
        """The worker pods' names."""
        return [p["metadata"]["name"] for p in await self._pods(name) if is_of(p, "worker")]

    async def are_ready(self, name: str, *, workers: int, without: str = "") -> tuple[bool, str]:
        """Whether the head and exactly that many workers are Ready."""
        pods = [p for p in await self._pods(name) if "deletionTimestamp" not in p["metadata"]]
        heads = sum(is_of(p, "head") and is_ready(p) for p in pods)
        ready = sum(is_of(p, "worker") and is_ready(p) for p in pods)
        is_there = any(p["metadata"]["name"] == without for p in pods)
        seen = f"head {heads}/1, workers {ready}/{workers} Ready, {len(pods)} pods"
        return heads == 1 and ready == workers and len(pods) == workers + 1 and not is_there, seen

    async def has_restarted(self, pod: str) -> tuple[bool, str]:
        """Whether the first container of the pod was started again."""
        found = await self._client.get(PODS, Key(NAMESPACE, pod))
        statuses = (found or {}).get("status", {}).get("containerStatuses") or [{}]
        restarts = statuses[0].get("restartCount", 0)
        return restarts > 0, f"{pod}: {restarts} restarts"

    async def says_ready(self, name: str) -> tuple[bool, str]:
        """Whether the RayCluster's own status says ready."""
        found = await self._client.get(RAYCLUSTERS, Key(NAMESPACE, name)) or {}
        state = found.get("status", {}).get("state", "")
        return state == "ready", f"state {state!r}"

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


def exit_code(verdict: str) -> int:
    """The exit code in the Status that ends an exec; -1 when there is none."""
    status = yaml.safe_load(verdict) or {}
    if status.get("status") == "Success":
        return 0
    causes = (status.get("details") or {}).get("causes") or []
    return next((int(c["message"]) for c in causes if c.get("reason") == "ExitCode"), -1)
