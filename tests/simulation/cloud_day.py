"""What happens on a random day in the cloud, and did anybody lose by it?

Work comes and goes in steps, machines run out of stock or are taken away with notice, under our operator or one that reads
no record. The judge counts: no pod is made twice for one demand, no healthy replica is ended while it works or is needed,
and no demand waits longer than the groups that were asked for it need, and ten seconds (FD:AS-A1 to FD:AS-A3).
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from raytide.autoscaler.settings import read_settings
from raytide_sandbox.apiserver.store import Change
from raytide_sandbox.faults.types import Answer
from support import virtual_time

from simulation.autoscaled_stage import AutoscaledStage
from simulation.census import Census
from simulation.cloud_world import Cloud, CloudRay, CloudWorld
from simulation.demand_scenarios import demanded
from simulation.invariants import Judge
from simulation.manifests import NAME, new_cluster
from simulation.ray_world import NOTICED_S
from simulation.stage import heard_by
from simulation.world import Kubelets

MOST = 8
IDLE_S = 30
MARGIN_S = 10.0
JOIN_S = 3.0
"""From a running container to a task that runs on it: Ray's own time."""
NODE_S = 900.0
"""So long a pod waits for a node where events cannot be read."""
SHRUNK_S = IDLE_S + 60.0


class CloudStage(AutoscaledStage):
    """One RayCluster in a cloud."""

    ray_world = CloudRay

    def _furnish(self, kubelets: Kubelets | None, holder: Callable[[], str | None] | None) -> None:
        self.world = CloudWorld(self.rng, kubelets=kubelets)
        self.world.cloud = Cloud(self.rng, self.rng.choice(("cluster-autoscaler", "karpenter")))
        self.census = Census(self.world.store)
        self.judge = Judge(self.world, self.census, holder=holder)


