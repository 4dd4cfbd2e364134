"""Requests of the elastic demo to the cluster, and to the masters of its jobs.

The master of each job is reached by a NodePort service. Does not wait for states. Used by demo_elastic.py.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import aiohttp

from raytide.api.meta import PODS, TRAININGJOBS, Key
from raytide.api.trainingjob_constants import JOB_LABEL, MASTER, ROLE_LABEL, TRAINER
from raytide.kube.client import Client

from demo_cluster import NAMESPACE, DemoCluster, Json

MASTER_PORT = 8080
RESPONSE_S = 5.0
LAST_TASKS = 5


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """State of a job at one moment."""

    name: str
    wanted: int = 0
    running: int = 0
    phase: str = ""
    done: int = 0
    """Finished tasks."""
    loss: float | None = None
    """Mean of the last `LAST_TASKS` tasks; None before the first."""


class ElasticCluster(DemoCluster):
    """Client of the API server and of the masters of the jobs."""

    session: aiohttp.ClientSession

    def __init__(self, client: Client, kubeconfig: Path) -> None:
        super().__init__(client, kubeconfig)
        self._masters: dict[str, str] = {}
        self._progress: dict[str, Json] = {}

    @classmethod
    @asynccontextmanager
    async def at(cls, kubeconfig: Path) -> AsyncIterator[Self]:
        """Connect to the API server until the block ends."""
        timeout = aiohttp.ClientTimeout(total=RESPONSE_S)
        async with super().at(kubeconfig) as cluster, aiohttp.ClientSession(timeout=timeout) as session:
            cluster.session = session
            yield cluster

    async def submit(self, manifest: Json) -> None:
        """Create a job, with a NodePort service for its master."""
        name = manifest["metadata"]["name"]
        await self.create(TRAININGJOBS, manifest)
        address, _ = await self.expose(name, "master", MASTER_PORT, {JOB_LABEL: name, ROLE_LABEL: MASTER})
        self._masters[name] = f"http://{address}"

    async def finish(self, name: str) -> None:
        """Have the master end the training with the current pass."""
        async with self.session.post(f"{self._masters[name]}/enough", json={"trainer": "demo"}) as answer:
            answer.raise_for_status()

    async def snapshots(self) -> list[JobSnapshot]:
        """State of all jobs, in the order of their submission."""
        found = {job["metadata"]["name"]: job async for job in self._client.list(TRAININGJOBS, NAMESPACE)}
        pods = [pod async for pod in self._client.list(PODS, NAMESPACE, label_selector=f"{ROLE_LABEL}={TRAINER}")]
        return [
            await self._snapshot(
                name, found[name], [pod for pod in pods if pod["metadata"]["labels"][JOB_LABEL] == name]
            )
            for name in tuple(self._masters)  # a job can be submitted meanwhile
            if name in found
        ]

    async def _snapshot(self, name: str, job: Json, pods: list[Json]) -> JobSnapshot:
        trainer, status = job["spec"]["trainer"], job.get("status") or {}
        phase = status.get("phase", "")
        is_over = phase in {"Succeeded", "Failed"}
        if not is_over:
            await self._read_progress(name)
        progress = self._progress.get(name, {"done": []})
        losses = [done["loss"] for done in progress["done"][-LAST_TASKS:]]
        return JobSnapshot(
            name=name,
            wanted=0 if is_over else trainer.get("replicas", trainer["min-instance"]),
            running=sum(map(_is_running, pods)),
            phase=phase,
            done=len(progress["done"]),
            loss=sum(losses) / len(losses) if losses else None,
        )

    async def _read_progress(self, name: str) -> None:
        """Read the progress from the master; the last one is kept while it does not respond."""
        with contextlib.suppress(aiohttp.ClientError, asyncio.TimeoutError, json.JSONDecodeError):
            async with self.session.get(f"{self._masters[name]}/status") as answer:
                if answer.status == 200:
                    self._progress[name] = await answer.json()

    async def resizes(self, name: str) -> list[Json]:
        """The last resizes in the status of a job, the oldest first."""
        job = await self._client.get(TRAININGJOBS, Key(NAMESPACE, name)) or {}
        history: list[Json] = (job.get("status") or {}).get("scaling", {}).get("history") or []
        return history


def _is_running(pod: Json) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
