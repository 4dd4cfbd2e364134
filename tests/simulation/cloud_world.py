"""What is a cloud like, in which machines come late and go early?

Worker pods find no node at first. A node autoscaler answers each in an event, as Cluster Autoscaler or Karpenter spells
it: a machine comes after a minute or two, or none is left of that kind. Then the image is pulled, which may take ten
minutes; hosts of one slice come one by one; spot machines go with notice; no two nodes have the same resources and labels.
Everything is drawn from the seed, and what was drawn is kept for the judge (FD:AS-A1, FD:AS-A2).
"""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from raytide.autoscaler.model import NodeStatus

from simulation.ray_world import Raylet, RayWorld
from simulation.world import NAMESPACE, NODES, World, make_ready

ANSWER_S = (1.0, 10.0)
MACHINE_S = (60.0, 120.0)
PULL_S = (5.0, 20.0, 90.0, 600.0)
START_S = 2.0
ASKED_AGAIN_S = 30.0
"""After a no the node autoscaler looks at the pod again."""
WORDS = {
    "cluster-autoscaler": ("TriggeredScaleUp", "NotTriggerScaleUp"),
    "karpenter": ("Nominated", "FailedScheduling"),
}
"""Yes and no, by who says it."""


@dataclass(slots=True)
class Offer:
    """What the cloud has in mind for one pod."""

    group: str
    made_s: float
    answer_s: float
    machine_s: float
    pull_s: float
    is_rejected: bool = False
    is_taken: bool = False
    """By a notice."""

    @property
    def needs_s(self) -> float:
        """From its creation to a running container, if there is a machine."""
        return self.answer_s + self.machine_s + self.pull_s + START_S


@dataclass(slots=True)
class Cloud:
    """The script of one day."""

    rng: random.Random
    who: str = "cluster-autoscaler"
    stock: dict[str, int] = field(default_factory=dict)
    """By group, how many machines there are; any number if it is not here."""
    offers: dict[str, Offer] = field(default_factory=dict)
    """By pod."""
    granted: set[str] = field(default_factory=set)
    """Pods that have a machine, or will."""

    def offer(self, pod: str, group: str, now_s: float) -> Offer:
        """Draw what becomes of that pod."""
        draw = self.rng.uniform
        self.offers[pod] = Offer(group, now_s, draw(*ANSWER_S), draw(*MACHINE_S), self.rng.choice(PULL_S))
        return self.offers[pod]

    def grant(self, pod: str, group: str) -> bool:
        """Whether there is a machine for it."""
        used = sum(self.offers[name].group == group for name in self.granted)
        if used >= self.stock.get(group, used + 1):
            return False
        self.granted.add(pod)
        return True


class CloudWorld(World):
    """Its workers wait for machines; `cloud` is set before anything is created."""

    cloud: Cloud

    async def _start_pod(self, name: str, uid: str) -> None:
        entry = self.store.find("pods", NAMESPACE, name)
        if entry is None or entry.labels.get("ray.io/node-type") != "worker":
            await super()._start_pod(name, uid)
            return
        offer = self.cloud.offer(name, entry.labels["ray.io/group"], self._loop.time())
        await asyncio.sleep(0.1)
        self.edit("pods", name, uid, _find_no_node, subresource="status")
        await asyncio.sleep(offer.answer_s)
        while self._waits(name, uid):
            is_granted = self.cloud.grant(name, offer.group)
            offer.is_rejected = offer.is_rejected or not is_granted
            self._tell(name, uid, is_granted=is_granted)
            if is_granted:
                await self._bring(name, uid, offer)
                return
            await asyncio.sleep(ASKED_AGAIN_S)

    async def _bring(self, name: str, uid: str, offer: Offer) -> None:
        await asyncio.sleep(offer.machine_s)
        self.edit("pods", name, uid, lambda pod: pod["spec"].update(nodeName=self.rng.choice(NODES)))
        self.edit("pods", name, uid, _pull, subresource="status")
        await asyncio.sleep(offer.pull_s + self.rng.uniform(0.5, START_S))
        if self._waits(name, uid):
            self.edit("pods", name, uid, make_ready, subresource="status")

    async def _end_pod(self, name: str, uid: str) -> None:
        self.cloud.granted.discard(name)
        await super()._end_pod(name, uid)

    def _waits(self, name: str, uid: str) -> bool:
        entry = self.store.find("pods", NAMESPACE, name)
        return entry is not None and entry.uid == uid and not entry.is_terminating

    def _tell(self, name: str, uid: str, *, is_granted: bool) -> None:
        yes, no = WORDS[self.cloud.who]
        event = {
            "metadata": {"name": f"{name}.{self._loop.time():.3f}", "namespace": NAMESPACE},
            "involvedObject": {"kind": "Pod", "name": name, "uid": uid, "namespace": NAMESPACE},
            "reason": yes if is_granted else no,
            "source": {"component": self.cloud.who},
            "lastTimestamp": f"{self.now():%Y-%m-%dT%H:%M:%S}Z",
        }
        self.store.create("events", event)


class CloudRay(RayWorld):
    """Raylets on machines of which no two are alike, some of which are about to be taken away."""

    def __init__(self, *args: Any, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.noticed: set[str] = set()
        """Ray nodes whose machines will be taken."""

    def notice(self, raylet: Raylet) -> None:
        """Its machine is about to go: it takes no more work."""
        self.noticed.add(raylet.node_id)

    def _show(self) -> None:
        super()._show()
        for node_id in self.noticed & self.gcs.nodes.keys() & self.raylets.keys():
            self.gcs.nodes[node_id] = replace(self.gcs.nodes[node_id], status=NodeStatus.DRAINING, idle_ms=0)

    def _with_room(self) -> Iterator[Raylet]:
        return (raylet for raylet in super()._with_room() if raylet.node_id not in self.noticed)

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


def _find_no_node(pod: dict[str, Any]) -> None:
    no_node = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/2 nodes are available",
    }
    pod["status"] = {"phase": "Pending", "conditions": [no_node]}


def _pull(pod: dict[str, Any]) -> None:
    waiting = [
        {"name": each["name"], "ready": False, "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}
        for each in pod["spec"]["containers"]
    ]
    scheduled = {"type": "PodScheduled", "status": "True"}
    pod["status"] = {"phase": "Pending", "conditions": [scheduled], "containerStatuses": waiting}
