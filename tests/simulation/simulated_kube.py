"""Simulated Kubernetes cluster around the operator: control plane, kubelets, nodes and users.

A store with the sandbox's controllers, simulated kubelets that bind pods, make them Ready and end terminating ones, and
methods for what users and administrators do. Everything happens in virtual time and is drawn from one seeded generator, so
that a history can be repeated. The operator has only its transport; users and kubelets write to the store directly.
"""

import asyncio
import itertools
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from raytide_sandbox.apiserver.api_status import ApiStatusError
from raytide_sandbox.apiserver.routes import Api, Request
from raytide_sandbox.apiserver.store import Change, Store
from raytide_sandbox.controllers.manager import Controllers
from support.definitions import define
from support.manifest_files import body_of

NAMESPACE = "default"
NODES = ("node-0", "node-1")
RAYCLUSTERS = "rayclusters.ray.io"
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
CRD = Path(__file__).parents[2] / "crds" / "ray.io_rayclusters.yaml"


@dataclass(frozen=True, slots=True)
class Kubelets:
    """Start and termination times of simulated kubelets, in seconds."""

    start_s: tuple[float, float] = (0.1, 4.0)
    end_s: tuple[float, ...] = (0.1, 1.0, 20.0)


class SimulatedKube:
    """A simulated cluster with one random generator and one clock."""

    crd = CRD
    has_scheduler = False
    """Without a scheduler, pods are bound to the nodes in turn."""

    def __init__(self, rng: random.Random, namespace: str = NAMESPACE, kubelets: Kubelets | None = None) -> None:
        self.rng = rng
        self._kubelets = kubelets or Kubelets()
        self._stopped_kubelets: set[str] = set()
        self.namespace = namespace
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()
        uids = itertools.count(1)
        self.store = Store(now=self.now, new_uid=lambda: f"uid-{next(uids)}")
        suffixes = itertools.count(1)
        self.api = Api(self.store, new_suffix=lambda: f"{next(suffixes):05d}")
        self.controllers = Controllers(self.store, has_scheduler=self.has_scheduler)
        self._nodes = itertools.cycle(NODES)
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.store.subscribe(self._on_pod, "pods")
        self.store.subscribe(lambda _: self._changed.set())
        self.controllers.step(self.now())
        self._set_up()
        define(self.api, self.store, body_of(self.crd))

    def _set_up(self) -> None:
        """Create the nodes, before any other object."""
        for node in NODES:
            self.store.create("nodes", {"metadata": {"name": node}, "status": node_status("True")})

    def now(self) -> datetime:
        """Wall time of the API server."""
        return EPOCH + timedelta(seconds=self._loop.time() - self._started)

    # --- the control plane -----------------------------------------------------------------------------------------
    async def run_controllers(self) -> None:
        """Garbage collection and the like, whenever something changed."""
        while True:
            self._changed.clear()
            wakeup = self.controllers.step(self.now())
            wait_s = None if wakeup is None else max(0.0, (wakeup - self.now()).total_seconds())
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), wait_s)
            await asyncio.sleep(0.05)

    # --- the kubelets ----------------------------------------------------------------------------------------------
    def _on_pod(self, change: Change) -> None:
        if change.type == "ADDED":
            self._start_task(self._start_pod(change.key.name, change.entry.uid))
        elif change.type == "MODIFIED" and change.entry.is_terminating and not change.previous.is_terminating:
            self._start_task(self._end_pod(change.key.name, change.entry.uid))

    def _start_task(self, coroutine: Any) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start_pod(self, name: str, uid: str) -> None:
        node = next(node for node in self._nodes if node not in self._stopped_kubelets)
        await asyncio.sleep(self.rng.uniform(0.01, 0.2))
        self.edit("pods", name, uid, lambda pod: pod["spec"].update(nodeName=node))
        await asyncio.sleep(self.rng.uniform(*self._kubelets.start_s))
        if node not in self._stopped_kubelets:
            self.edit("pods", name, uid, make_ready, subresource="status")

    async def _end_pod(self, name: str, uid: str) -> None:
        await asyncio.sleep(self.rng.choice(self._kubelets.end_s))
        entry = self.store.find("pods", self.namespace, name)
        if entry is None or node_of(entry.shared()) in self._stopped_kubelets:
            return
        with suppress(ApiStatusError):
            self.store.delete("pods", self.namespace, name, uid=uid, grace_s=0)

    def lose_node(self, node: str) -> None:
        """A node fails: its kubelet stops, the control plane marks it NotReady and evicts its pods."""
        self._stopped_kubelets.add(node)
        self.edit("nodes", node, None, lambda obj: obj.update(status=node_status("Unknown")), subresource="status")
        for key, entry in self.store.entries("pods", self.namespace):
            if node_of(entry.shared()) == node:
                with suppress(ApiStatusError):
                    self.store.delete("pods", self.namespace, key.name, uid=entry.uid)

    def stop_kubelet(self, node: str) -> list[str]:
        """Stop the kubelet of a node without a NotReady condition; returns the names of its pods."""
        self._stopped_kubelets.add(node)
        pods = self.store.entries("pods", self.namespace)
        return [key.name for key, entry in pods if node_of(entry.shared()) == node]

    def is_kubelet_stopped(self, node: str) -> bool:
        """Whether the kubelet is stopped, so that no pod terminates there."""
        return node in self._stopped_kubelets

    def recover_node(self, node: str) -> None:
        """The node is Ready again: its kubelet ends the pods that were deleted meanwhile."""
        self._stopped_kubelets.discard(node)
        self.edit("nodes", node, None, lambda obj: obj.update(status=node_status("True")), subresource="status")
        for key, entry in self.store.entries("pods", self.namespace):
            if node_of(entry.shared()) == node and entry.is_terminating:
                self._start_task(self._end_pod(key.name, entry.uid))

    def delete_node(self, node: str) -> None:
        """Delete the Node: pod garbage collection removes its remaining pods."""
        with suppress(ApiStatusError):
            self.store.delete("nodes", "", node)
        for key, entry in self.store.entries("pods", self.namespace):
            if node_of(entry.shared()) == node:
                with suppress(ApiStatusError):
                    self.store.delete("pods", self.namespace, key.name, uid=entry.uid, grace_s=0)

    # --- users =----------------------------------------------------------------------------------------------------
    def edit(
        self,
        resource: str,
        name: str,
        uid: str | None,
        change: Callable[[dict[str, Any]], Any],
        *,
        subresource: str | None = None,
    ) -> bool:
        """Change one object in place if it is still that object."""
        is_namespaced = self.store.resource(resource).is_namespaced
        entry = self.store.find(resource, self.namespace if is_namespaced else "", name)
        if entry is None or (uid is not None and entry.uid != uid):
            return False
        obj = entry.obj()
        change(obj)
        with suppress(ApiStatusError):
            self.store.update(resource, obj, subresource=subresource)
            return True
        return False

    def create(self, obj: dict[str, Any]) -> None:
        """As `kubectl apply` of a new object."""
        path = "/apis/ray.io/v1" if obj["kind"] == "RayCluster" else "/api/v1"
        plural = "rayclusters" if obj["kind"] == "RayCluster" else "pods"
        body = msgspec.json.encode(obj)
        answer = self.api.handle(Request("POST", f"{path}/namespaces/{self.namespace}/{plural}", {}, {}, body))
        assert answer.status == 201, answer.body

    def end_pod(self, name: str, phase: str) -> None:
        """The pod ends with this phase."""
        self.edit("pods", name, None, lambda pod: make_ended(pod, phase), subresource="status")

    def evict_pod(self, name: str) -> None:
        """The kubelet evicts the pod under pressure."""
        self.edit("pods", name, None, make_evicted, subresource="status")

    def delete_cluster(self, name: str) -> None:
        """As `kubectl delete raycluster`."""
        with suppress(ApiStatusError):
            self.store.delete(RAYCLUSTERS, self.namespace, name)

    def force_delete_pod(self, name: str) -> None:
        """As `kubectl delete pod --force`."""
        with suppress(ApiStatusError):
            self.store.delete("pods", self.namespace, name, grace_s=0)

    # --- reading =---------------------------------------------------------------------------------------------------
    def pods(self, cluster_uid: str) -> list[dict[str, Any]]:
        """All pods owned by that RayCluster."""
        found = [self.store.find(*key) for key in self.store.dependents(cluster_uid) if key.resource == "pods"]
        return [entry.obj() for entry in found if entry]

    def cluster(self, name: str) -> dict[str, Any] | None:
        """The RayCluster of that name."""
        entry = self.store.find(RAYCLUSTERS, self.namespace, name)
        return entry.obj() if entry else None

    def cluster_read_only(self, name: str) -> dict[str, Any] | None:
        """The RayCluster of that name as a shared object that must not be changed."""
        entry = self.store.find(RAYCLUSTERS, self.namespace, name)
        return entry.shared() if entry else None


