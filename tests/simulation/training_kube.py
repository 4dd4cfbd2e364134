"""Simulated Kubernetes cluster for TrainingJobs: three nodes of known size and the sandbox's scheduler.

Adds to simulated_kube.py two namespaces and kubelets that report when containers started and how they exited: a terminating
pod receives a signal and is removed a moment later, as on a real node. Jobs can finish; trainers can fail, be evicted or be
deleted by force; nodes can be lost, cordoned and added again. Failures that no controller planned are counted and compared
with the statuses.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from raytide.api import trainingjob_constants as constants
from raytide_sandbox.apiserver.api_status import ApiStatusError
from raytide_sandbox.apiserver.routes import Request
from raytide_sandbox.apiserver.store import Change
from raytide_sandbox.rfc3339 import format_time

from simulation.simulated_kube import SimulatedKube, node_of
from simulation.training_manifests import OTHER_NAMESPACE

JOBS = "trainingjobs.paddlepaddle.org"
CPUS = {"node-0": 4, "node-1": 4, "node-2": 4}
GPUS = {"node-0": 4, "node-1": 4}
_PATHS = {
    "RayCluster": ("/apis/ray.io/v1", "rayclusters"),
    "TrainingJob": ("/apis/paddlepaddle.org/v1", "trainingjobs"),
    "Pod": ("/api/v1", "pods"),
}
FAILED_CODE = 1
KILLED_CODE = 137
TERMINATED_CODE = 143


class TrainingKube(SimulatedKube):
    """A simulated cluster of three nodes."""

    crd = Path(__file__).parents[2] / "crds" / "paddlepaddle.org_trainingjobs.yaml"
    has_scheduler = True

    def _set_up(self) -> None:
        self.failed: Counter[tuple[str, str]] = Counter()
        """(job uid, role) -> number of pods that failed by themselves."""
        self.finished_jobs: set[str] = set()
        """Uids of jobs that have processed all of their data."""
        self.capacity_changed_at = -1e9
        """When free capacity last changed by an external pod or a node, in seconds of the loop."""
        self.pod_lost_at = -1e9
        """When a pod was last lost without a plan of the operator."""
        self.stopped_kubelets: set[str] = set()
        for node, cpus in CPUS.items():
            self.store.create("nodes", {"metadata": {"name": node}, "status": machine(cpus, GPUS.get(node, 0))})
        self.store.create("namespaces", {"metadata": {"name": OTHER_NAMESPACE}})

    # --- the kubelets ------------------------------------------------------------------------------------------------
    def _on_pod(self, change: Change) -> None:
        entry, key = change.entry, change.key
        if change.type == "DELETED":
            return
        was_terminating = change.type == "MODIFIED" and change.previous.is_terminating
        if entry.is_terminating and not was_terminating:
            self._start_task(self._end(key.namespace, key.name, entry.uid))
        elif change.type == "MODIFIED" and node_of(entry.shared()) and not node_of(change.previous.shared()):
            self._start_task(self._run(key.namespace, key.name, entry.uid))

    async def _run(self, namespace: str, name: str, uid: str) -> None:
        await asyncio.sleep(self.rng.uniform(*self._kubelets.start_s))
        self._report(namespace, name, uid, self._make_running)
        await asyncio.sleep(1.0)
        self._finish_trainer(namespace, name, uid)

    async def _end(self, namespace: str, name: str, uid: str) -> None:
        await asyncio.sleep(self.rng.choice(self._kubelets.end_s))
        entry = self.store.find("pods", namespace, name)
        if entry is None or node_of(entry.shared()) in self.stopped_kubelets:
            return
        self._report(namespace, name, uid, lambda pod: self._make_ended(pod, TERMINATED_CODE))
        await asyncio.sleep(0.05)
        with suppress(ApiStatusError):
            self.store.delete("pods", namespace, name, uid=uid, grace_s=0)

    def _report(self, namespace: str, name: str, uid: str | None, change: Callable[[dict[str, Any]], Any]) -> bool:
        """Change the pod status as the kubelet of a running node."""
        entry = self.store.find("pods", namespace, name)
        if entry is None or (uid is not None and entry.uid != uid) or node_of(entry.shared()) in self.stopped_kubelets:
            return False
        pod = entry.obj()
        if (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
            return False
        change(pod)
        with suppress(ApiStatusError):
            self.store.update("pods", pod, subresource="status")
            return True
        return False

    def _make_running(self, pod: dict[str, Any]) -> None:
        running = {"running": {"startedAt": format_time(self.now())}}
        statuses = [
            {"name": container["name"], "ready": True, "restartCount": 0, "state": running}
            for container in pod["spec"]["containers"]
        ]
        conditions = [each for each in pod["status"].get("conditions") or () if each["type"] != "Ready"]
        pod["status"] |= {
            "phase": "Running",
            "podIP": "10.88.0.9",
            "conditions": [*conditions, {"type": "Ready", "status": "True"}],
            "containerStatuses": statuses,
        }

    def _make_ended(self, pod: dict[str, Any], code: int) -> None:
        terminated = {"exitCode": code, "finishedAt": format_time(self.now())}
        statuses = [
            {"name": container["name"], "ready": False, "restartCount": 0, "state": {"terminated": terminated}}
            for container in pod["spec"]["containers"]
        ]
        pod["status"] = {
            **(pod.get("status") or {}),
            "phase": "Failed" if code else "Succeeded",
            "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": statuses,
        }

    # --- failures of pods =----------------------------------------------------------------------------------------
    def fail_pod(self, name: str, namespace: str) -> None:
        """The trainer exits with an error."""
        self.pod_lost_at = self._loop.time()
        entry = self.store.find("pods", namespace, name)
        if entry is None or entry.is_terminating:
            return
        if self._report(namespace, name, None, lambda pod: self._make_ended(pod, FAILED_CODE)):
            self.failed[entry.owners[0] if entry.owners else "", entry.labels.get(constants.ROLE_LABEL, "")] += 1

    def evict_pod_in(self, name: str, namespace: str) -> None:
        """A kubelet evicts the pod under pressure: no failure of the trainer."""
        self.pod_lost_at = self._loop.time()

        def make_evicted(pod: dict[str, Any]) -> None:
            self._make_ended(pod, KILLED_CODE)
            pod["status"]["reason"] = "Evicted"
            pod["status"]["conditions"].append(_disrupted("TerminationByKubelet"))

        self._report(namespace, name, None, make_evicted)

    def force_delete_pod_in(self, name: str, namespace: str) -> None:
        """As `kubectl delete pod --force`."""
        self.pod_lost_at = self._loop.time()
        with suppress(ApiStatusError):
            self.store.delete("pods", namespace, name, grace_s=0)

    def finish_job(self, uid: str) -> None:
        """The job has processed all of its data: its trainers succeed, also those created later."""
        self.finished_jobs.add(uid)
        for key in tuple(self.store.dependents(uid)):
            if key.resource == "pods" and (entry := self.store.find(*key)):
                self._finish_trainer(key.namespace, key.name, entry.uid)

    def _finish_trainer(self, namespace: str, name: str, uid: str) -> None:
        entry = self.store.find("pods", namespace, name)
        if entry is None or entry.uid != uid or entry.is_terminating or self.finished_jobs.isdisjoint(entry.owners):
            return
        pod = entry.obj()
        if (
            entry.labels.get(constants.ROLE_LABEL) == constants.TRAINER
            and (pod.get("status") or {}).get("phase") == "Running"
        ):
            self._report(namespace, name, uid, lambda obj: self._make_ended(obj, 0))

    # --- nodes =----------------------------------------------------------------------------------------------------
    def lose_node(self, node: str) -> None:
        """A node fails: its kubelet stops, the control plane marks it NotReady and evicts its pods."""
        self.pod_lost_at = self._loop.time()
        self.mark_capacity_changed()
        self.stopped_kubelets.add(node)
        self.edit("nodes", node, None, lambda obj: _set_ready(obj, "Unknown"), subresource="status")
        for key, entry in tuple(self.store.entries("pods")):
            pod = entry.obj()
            if node_of(pod) != node or entry.is_terminating:
                continue
            pod.setdefault("status", {}).setdefault("conditions", []).append(_disrupted("DeletionByTaintManager"))
            with suppress(ApiStatusError):
                self.store.update("pods", pod, subresource="status")
                self.store.delete("pods", key.namespace, key.name, uid=entry.uid)

    def delete_node(self, node: str) -> None:
        """Delete the Node with its remaining pods."""
        self.pod_lost_at = self._loop.time()
        self.mark_capacity_changed()
        with suppress(ApiStatusError):
            self.store.delete("nodes", "", node)
        for key, entry in tuple(self.store.entries("pods")):
            if node_of(entry.shared()) == node:
                with suppress(ApiStatusError):
                    self.store.delete("pods", key.namespace, key.name, uid=entry.uid, grace_s=0)

    def add_node(self, node: str) -> None:
        """Add a node, or add it again."""
        self.mark_capacity_changed()
        self.stopped_kubelets.discard(node)
        with suppress(ApiStatusError):
            self.store.create("nodes", {"metadata": {"name": node}, "status": machine(CPUS[node], GPUS.get(node, 0))})

    def cordon(self, node: str, *, is_cordoned: bool = True) -> None:
        """As `kubectl cordon` or `kubectl uncordon`."""
        self.mark_capacity_changed()
        self.edit("nodes", node, None, lambda obj: obj.setdefault("spec", {}).update(unschedulable=is_cordoned))

    def mark_capacity_changed(self) -> None:
        """Record that free capacity changed without a plan of the operator."""
        self.capacity_changed_at = self._loop.time()

    # --- users =------------------------------------------------------------------------------------------------------
    def create(self, obj: dict[str, Any]) -> None:
        """As `kubectl apply` of a new object."""
        path, plural = _PATHS[obj["kind"]]
        if obj["kind"] == "Pod":
            self.mark_capacity_changed()
        namespace, body = obj["metadata"]["namespace"], msgspec.json.encode(obj)
        answer = self.api.handle(Request("POST", f"{path}/namespaces/{namespace}/{plural}", {}, {}, body))
        assert answer.status == 201, answer.body

    def delete(self, resource: str, name: str, namespace: str) -> None:
        """As `kubectl delete`."""
        with suppress(ApiStatusError):
            self.store.delete(resource, namespace, name)

    def job(self, name: str, namespace: str) -> dict[str, Any] | None:
        """The TrainingJob of that name."""
        entry = self.store.find(JOBS, namespace, name)
        return entry.obj() if entry else None

    def edit_job(self, name: str, namespace: str, change: Callable[[dict[str, Any]], Any]) -> None:
        """As `kubectl edit`."""
        entry = self.store.find(JOBS, namespace, name)
        if entry is None:
            return
        obj = entry.obj()
        change(obj)
        path = f"/apis/paddlepaddle.org/v1/namespaces/{namespace}/trainingjobs/{name}"
        answer = self.api.handle(Request("PUT", path, {}, {}, msgspec.json.encode(obj)))
        assert answer.status == 200, answer.body

    def scale(self, name: str, namespace: str, replicas: int) -> None:
        """As `kubectl scale`."""
        path = f"/apis/paddlepaddle.org/v1/namespaces/{namespace}/trainingjobs/{name}/scale"
        body = msgspec.json.encode({"spec": {"replicas": replicas}})
        headers = {"content-type": "application/merge-patch+json"}
        answer = self.api.handle(Request("PATCH", path, {}, headers, body))
        assert answer.status == 200, answer.body


def machine(cpus: int, gpus: int) -> dict[str, Any]:
    """The status of a Ready node with these resources."""
    allocatable = {"cpu": str(cpus), "memory": "64Gi", "pods": "110", **({constants.GPU: str(gpus)} if gpus else {})}
    return {"allocatable": allocatable, "capacity": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}


def _set_ready(node: dict[str, Any], ready: str) -> None:
    node["status"]["conditions"] = [{"type": "Ready", "status": ready}]


def _disrupted(reason: str) -> dict[str, Any]:
    return {"type": "DisruptionTarget", "status": "True", "reason": reason}
