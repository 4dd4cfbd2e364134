"""Random days in a simulated cloud, with checks of pods created, workers deleted and waiting times.

The demand rises and falls in steps, node types run out of stock, nodes are preempted with notice, under our operator or one
that ignores the decision record. Checked: no pod is created twice for one demand, no healthy replica is deleted while it is
busy or needed, and no demand waits longer than the requested groups need plus ten seconds (FD:AS-A1 to FD:AS-A3).
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from raytide.autoscaler.sidecar.settings import read_settings
from raytide_sandbox.apiserver.store import Change
from support import virtual_time
from support.faults.types import Answer

from simulation.autoscaled_environment import AutoscaledEnvironment
from simulation.demand_scenarios import demanded
from simulation.environment import log_errors_as_violations
from simulation.invariant_checks import RayClusterChecks
from simulation.manifests import NAME, new_cluster
from simulation.pod_tracker import PodTracker
from simulation.simulated_cloud import Cloud, CloudKube, CloudRay
from simulation.simulated_kube import Kubelets
from simulation.simulated_ray import FAILURE_DETECTED_S

MAX_WORKERS = 8
IDLE_S = 30
MARGIN_S = 10.0
JOIN_S = 3.0
"""From a running container to a task that runs on it: Ray's own time."""
NODE_S = 900.0
"""How long a pod waits for a node if events cannot be read."""
SCALE_DOWN_WITHIN_S = IDLE_S + 60.0


class CloudEnvironment(AutoscaledEnvironment):
    """A RayCluster in a simulated cloud."""

    ray_class = CloudRay

    def _set_up(self, kubelets: Kubelets | None, holder: Callable[[], str | None] | None) -> None:
        self.kube = CloudKube(self.rng, kubelets=kubelets)
        self.kube.cloud = Cloud(self.rng, self.rng.choice(("cluster-autoscaler", "karpenter")))
        self.pod_tracker = PodTracker(self.kube.store)
        self.checks = RayClusterChecks(self.kube, self.pod_tracker, holder=holder)


