"""Applies RayCluster files to a real API server and reads what an operator created.

Takes YAML files, an administrator and a kubectl; applies every file in a namespace of its own, all at once, by server-side
apply as people do, waits until nothing changes any more, and gives the record of each in the form of the recordings
(golden_recorder.py). Any operator that watches all namespaces can be asked. Used by `make golden` (tests/golden/compare.py).
"""

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from support.golden_differences import Fate, fields_without_effect
from support.golden_recorder import build_record
from support.plane_admin import PlaneAdmin

Json = dict[str, Any]

CLUSTERS: Final = "/apis/ray.io/v1/rayclusters"
COLLECTIONS: Final = (
    *(f"/api/v1/{plural}" for plural in ("pods", "services", "serviceaccounts", "persistentvolumeclaims", "secrets")),
    *(f"/apis/rbac.authorization.k8s.io/v1/{plural}" for plural in ("roles", "rolebindings")),
    *(f"/apis/networking.k8s.io/v1/{plural}" for plural in ("ingresses", "networkpolicies")),
    "/apis/batch/v1/jobs",
)
"""Where children can be."""
KUBECTLS_AT_ONCE: Final = 4
POLL_INTERVAL_S: Final = 0.5


@dataclass(frozen=True)
class Captured:
    """One file's fate under one operator."""

    record: Json
    clusters: Sequence[Json]
    documents: Sequence[Json]

    def fate_beside(self, recorded: Json, mode: str = "raytide") -> Fate:
        """This one and the reference's; `mode` is the operator's default autoscaler."""
        specs = [document for document in self.documents if document["kind"] == "RayCluster"]
        settings_without_effect = [
            field for cluster in self.clusters for field in fields_without_effect(cluster.get("status", {}))
        ]
        return Fate(specs[0] if specs else {}, recorded, self.record, tuple(settings_without_effect), mode)


@dataclass(frozen=True)
class Kubectl:
    """The program, and whose credentials it uses."""

    program: Path
    kubeconfig: Path
    cache: Path

    async def apply(self, manifest: Json, namespace: str) -> tuple[int, str]:
        """`kubectl apply --server-side`; its exit code, and the end of its output if that is not 0."""
        words = ["--kubeconfig", self.kubeconfig, "--cache-dir", self.cache, "--namespace", namespace]
        child = await asyncio.create_subprocess_exec(
            self.program,
            *map(str, words),
            *("apply", "--server-side", "-f", "-"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await child.communicate(yaml.safe_dump(manifest).encode())
        return child.returncode or 0, output.decode().strip()[-1000:] if child.returncode else ""


def read_documents(file: Path) -> list[Json]:
    """All objects of the file, without a namespace."""
    documents = [document for document in yaml.safe_load_all(file.read_text()) if document]
    for document in documents:
        document.get("metadata", {}).pop("namespace", None)
    return documents


class Capture:
    """All files at once, each in its namespace."""

    def __init__(self, admin: PlaneAdmin, kubectl: Kubectl, files: Sequence[Path]) -> None:
        run = f"{time.time_ns() // 10**9 % 36**5:x}"  # a fresh namespace per run: none that goes away is waited for
        self._admin = admin
        self._kubectl = kubectl
        self._documents = {file.stem: read_documents(file) for file in files}
        self._namespaces = {file.stem: f"golden-{run}-{_label(file.stem)}" for file in files}
        self._answers: dict[str, list[list[Any]]] = {}
        self._slots = asyncio.Semaphore(KUBECTLS_AT_ONCE)

    async def apply(self) -> None:
        """Make the namespaces and apply everything."""
        await self._admin.make_namespaces(*self._namespaces.values())
        async with asyncio.TaskGroup() as group:
            for name in self._documents:
                group.create_task(self._apply_file(name))

    async def _apply_file(self, name: str) -> None:
        answers = self._answers[name] = []
        namespace = self._namespaces[name]
        for document in self._documents[name]:
            for subject in document.get("subjects") or []:
                subject["namespace"] = namespace
            async with self._slots:
                code, error = await self._kubectl.apply(document, namespace)
            answers.append([document.get("kind"), document.get("metadata", {}).get("name"), code, error])

    async def wait_until_steady(self, *, quiet_s: float, limit_s: float) -> bool:
        """Wait until nothing in any of the namespaces has changed for so long; False when the limit came first."""
        end = time.monotonic() + limit_s
        last, since = None, time.monotonic()
        while time.monotonic() < end:
            children, clusters = await self._read()
            pods = [item for items in children.values() for item in items if item["kind"] == "Pod"]
            versions = sorted(
                (item["kind"], item["metadata"]["uid"], item["metadata"]["resourceVersion"])
                for items in (*children.values(), *clusters.values())
                for item in items
            )
            if versions != last or any(map(_waits_for_the_fleet, pods)):
                last, since = versions, time.monotonic()
            elif time.monotonic() - since >= quiet_s:
                return True
            await asyncio.sleep(POLL_INTERVAL_S)
        return False

    async def records(self) -> dict[str, Captured]:
        """What is there now, by file."""
        children, clusters = await self._read()
        events = await self._by_namespace("/api/v1/events")
        return {
            name: Captured(
                build_record(
                    name,
                    namespace,
                    applied=self._answers[name],
                    children=children[namespace],
                    clusters=clusters[namespace],
                    events=events[namespace],
                ),
                clusters[namespace],
                self._documents[name],
            )
            for name, namespace in self._namespaces.items()
        }

    async def remove(self) -> None:
        """Ask for the namespaces to go."""
        for namespace in self._namespaces.values():
            await self._admin.call("DELETE", f"/api/v1/namespaces/{namespace}")

    async def _read(self) -> tuple[Mapping[str, list[Json]], Mapping[str, list[Json]]]:
        children: dict[str, list[Json]] = {namespace: [] for namespace in self._namespaces.values()}
        for path in COLLECTIONS:
            for namespace, items in (await self._by_namespace(path)).items():
                children[namespace] += items
        return children, await self._by_namespace(CLUSTERS)

    async def _by_namespace(self, path: str) -> dict[str, list[Json]]:
        listed = await self._admin.call("GET", path)
        shared = {"apiVersion": listed["apiVersion"], "kind": listed["kind"].removesuffix("List")}
        found: dict[str, list[Json]] = {namespace: [] for namespace in self._namespaces.values()}
        for item in listed["items"]:
            if item["metadata"]["namespace"] in found:
                found[item["metadata"]["namespace"]].append({**shared, **item})
        return found


def _waits_for_the_fleet(pod: Json) -> bool:
    """The scheduler has not handled it yet, or it is on a fake node and does not run yet: kwok can be slow."""
    conditions = {condition["type"]: condition["status"] for condition in pod["status"].get("conditions", ())}
    return conditions.get("Ready") != "True" if pod["spec"].get("nodeName") else "PodScheduled" not in conditions


def _label(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:40].strip("-")