STARTED_AT = "2026-01-01T00:00:00Z"
"""When every pod started, for its kubelet; the operator compares it with the kubelet's own times only."""


def make_ready(pod: dict[str, Any]) -> None:
    """What a kubelet reports once the Ray container answers its probe."""
    if pod.get("status", {}).get("phase") in ("Failed", "Succeeded"):
        return
    names = [container["name"] for container in pod["spec"]["containers"]]
    pod["status"] = {
        "phase": "Running",
        "podIP": "10.88.0.9",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {"name": name, "ready": True, "restartCount": 0, "state": {"running": {}}} for name in names
        ],
    }


def make_ended(pod: dict[str, Any], phase: str) -> None:
    """What a kubelet reports of a pod that will not run again."""
    name = pod["spec"]["containers"][0]["name"]
    code = 0 if phase == "Succeeded" else 137
    was_ready = {"type": "Ready", "status": "True"} in pod.get("status", {}).get("conditions", ())
    lost_at = "2026-01-01T01:00:00Z" if was_ready else STARTED_AT
    pod["status"] = {
        "phase": phase,
        "startTime": STARTED_AT,
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": lost_at}],
        "containerStatuses": [
            {"name": name, "ready": False, "restartCount": 0, "state": {"terminated": {"exitCode": code}}}
        ],
    }


def make_evicted(pod: dict[str, Any]) -> None:
    """What a kubelet reports of a pod that it evicted."""
    make_ended(pod, "Failed")
    pod["status"]["reason"] = "Evicted"


def node_status(ready: str) -> dict[str, Any]:
    """The status of a Node with this Ready condition."""
    return {"conditions": [{"type": "Ready", "status": ready}]}


def node_of(pod: dict[str, Any]) -> str:
    """The name of its node; empty before binding."""
    return str(pod["spec"].get("nodeName") or "")


def is_alive(pod: dict[str, Any]) -> bool:
    """Whether it counts as live: neither ended nor terminating."""
    return "deletionTimestamp" not in pod["metadata"] and pod.get("status", {}).get("phase") not in (
        "Failed",
        "Succeeded",
    )