@dataclass
class Day:
    """One seed's day."""

    stage: CloudStage
    hosts: int
    has_events: bool
    made: int = 0
    allowed: int = 0
    since_s: float = 0.0
    """When the present demand arose."""
    noticed_s: float = 0.0
    """So much later Ray may know of it."""

    def note(self, text: str) -> None:
        """Something is wrong."""
        self.stage.judge.note(f"cloud: {text}")

    def count(self, change: Change) -> None:
        """A worker is made."""
        if change.type == "ADDED" and change.entry.labels.get("ray.io/node-type") == "worker":
            self.made += 1

    def alive(self) -> list[str]:
        """Workers that count, without those whose machine is being taken."""
        cluster = self.stage.world.cluster(NAME)
        assert cluster is not None
        offers = self.stage.world.cloud.offers
        return [
            pod.name
            for group in ("spot", "on-demand")
            for pod in self.stage.census.live_in(cluster["metadata"]["uid"], group)
            if pod.name in offers and not offers[pod.name].is_taken
        ]

    async def ask(self, tasks: int) -> None:
        """So much work from now on, and what follows from it."""
        need = -(-tasks // self.hosts) * self.hosts
        self.allowed += max(0, need - len(self.alive()))
        self.since_s, self.noticed_s = self.stage.loop.time(), 0.0
        self.stage.ray.ask(tasks)
        await self._served(tasks)
        if not self.stage.judge.violations:
            await self._shrunk(need)

    async def _served(self, tasks: int) -> None:
        while self.stage.ray.working < tasks and not self.stage.judge.violations:
            if self.stage.loop.time() > self._due_s():
                waited_s = self.stage.loop.time() - self.since_s
                self.note(f"{tasks - self.stage.ray.working} of {tasks} tasks wait after {waited_s:.0f} s")
            self._judge_made()
            await self.stage.pass_time(0.5)
        self._judge_made()

    def _due_s(self) -> float:
        """Until when the work has to run: the group that says no costs its answer, the slowest pod its machine and image."""
        offers = [o for o in self.stage.world.cloud.offers.values() if o.made_s >= self.since_s]
        rejected = [o for o in offers if o.is_rejected]
        said_no_s = max((o.answer_s if self.has_events else NODE_S for o in rejected), default=0.0)
        needs_s = max((o.needs_s for o in offers if not o.is_rejected), default=0.0)
        return self.since_s + self.noticed_s + said_no_s + needs_s + JOIN_S + MARGIN_S

    def _judge_made(self) -> None:
        """As many as were needed, once more for each that got no machine or lost it."""
        offers = self.stage.world.cloud.offers.values()
        lost = sum(offer.is_rejected or offer.is_taken for offer in offers) * self.hosts
        if self.made > self.allowed + lost:
            self.note(f"{self.made} pods made, {self.allowed} needed, {lost} rejected or taken away")

    async def _shrunk(self, need: int) -> None:
        """Idle workers go, and nobody else."""
        offers = self.stage.world.cloud.offers
        last_s = max((offers[name].made_s + offers[name].needs_s for name in self.alive()), default=0.0)
        ends_s = max(self.stage.loop.time(), last_s) + SHRUNK_S
        while len(self.alive()) > need and self.stage.loop.time() < ends_s:
            await self.stage.pass_time(0.5)
        if len(self.alive()) != need:
            self.note(f"{len(self.alive())} workers, {need} are needed")

    async def take(self) -> None:
        """A spot machine goes with notice, as the cloud drains it and then ends it."""
        ray = self.stage.ray
        assert isinstance(ray, CloudRay)
        victim = next((each for each in ray.raylets.values() if each.group == "spot" and each.tasks), None)
        if victim is None or self.hosts > 1:
            return
        tasks = ray.asked
        ray.notice(victim)
        self.stage.world.cloud.offers[victim.pod].is_taken = True
        await self.stage.pass_time(self.stage.rng.uniform(30.0, 120.0))
        self.stage.world.cloud.granted.discard(victim.pod)
        self.since_s, self.noticed_s = self.stage.loop.time(), NOTICED_S[1]
        self.stage.world.evict(victim.pod)
        await self.stage.pass_time(5.0)
        await self._served(tasks)


def live_through(seed: int) -> list[str]:
    """One day; what was wrong with it."""
    return virtual_time.run(_play(seed))


async def _play(seed: int) -> list[str]:
    dice = random.Random(f"cloud {seed}")
    hosts, is_recorded, has_events = dice.choice((1, 1, 4)), dice.random() < 0.6, dice.random() < 0.7
    environ = {"RAYTIDE_OPERATOR_VERSION": "dev"} if is_recorded else {}
    if not has_events:
        environ["RAYTIDE_AUTOSCALER_NODE_AUTOSCALER"] = "present"
    stage = CloudStage(seed, kubelets=Kubelets(start_s=(0.1, 1.0), end_s=(0.1, 1.0)))
    stage.settings = read_settings(environ)
    stage.is_judging_demand = False
    if not has_events:
        stage.wire_of_sidecar.admission = _without_events
    day = Day(stage, hosts, has_events)
    with heard_by(stage.judge):
        stage.open()
        stage.world.store.subscribe(day.count, "pods")
        stage.world.create(_cluster(hosts))
        stage.start()
        await stage.pass_time(15.0)
        for _ in range(dice.randint(2, 4)):
            if hosts == 1:
                stage.world.cloud.stock["spot"] = dice.choice((0, 2, MOST, MOST))
            await day.ask(dice.randint(1, MOST))
            if dice.random() < 0.4 and not stage.judge.violations:
                await day.take()
            await stage.pass_time(dice.uniform(5.0, 60.0))
            if not stage.judge.violations:
                await day.ask(0)
            if stage.judge.violations:
                break
        await stage.close()
    return stage.judge.violations


def _cluster(hosts: int) -> dict[str, Any]:
    spot = {**demanded("spot", MOST // hosts, hosts), "priority": 10}
    groups = [spot] if hosts > 1 else [spot, {**demanded("on-demand", MOST, hosts), "priority": 5}]
    cluster = new_cluster(groups)
    cluster["spec"].update(
        enableInTreeAutoscaling=True, autoscalerOptions={"idleTimeoutSeconds": IDLE_S, "version": "v2"}
    )
    cluster["spec"]["headGroupSpec"]["rayStartParams"] = {"num-cpus": "0"}
    return cluster


def _without_events(request: Any) -> Answer | None:
    """The Role that KubeRay makes."""
    return Answer(403, message="events is forbidden") if request.path.endswith("/events") else None
