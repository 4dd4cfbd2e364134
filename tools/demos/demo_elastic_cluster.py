"""What does the elastic demo ask of the cluster, and of the masters of its jobs?

A kubeconfig goes in; orders (create a job, tell it that it is good enough) and questions (what is decided, what runs, how
far is the training) come out as methods, through the product's own wires and a node port for each master. It waits for
nothing itself. Used by demo_elastic.py.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from raytide.api.errors import ApiStatusError
from raytide.api.meta import CONFIG_MAPS, PODS, SERVICES, TRAININGJOBS, Key
from raytide.api.trainingjob_constants import JOB_LABEL, MASTER, ROLE_LABEL, TRAINER
from raytide.kube.client import Client
from raytide.kube.kubeconfig import connect
from raytide.runtime.clock import Clock

from demo_cluster import NAMESPACE, DemoError

Json = dict[str, Any]

MASTER_PORT = 8080
ANSWER_S = 5.0
LAST_TASKS = 5


@dataclass(frozen=True, slots=True)
class JobLook:
    """One job at one moment."""

    name: str
    wanted: int = 0
    running: int = 0
    phase: str = ""
    done: int = 0
    """Tasks."""
    loss: float | None = None
    """Of the last tasks."""


class ElasticCluster:
    """One API server and the masters behind it."""

    def __init__(self, client: Client, session: aiohttp.ClientSession) -> None:
        self._client = client
        self._session = session
        self._masters: dict[str, str] = {}
        self._progress: dict[str, Json] = {}

    @classmethod
    @asynccontextmanager
    async def at(cls, kubeconfig: Path) -> AsyncIterator["ElasticCluster"]:
        """Connected, and closed at the end."""
        transport = await connect(kubeconfig)
        patience = aiohttp.ClientTimeout(total=ANSWER_S)
        try:
            async with aiohttp.ClientSession(timeout=patience) as session:
                yield cls(Client(transport, clock=Clock()), session)
        finally:
            await transport.close()

    # --- orders ------------------------------------------------------------------------------------------------------
    async def create_programs(self, manifest: Json) -> None:
        """The ConfigMap that all jobs share."""
        manifest["metadata"]["namespace"] = NAMESPACE
        await self._client.create(CONFIG_MAPS, manifest)

    async def create(self, manifest: Json) -> None:
        """As `kubectl create`, with a node port for the job's master."""
        name = manifest["metadata"]["name"]
        manifest["metadata"]["namespace"] = NAMESPACE
        try:
            await self._client.create(TRAININGJOBS, manifest)
        except ApiStatusError as error:
            raise DemoError(f"the API server rejected {name}: {error}") from error
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": f"{name}-door", "namespace": NAMESPACE},
            "spec": {
                "type": "NodePort",
                "selector": {JOB_LABEL: name, ROLE_LABEL: MASTER},
                "ports": [{"name": "master", "port": MASTER_PORT}],
            },
        }
        made = await self._client.create(SERVICES, service)
        self._masters[name] = f"http://127.0.0.1:{made['spec']['ports'][0]['nodePort']}"

    async def send_fault_tolerance(self, name: str) -> None:
        """Let the training end with the pass that runs."""
        url = f"{self._masters[name]}/enough"
        async with self._session.post(url, json={"trainer": "demo"}) as answer:
            answer.raise_for_status()

    # --- questions ---------------------------------------------------------------------------------------------------
    async def look(self) -> list[JobLook]:
        """All jobs, in the order in which they came."""
        found = {job["metadata"]["name"]: job async for job in self._client.list(TRAININGJOBS, NAMESPACE)}
        pods = [pod async for pod in self._client.list(PODS, NAMESPACE, label_selector=f"{ROLE_LABEL}={TRAINER}")]
        return [
            await self._look_at(
                name, found[name], [pod for pod in pods if pod["metadata"]["labels"][JOB_LABEL] == name]
            )
            for name in tuple(self._masters)  # a job may be added while one is looked at
            if name in found
        ]

    async def _look_at(self, name: str, job: Json, pods: list[Json]) -> JobLook:
        trainer, status = job["spec"]["trainer"], job.get("status") or {}
        phase = status.get("phase", "")
        is_over = phase in {"Succeeded", "Failed"}
        if not is_over:
            await self._ask(name)
        progress = self._progress.get(name, {"done": []})
        losses = [done["loss"] for done in progress["done"][-LAST_TASKS:]]
        return JobLook(
            name=name,
            wanted=0 if is_over else trainer.get("replicas", trainer["min-instance"]),
            running=sum(map(_is_running, pods)),
            phase=phase,
            done=len(progress["done"]),
            loss=sum(losses) / len(losses) if losses else None,
        )

    async def _ask(self, name: str) -> None:
        """How far its master is; what it said last holds while it does not answer."""
        with contextlib.suppress(aiohttp.ClientError, asyncio.TimeoutError, json.JSONDecodeError):
            async with self._session.get(f"{self._masters[name]}/status") as answer:
                if answer.status == 200:
                    self._progress[name] = await answer.json()

    async def resizes(self, name: str) -> list[Json]:
        """What was decided about its size, the oldest first: at most ten."""
        job = await self._client.get(TRAININGJOBS, Key(NAMESPACE, name)) or {}
        history: list[Json] = (job.get("status") or {}).get("scaling", {}).get("history") or []
        return history


def _is_running(pod: Json) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