@dataclass
class Day:
    """The day of one seed."""

    env: CloudEnvironment
    hosts: int
    has_events: bool
    created: int = 0
    allowed_creates: int = 0
    since_s: float = 0.0
    """When the current demand began, in seconds of the loop."""
    detection_s: float = 0.0
    """How long Ray may take to detect it."""

    def add_violation(self, text: str) -> None:
        """Record a violation."""
        self.env.checks.add_violation(f"cloud: {text}")

    def count_created(self, change: Change) -> None:
        """Count a created worker."""
        if change.type == "ADDED" and change.entry.labels.get("ray.io/node-type") == "worker":
            self.created += 1

    def live_workers(self) -> list[str]:
        """Live workers, without those whose preemption was announced."""
        cluster = self.env.kube.cluster(NAME)
        assert cluster is not None
        requests = self.env.kube.cloud.requests
        return [
            pod.name
            for group in ("spot", "on-demand")
            for pod in self.env.pod_tracker.live_pods(cluster["metadata"]["uid"], group)
            if pod.name in requests and not requests[pod.name].is_preempted
        ]

    async def set_demand(self, tasks: int) -> None:
        """Set the demand, and check the scale-up and scale-down that follow."""
        needed = -(-tasks // self.hosts) * self.hosts
        self.allowed_creates += max(0, needed - len(self.live_workers()))
        self.since_s, self.detection_s = self.env.loop.time(), 0.0
        self.env.ray.set_tasks(tasks)
        await self._wait_until_served(tasks)
        if not self.env.checks.violations:
            await self._wait_until_scaled_down(needed)

    async def _wait_until_served(self, tasks: int) -> None:
        while self.env.ray.running_tasks < tasks and not self.env.checks.violations:
            if self.env.loop.time() > self._due_s():
                waited_s = self.env.loop.time() - self.since_s
                self.add_violation(f"{tasks - self.env.ray.running_tasks} of {tasks} tasks wait after {waited_s:.0f} s")
            self._check_created_pods()
            await self.env.pass_time(0.5)
        self._check_created_pods()

    def _due_s(self) -> float:
        """When the tasks must run: after the response of each rejected group and the node and image of the slowest pod."""
        requests = [request for request in self.env.kube.cloud.requests.values() if request.created_s >= self.since_s]
        rejected = [request for request in requests if request.is_rejected]
        rejected_s = max((request.answer_s if self.has_events else NODE_S for request in rejected), default=0.0)
        startup_s = max((request.startup_s for request in requests if not request.is_rejected), default=0.0)
        return self.since_s + self.detection_s + rejected_s + startup_s + JOIN_S + MARGIN_S

    def _check_created_pods(self) -> None:
        """Check that as many pods were created as needed, and one more per rejected or preempted pod."""
        requests = self.env.kube.cloud.requests.values()
        lost = sum(request.is_rejected or request.is_preempted for request in requests) * self.hosts
        if self.created > self.allowed_creates + lost:
            self.add_violation(
                f"{self.created} pods created, {self.allowed_creates} needed, {lost} rejected or preempted"
            )

    async def _wait_until_scaled_down(self, needed: int) -> None:
        """Check that idle workers are deleted, and no others."""
        requests = self.env.kube.cloud.requests
        last_s = max((requests[name].created_s + requests[name].startup_s for name in self.live_workers()), default=0.0)
        ends_s = max(self.env.loop.time(), last_s) + SCALE_DOWN_WITHIN_S
        while len(self.live_workers()) > needed and self.env.loop.time() < ends_s:
            await self.env.pass_time(0.5)
        if len(self.live_workers()) != needed:
            self.add_violation(f"{len(self.live_workers())} workers, {needed} are needed")

    async def preempt_spot_node(self) -> None:
        """Preempt a busy spot node with notice: drain first, eviction later."""
        ray = self.env.ray
        assert isinstance(ray, CloudRay)
        victim = next((each for each in ray.raylets.values() if each.group == "spot" and each.tasks), None)
        if victim is None or self.hosts > 1:
            return
        tasks = ray.requested_tasks
        ray.announce_preemption(victim)
        self.env.kube.cloud.requests[victim.pod].is_preempted = True
        await self.env.pass_time(self.env.rng.uniform(30.0, 120.0))
        self.env.kube.cloud.granted.discard(victim.pod)
        self.since_s, self.detection_s = self.env.loop.time(), FAILURE_DETECTED_S[1]
        self.env.kube.evict_pod(victim.pod)
        await self.env.pass_time(5.0)
        await self._wait_until_served(tasks)


def run_day(seed: int) -> list[str]:
    """Run the day of one seed; returns the violations."""
    return virtual_time.run(_run(seed))


async def _run(seed: int) -> list[str]:
    rng = random.Random(f"cloud {seed}")
    hosts, is_recorded, has_events = rng.choice((1, 1, 4)), rng.random() < 0.6, rng.random() < 0.7
    environ = {"RAYTIDE_OPERATOR_VERSION": "dev"} if is_recorded else {}
    if not has_events:
        environ["RAYTIDE_AUTOSCALER_NODE_AUTOSCALER"] = "present"
    env = CloudEnvironment(seed, kubelets=Kubelets(start_s=(0.1, 1.0), end_s=(0.1, 1.0)))
    env.settings = read_settings(environ)
    env.checks_demand = False
    if not has_events:
        env.sidecar_transport.admission = _without_events
    day = Day(env, hosts, has_events)
    with log_errors_as_violations(env.checks):
        env.open()
        env.kube.store.subscribe(day.count_created, "pods")
        env.kube.create(_cluster(hosts))
        env.start()
        await env.pass_time(15.0)
        for _ in range(rng.randint(2, 4)):
            if hosts == 1:
                env.kube.cloud.stock["spot"] = rng.choice((0, 2, MAX_WORKERS, MAX_WORKERS))
            await day.set_demand(rng.randint(1, MAX_WORKERS))
            if rng.random() < 0.4 and not env.checks.violations:
                await day.preempt_spot_node()
            await env.pass_time(rng.uniform(5.0, 60.0))
            if not env.checks.violations:
                await day.set_demand(0)
            if env.checks.violations:
                break
        await env.close()
    return env.checks.violations


def _cluster(hosts: int) -> dict[str, Any]:
    spot = {**demanded("spot", MAX_WORKERS // hosts, hosts), "priority": 10}
    groups = [spot] if hosts > 1 else [spot, {**demanded("on-demand", MAX_WORKERS, hosts), "priority": 5}]
    cluster = new_cluster(groups)
    cluster["spec"].update(
        enableInTreeAutoscaling=True, autoscalerOptions={"idleTimeoutSeconds": IDLE_S, "version": "v2"}
    )
    cluster["spec"]["headGroupSpec"]["rayStartParams"] = {"num-cpus": "0"}
    return cluster


def _without_events(request: Any) -> Answer | None:
    """Reject events, as the Role that KubeRay creates does."""
    return Answer(403, message="events is forbidden") if request.path.endswith("/events") else None
