"""Policies that decide how many trainers each simulated job has: fixed sizes, EDL, or Raytide.

Each policy sees the world of training_world.py as it would see a cluster. `Edl` plans at its ticks and at each submission,
by the rules of edl.py; `Raytide` runs the product itself, `build_snapshot()`, `allocate()` and `plan_patches()`, in the rhythm of its
sharing pass: one second after the first of a flock of changes, every 30 s, and when a cooldown ends; what it writes on a
job is what the next pass reads.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from raytide.api.capacity import CapacityNode, CapacityPod, Priority
from raytide.api.conditions import timestamp
from raytide.api.config import SharingConfig
from raytide.api.meta import Manifest
from raytide.api.pod_requirements import PodConstraints
from raytide.api.sharing_record import placements_of
from raytide.api.trainingjob import TrainingJob
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.patch_plan import plan_patches
from raytide.fairshare.snapshot import SnapshotBuilder
from raytide.trainingjob.trainer_indices import planned_nodes
from support.edl import MAX_LOAD, EdlCluster, EdlJob, EdlNode, plan
from support.training_world import NAMESPACE, SERVICE, TRAINER, Ask, Job, Pod, World

MIB = 1 << 20
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class Fixed:
    """No scaling: every job keeps the size it was submitted with."""

    def begin(self, world: World) -> None:
        """Nothing to do."""

    def submitted(self, job: Job) -> None:
        """Nothing to do."""

    def changed(self) -> None:
        """Nothing to do."""


class Edl:
    """EDL as it was when it was published: a tick, and at once when a job comes (TJ 2.3, 2.4)."""

    def __init__(self, *, period_s: float = 5.0, max_load: float = MAX_LOAD) -> None:
        self._period_s = period_s
        self._max_load = max_load
        self._world: World

    def begin(self, world: World) -> None:
        """Start ticking."""
        self._world = world
        world.after(self._period_s, self._tick)

    def submitted(self, job: Job) -> None:  # noqa: ARG002 - EDL looks at all jobs
        """A job was added: plan at once."""
        self._plan()

    def changed(self) -> None:
        """Pods are of no interest until the next tick."""

    def _tick(self) -> None:
        self._plan()
        self._world.after(self._period_s, self._tick)

    def _plan(self) -> None:
        jobs = [job for job in self._world.jobs if job.ended_s is None]
        candidates = {job.of.name: job for job in candidates_of(jobs)}
        more = plan([as_edl(job) for job in candidates.values()], self._cluster(), self._max_load)
        for name, step in more.items():
            job = candidates[name]
            self._world.resize(job, job.wanted + step)

    def _cluster(self) -> EdlCluster:
        nodes, pods = self._world.nodes, self._world.pods.values()
        return EdlCluster(
            cpu_total=self._world.cpu_total,
            cpu_requested=sum(pod.ask.cpu_millis for pod in pods),
            memory_total=sum(_mega(node.memory_mib) for node in nodes),
            memory_requested=sum(_mega(pod.ask.memory_mib) for pod in pods),
            nodes={node.name: EdlNode(node.free_cpu, _mega(node.free_memory)) for node in nodes},
        )


def candidates_of(jobs: list[Job]) -> list[Job]:
    """Jobs whose trainers all run; all jobs, once the trainers of some job are all pending."""
    trainers = {job.of.name: [pod for pod in job.pods if pod.role == TRAINER] for job in jobs}
    if any(not any(pod.is_running for pod in pods) for pods in trainers.values()):
        return jobs
    return [job for job in jobs if all(pod.is_running for pod in trainers[job.of.name])]


def as_edl(job: Job) -> EdlJob:
    """A job as EDL counts it."""
    ask = job.of.trainer
    return EdlJob(job.of.name, job.of.low, job.of.high, job.wanted, ask.cpu_millis, _mega(ask.memory_mib))


def _mega(mib: int) -> int:
    return -(-mib * MIB // 1_000_000)


class Raytide:
    """The sharing pass of the operator."""

    def __init__(
        self,
        config: SharingConfig | None = None,
        *,
        scaling: Mapping[str, object] | None = None,
        tenants: Mapping[str, str] | None = None,
    ) -> None:
        """`tenants` maps namespaces to names of tenants, as their labels do."""
        self.passes = 0
        self._tenants = dict(tenants or {})
        self._priorities: dict[str, Priority] = {}
        self._config = config or SharingConfig()
        self._scaling = dict(scaling or {})
        self._manifests: dict[str, TrainingJob] = {}
        self._jobs: dict[str, Job] = {}
        self._views: dict[int, tuple[tuple[str, bool, bool], CapacityPod]] = {}
        self._pools = SnapshotBuilder(self._config)
        self._turn = 0
        self._is_rung = False
        self._is_settled = False
        self._change: datetime | None = None
        self._world: World
        self._nodes: list[CapacityNode] = []

    def begin(self, world: World) -> None:
        """Nodes never change here."""
        self._world = world
        self._nodes = [
            CapacityNode(
                name=node.name,
                allocatable={"cpu": node.cpu_millis, "memory": node.memory_mib * MIB, "pods": 110},
            )
            for node in world.nodes
        ]
        self._next_pass(self._config.period_s)

    def submitted(self, job: Job) -> None:
        """A new object in the API."""
        self._priorities[priority_class(job.of.priority)] = Priority(job.of.priority)
        self._jobs[job.of.name] = job
        self._manifests[job.of.name] = TrainingJob.parse(manifest(job, self._now(), self._scaling))

    def changed(self) -> None:
        """A ring: a pass follows after the settling time, however many rings come until then."""
        if not self._is_rung:
            self._is_rung = True
            self._next_pass(self._config.settle_s)

    def _now(self) -> datetime:
        return BEGAN + timedelta(seconds=self._world.now_s)

    def _next_pass(self, delay_s: float) -> None:
        self._turn += 1
        turn = self._turn
        self._world.after(delay_s, lambda: self._pass() if turn == self._turn else None)

    def _pass(self) -> None:
        now = self._now()
        is_due = self._change is not None and self._change <= now
        if self._is_settled and not self._is_rung and not is_due:
            self._next_pass(self._config.period_s)
            return
        self.passes += 1
        self._is_rung = False
        jobs = [self._manifests[name] for name, job in self._jobs.items() if job.ended_s is None]
        pods = [self._view(pod) for pod in self._world.pods.values()]
        shared = self._pools.build(jobs, pods, self._nodes, priorities=self._priorities, tenants=self._tenants, now=now)
        orders = plan_patches(jobs, shared, allocate(shared), now, trainers=self._pools.trainers)
        self._is_settled = not orders.patches and not orders.has_stale_message
        moments = (self._pools.changes_at, orders.changes_at)
        self._change = min((moment for moment in moments if moment is not None), default=None)
        left_s = self._config.period_s if self._change is None else (self._change - now).total_seconds()
        self._next_pass(max(0.0, min(self._config.period_s, left_s)) + self._config.settle_s)
        for order in orders.patches:
            name = order.job.key.name
            self._manifests[name] = patched(order.job, order.patch("1"))
            if order.replicas is not None:
                victims = {int(victim.rpartition("-")[2]) for victim in order.record.victims}
                placements = placements_of(order.record, order.replicas)
                nodes = planned_nodes(placements, sum(placements.values()))
                self._world.resize(self._jobs[name], order.replicas, victims, nodes)

    def _view(self, pod: Pod) -> CapacityPod:
        state = (pod.node.name if pod.node else "", pod.is_running, pod.is_terminating)
        known = self._views.get(pod.number)
        if known is not None and known[0] == state:
            return known[1]
        view = capacity_pod(pod, *state)
        self._views[pod.number] = (state, view)
        return view


def capacity_pod(pod: Pod, node: str, is_running: bool, is_terminating: bool) -> CapacityPod:  # noqa: FBT001 - a state, spread
    """A simulated pod as the capacity informer shows it."""
    asked = {"cpu": pod.ask.cpu_millis, "memory": pod.ask.memory_mib * MIB}
    owner = "" if pod.job is None else pod.job.of.name
    return CapacityPod(
        namespace=pod.job.of.namespace if pod.job else NAMESPACE,
        name=f"{owner}-{pod.role}-{pod.index}" if owner else f"{SERVICE}-{pod.number}",
        uid=str(pod.number),
        owner_uid=f"uid-{owner}" if owner else "",
        node=node,
        job=owner,
        role=pod.role if owner else "",
        index=pod.index,
        requests={**asked, "pods": 1},
        limits=asked,
        priority=pod.priority,
        constraints=PodConstraints(),
        is_terminating=is_terminating,
        is_running=is_running,
        is_ready=is_running,
    )


def priority_class(priority: int) -> str:
    """The PriorityClass with this value; none for 0."""
    return f"priority-{priority}" if priority else ""


def manifest(job: Job, now: datetime, scaling: Mapping[str, object]) -> Manifest:
    """The TrainingJob that a user would have written."""
    of = job.of
    spec: Manifest = {
        "fault_tolerant": of.master is not None,
        "scaling": dict(scaling),
        "trainer": {"min-instance": of.low, "max-instance": of.high, "resources": _resources(of.trainer)},
    }
    if of.priority:
        spec["priorityClassName"] = priority_class(of.priority)
    if of.master is not None:
        spec["master"] = {"resources": _resources(of.master)}
    if of.pservers:
        bounds = {"min-instance": of.pservers, "max-instance": of.pservers}
        spec["pserver"] = {**bounds, "resources": _resources(of.pserver)}
    metadata = {"name": of.name, "namespace": of.namespace, "uid": f"uid-{of.name}", "generation": 1}
    metadata["creationTimestamp"] = timestamp(now)
    status = {"startTime": timestamp(now)}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def _resources(ask: Ask) -> Manifest:
    amounts = {"cpu": f"{ask.cpu_millis}m", "memory": f"{ask.memory_mib}Mi"}
    return {"requests": amounts, "limits": amounts}


def patched(job: TrainingJob, patch: Manifest) -> TrainingJob:
    """The job as the API stores it after the sharing pass's patch."""
    raw = job.raw
    metadata = {**raw["metadata"], "annotations": patch["metadata"]["annotations"]}
    trainer = {**raw["spec"]["trainer"], **patch.get("spec", {}).get("trainer", {})}
    return TrainingJob.parse({**raw, "metadata": metadata, "spec": {**raw["spec"], "trainer": trainer}})
