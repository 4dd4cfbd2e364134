"""Simulated cloud in which nodes are provisioned late and preempted early.

Worker pods are unschedulable at first. A node autoscaler answers each with an event, in the words of Cluster Autoscaler or
Karpenter: a node is provisioned after one or two minutes, or none of that kind is left. The image pull takes up to ten
minutes; hosts of a slice start one by one; spot nodes are preempted with notice; no two nodes have the same resources and
labels. All values are drawn from the seed and kept for the checks (FD:AS-A1, FD:AS-A2).
"""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from raytide.autoscaler.model import NodeStatus

from simulation.simulated_kube import NAMESPACE, NODES, SimulatedKube, make_ready
from simulation.simulated_ray import Raylet, SimulatedRay

ANSWER_S = (1.0, 10.0)
MACHINE_S = (60.0, 120.0)
PULL_S = (5.0, 20.0, 90.0, 600.0)
START_S = 2.0
RETRY_S = 30.0
"""The node autoscaler retries a rejected pod after this time."""
EVENT_REASONS = {
    "cluster-autoscaler": ("TriggeredScaleUp", "NotTriggerScaleUp"),
    "karpenter": ("Nominated", "FailedScheduling"),
}
"""Node autoscaler -> the event reasons for success and failure."""


@dataclass(slots=True)
class NodeRequest:
    """The provisioning of a node for one pod."""

    group: str
    created_s: float
    answer_s: float
    machine_s: float
    pull_s: float
    is_rejected: bool = False
    is_preempted: bool = False
    """A preemption was announced."""

    @property
    def startup_s(self) -> float:
        """From the creation of the pod to a running container, if a node is available."""
        return self.answer_s + self.machine_s + self.pull_s + START_S


@dataclass(slots=True)
class Cloud:
    """Node requests and stock of one day."""

    rng: random.Random
    node_autoscaler: str = "cluster-autoscaler"
    stock: dict[str, int] = field(default_factory=dict)
    """Group -> number of available nodes; unlimited if absent."""
    requests: dict[str, NodeRequest] = field(default_factory=dict)
    """By pod."""
    granted: set[str] = field(default_factory=set)
    """Pods for which a node is provisioned or will be."""

    def request(self, pod: str, group: str, now_s: float) -> NodeRequest:
        """Draw the provisioning times for that pod."""
        draw = self.rng.uniform
        self.requests[pod] = NodeRequest(group, now_s, draw(*ANSWER_S), draw(*MACHINE_S), self.rng.choice(PULL_S))
        return self.requests[pod]

    def grant(self, pod: str, group: str) -> bool:
        """Whether a node is available for it."""
        used = sum(self.requests[name].group == group for name in self.granted)
        if used >= self.stock.get(group, used + 1):
            return False
        self.granted.add(pod)
        return True


class CloudKube(SimulatedKube):
    """Workers wait for nodes; `cloud` is set before any object is created."""

    cloud: Cloud

    async def _start_pod(self, name: str, uid: str) -> None:
        entry = self.store.find("pods", NAMESPACE, name)
        if entry is None or entry.labels.get("ray.io/node-type") != "worker":
            await super()._start_pod(name, uid)
            return
        request = self.cloud.request(name, entry.labels["ray.io/group"], self._loop.time())
        await asyncio.sleep(0.1)
        self.edit("pods", name, uid, _set_unschedulable, subresource="status")
        await asyncio.sleep(request.answer_s)
        while self._is_pending(name, uid):
            is_granted = self.cloud.grant(name, request.group)
            request.is_rejected = request.is_rejected or not is_granted
            self._emit_event(name, uid, is_granted=is_granted)
            if is_granted:
                await self._start_on_node(name, uid, request)
                return
            await asyncio.sleep(RETRY_S)

    async def _start_on_node(self, name: str, uid: str, request: NodeRequest) -> None:
        await asyncio.sleep(request.machine_s)
        self.edit("pods", name, uid, lambda pod: pod["spec"].update(nodeName=self.rng.choice(NODES)))
        self.edit("pods", name, uid, _set_pulling, subresource="status")
        await asyncio.sleep(request.pull_s + self.rng.uniform(0.5, START_S))
        if self._is_pending(name, uid):
            self.edit("pods", name, uid, make_ready, subresource="status")

    async def _end_pod(self, name: str, uid: str) -> None:
        self.cloud.granted.discard(name)
        await super()._end_pod(name, uid)

    def _is_pending(self, name: str, uid: str) -> bool:
        entry = self.store.find("pods", NAMESPACE, name)
        return entry is not None and entry.uid == uid and not entry.is_terminating

    def _emit_event(self, name: str, uid: str, *, is_granted: bool) -> None:
        accepted_reason, rejected_reason = EVENT_REASONS[self.cloud.node_autoscaler]
        event = {
            "metadata": {"name": f"{name}.{self._loop.time():.3f}", "namespace": NAMESPACE},
            "involvedObject": {"kind": "Pod", "name": name, "uid": uid, "namespace": NAMESPACE},
            "reason": accepted_reason if is_granted else rejected_reason,
            "source": {"component": self.cloud.node_autoscaler},
            "lastTimestamp": f"{self.now():%Y-%m-%dT%H:%M:%S}Z",
        }
        self.store.create("events", event)


class CloudRay(SimulatedRay):
    """Raylets on nodes that all differ, some of which are about to be preempted."""

    def __init__(self, *args: Any, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.preempted: set[str] = set()
        """Ray nodes whose preemption was announced."""

    def announce_preemption(self, raylet: Raylet) -> None:
        """Announce its preemption: no more tasks are placed on it."""
        self.preempted.add(raylet.node_id)

    def _update_nodes(self) -> None:
        super()._update_nodes()
        for node_id in self.preempted & self.gcs.nodes.keys() & self.raylets.keys():
            self.gcs.nodes[node_id] = replace(self.gcs.nodes[node_id], status=NodeStatus.DRAINING, idle_ms=0)

    def _with_free_cpus(self) -> Iterator[Raylet]:
        return (raylet for raylet in super()._with_free_cpus() if raylet.node_id not in self.preempted)

    def _register(self, raylet: Raylet) -> None:
        super()._register(raylet)
        if raylet.node_id in self.gcs.nodes:
            own = {"object_store_memory": self._rng.randint(1, 2**40) * 10_000}
            node = self.gcs.nodes[raylet.node_id]
            self.gcs.nodes[raylet.node_id] = replace(
                node,
                total=tuple(sorted({**dict(node.total), **own}.items())),
                labels=tuple(sorted({**dict(node.labels), "rack": f"r{self._rng.randint(0, 9)}"}.items())),
            )


def _set_unschedulable(pod: dict[str, Any]) -> None:
    no_node = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/2 nodes are available",
    }
    pod["status"] = {"phase": "Pending", "conditions": [no_node]}


def _set_pulling(pod: dict[str, Any]) -> None:
    waiting = [
        {"name": each["name"], "ready": False, "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}
        for each in pod["spec"]["containers"]
    ]
    scheduled = {"type": "PodScheduled", "status": "True"}
    pod["status"] = {"phase": "Pending", "conditions": [scheduled], "containerStatuses": waiting}
