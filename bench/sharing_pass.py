"""CPU time of a pass of the fair sharing, `build_snapshot()` and `allocate()`: P10, P10L and P10GROWTH.

TrainingJobs with different requests on nodes of four kinds. From scratch: without state of an earlier snapshot; the slowest of
consecutive passes when all jobs are new, from the placement of the minimums until nothing changes. After one change: all pods run
as planned, and then a job ends (its capacity is distributed) or a new one is submitted (others are scaled down); measured with the
state of the snapshot before, as in a running operator. Values are CPU time of this process with the operator's settings of the
garbage collector; mean and deviation are printed, and the mean is compared with the bar (PF: method). P10GROWTH writes a table and a
diagram to docs/figures.
"""

import gc
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any

from raytide.api.capacity import CapacityNode, CapacityPod, NodeTaint
from raytide.api.config import SharingConfig
from raytide.api.meta import Manifest
from raytide.api.pod_requirements import PodConstraints
from raytide.api.sharing_record import victims_of
from raytide.api.trainingjob import TrainingJob
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.algorithm.model import Allocation, ClusterSnapshot, ParticipantId, Shape
from raytide.fairshare.participants import role_shapes
from raytide.fairshare.patch_plan import plan_patches
from raytide.fairshare.pod_placement import RolePods
from raytide.fairshare.snapshot import SnapshotBuilder
from raytide.runtime.gc_tuning import tune_gc

from harness import DIAGRAMS, LogLogPanel, Met, exponent, result, run, spread, svg, write_table

GIB = 1 << 30
GPU = "nvidia.com/gpu"
BORN = datetime(2026, 1, 1, tzinfo=UTC)
CONFIG = SharingConfig()
ZONES = ("a", "b", "c")
TAINT = NodeTaint(GPU, "present", "NoSchedule")
TOLERATION = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
PODS_PER_NODE = 110
MAX_PASSES = 20
"""Number of passes after which nothing must change."""


@dataclass(frozen=True)
class Kind:
    """One kind of job: the requests of a trainer, and other fields of the spec."""

    low: int
    high: int
    requests: dict[str, str]
    limits: dict[str, str] | None = None
    pserver: dict[str, Any] | None = None
    selector: dict[str, str] | None = None
    is_tolerant: bool = False


def _role(count: int, cpu: str, memory: str, **more: Any) -> dict[str, Any]:
    return {
        "min-instance": count,
        "max-instance": count,
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
        **more,
    }


KINDS = (
    Kind(1, 8, {"cpu": "1", "memory": "2Gi"}),
    Kind(2, 20, {"cpu": "2", "memory": "4Gi"}, pserver=_role(2, "1", "2Gi")),
    Kind(2, 10, {"cpu": "4", "memory": "16Gi"}, limits={"cpu": "6", "memory": "16Gi"}),
    Kind(1, 6, {"cpu": "500m", "memory": "12Gi"}, selector={"zone": "a"}),
    Kind(1, 8, {"cpu": "4", "memory": "24Gi", GPU: "1"}, is_tolerant=True),
    Kind(1, 4, {"cpu": "16", "memory": "96Gi", GPU: "4"}, is_tolerant=True),
    Kind(3, 12, {"cpu": "3", "memory": "6Gi"}, selector={"disk": "ssd"}),
    Kind(
        2,
        16,
        {"cpu": "1500m", "memory": "3Gi"},
        pserver={**_role(1, "1", "2Gi"), "max-instance": 8, "scaling": {"mode": "Ratio", "trainersPerPserver": 4}},
    ),
)


@dataclass(frozen=True)
class ClusterState:
    """Input of a pass."""

    jobs: Sequence[TrainingJob]
    nodes: Sequence[CapacityNode]
    pods: Sequence[CapacityPod] = ()
    external_pods: Sequence[CapacityPod] = ()
    at: datetime = BORN + timedelta(hours=1)

    def pool(self, pools: SnapshotBuilder | None = None) -> ClusterSnapshot:
        """Snapshot for the planner; a given `SnapshotBuilder` only processes changes since its last snapshot."""
        return (pools or SnapshotBuilder(CONFIG)).build(
            self.jobs, [*self.pods, *self.external_pods], self.nodes, now=self.at
        )

    def without(self, job: TrainingJob) -> "ClusterState":
        """The cluster without this job and its pods."""
        uid = job.metadata.uid
        kept = [pod for pod in self.pods if pod.owner_uid != uid]
        return replace(self, jobs=[each for each in self.jobs if each is not job], pods=kept)

    def with_job(self, job: TrainingJob) -> "ClusterState":
        """The cluster with an additional new job."""
        return replace(self, jobs=[*self.jobs, job])


def new_cluster(jobs: int, nodes: int, seed: int = 1) -> ClusterState:
    """New jobs, and nodes on which pods of other workloads run."""
    all_nodes = [_node(number) for number in range(nodes)]
    random = Random(seed)
    external_pods = [_foreign_pod(number, each, random) for number, each in enumerate(all_nodes)]
    return ClusterState([new_job(number, random) for number in range(jobs)], all_nodes, external_pods=external_pods)


def _node(number: int) -> CapacityNode:
    zone = ZONES[number % len(ZONES)]
    labels = {"kubernetes.io/hostname": f"node-{number:05d}", "zone": zone, "disk": "ssd" if number % 2 else "hdd"}
    has_gpus = number % 4 == 3
    cpu, memory = ((16, 64), (32, 128), (64, 256), (96, 768))[number % 4]
    amounts = {"cpu": cpu * 1000, "memory": memory * GIB, "pods": PODS_PER_NODE, **({GPU: 8} if has_gpus else {})}
    taints = (TAINT,) if has_gpus else ()
    return CapacityNode(name=labels["kubernetes.io/hostname"], allocatable=amounts, labels=labels, taints=taints)


def _foreign_pod(number: int, node: CapacityNode, random: Random) -> CapacityPod:
    asked = {"cpu": node.allocatable["cpu"] * random.randint(2, 18) // 100, "memory": 2 * GIB, "pods": 1}
    return CapacityPod(
        namespace="web", name=f"web-{number}", uid=f"web-{number}", node=node.name, requests=asked, limits=asked,
        constraints=PodConstraints(), is_running=True, is_ready=True,
    )  # fmt: skip


def new_job(number: int, random: Random) -> TrainingJob:
    """A new job of a random kind, as written by a user."""
    kind = KINDS[random.randrange(len(KINDS))]
    low = kind.low + random.randrange(2)
    trainer: Manifest = {
        "min-instance": low,
        "max-instance": kind.high + random.randrange(4),
        "resources": {"requests": kind.requests, "limits": kind.limits or kind.requests},
    }
    if kind.selector:
        trainer["nodeSelector"] = kind.selector
    if kind.is_tolerant:
        trainer["tolerations"] = [TOLERATION]
    return TrainingJob.parse(
        {
            "apiVersion": "paddlepaddle.org/v1",
            "kind": "TrainingJob",
            "metadata": {
                "name": f"job-{number:05d}",
                "namespace": f"team-{number % 20}",
                "uid": f"uid-{number:05d}",
                "generation": 1,
                "creationTimestamp": (BORN + timedelta(seconds=number)).strftime("%Y-%m-%dT%H:%M:%SZ"),
            },
            "spec": {"trainer": trainer, **({"pserver": kind.pserver} if kind.pserver else {})},
        }
    )


# --- until nothing changes -------------------------------------------------------------------------------------------------


def passes(start: ClusterState) -> Iterator[ClusterState]:
    """The input of each pass, until a pass changes nothing."""
    now = start
    pools = SnapshotBuilder(CONFIG)
    for _ in range(MAX_PASSES):
        yield now
        before = now.pool(pools)
        allocation = allocate(before)
        if not allocation.resizes and now is not start:
            return
        now = carried_out(now, before, allocation, pools.trainers)
    message = f"not settled after {MAX_PASSES} passes"
    raise AssertionError(message)


def carried_out(
    now: ClusterState, before: ClusterSnapshot, allocation: Allocation, trainers: Mapping[ParticipantId, RolePods]
) -> ClusterState:
    """The cluster an hour later, without cooldowns, with all patches written and their pods running."""
    plan = plan_patches(now.jobs, before, allocation, now.at, trainers=trainers)
    orders = {order.job.key: order.patch("1") for order in plan.patches}
    jobs = [_patched(job, orders.get(job.key)) for job in now.jobs]
    pods = _placed(now, jobs)
    return replace(now, jobs=jobs, pods=pods, at=now.at + timedelta(hours=1))


def _patched(job: TrainingJob, patch: Manifest | None) -> TrainingJob:
    if patch is None:
        return job
    raw = job.raw
    metadata = {**raw["metadata"], "annotations": patch["metadata"]["annotations"]}
    trainer = {**raw["spec"]["trainer"], **patch.get("spec", {}).get("trainer", {})}
    return TrainingJob.parse({**raw, "metadata": metadata, "spec": {**raw["spec"], "trainer": trainer}})


def _placed(now: ClusterState, jobs: Sequence[TrainingJob]) -> list[CapacityPod]:
    """The desired pods of the jobs: existing ones on their nodes, new ones on the first node with capacity."""
    known: dict[tuple[str, str], dict[int, CapacityPod]] = {}
    for pod in now.pods:
        known.setdefault((pod.owner_uid, pod.role), {})[pod.index or 0] = pod
    free_capacity = FreeCapacity(now.nodes, [*now.pods, *now.external_pods])
    found: list[CapacityPod] = []
    for job in jobs:
        shapes, victims = role_shapes(job), victims_of(job.record, job.ordered_replicas())
        for role, count in _wanted(job).items():
            own = known.get((job.metadata.uid, role), {})
            kept = [own[index] for index in sorted(own) if own[index].name not in victims][:count]
            free = (index for index in itertools.count() if index not in own)
            new = (free_capacity.pod(job, role, next(free), shapes[role]) for _ in range(count - len(kept)))
            found += [*kept, *(pod for pod in new if pod is not None)]
    return found


def _wanted(job: TrainingJob) -> dict[str, int]:
    replicas = job.spec.trainer.replicas
    if replicas is None:
        return {}
    pservers = 0 if job.spec.pserver is None else job.spec.pserver.count_for(replicas)
    return {**({"pserver": pservers} if pservers else {}), "trainer": replicas}


class FreeCapacity:
    """Free capacity of each node, for a scheduler that takes the first node that fits."""

    def __init__(self, nodes: Sequence[CapacityNode], pods: Sequence[CapacityPod]) -> None:
        self._nodes = nodes
        self._free = {node.name: dict(node.allocatable) for node in nodes}
        self._first: dict[object, int] = {}
        """Per shape of pods the first node that can have capacity: capacity only decreases."""
        for pod in pods:
            self._take(pod.node, pod.requests)

    def _take(self, name: str, requests: Mapping[str, int]) -> None:
        free = self._free[name]
        for resource, amount in requests.items():
            free[resource] = free.get(resource, 0) - amount

    def _find(self, shape: Shape) -> CapacityNode | None:
        kind = (tuple(sorted(shape.requests.items())), shape.constraints)
        for place in range(self._first.get(kind, 0), len(self._nodes)):
            if self._fits(self._nodes[place], shape):
                self._first[kind] = place
                return self._nodes[place]
        self._first[kind] = len(self._nodes)
        return None

    def _fits(self, node: CapacityNode, shape: Shape) -> bool:
        if node.taints and not shape.constraints.tolerations:
            return False
        free = self._free[node.name]
        return all(node.labels.get(key) == value for key, value in shape.constraints.node_selector) and all(
            free.get(resource, 0) >= amount for resource, amount in shape.requests.items()
        )

    def pod(self, job: TrainingJob, role: str, index: int, shape: Shape) -> CapacityPod | None:
        """A running pod of the job; None if it fits on no node."""
        node = self._find(shape)
        if node is None:
            return None
        self._take(node.name, shape.requests)
        uid = f"pod-{job.metadata.uid}-{role}-{index}"
        return CapacityPod(
            namespace=job.key.namespace,
            name=uid,
            uid=uid,
            owner_uid=job.metadata.uid,
            node=node.name,
            job=job.key.name,
            role=role,
            index=index,
            requests=shape.requests,
            limits=shape.limits,
            is_running=True,
            is_ready=True,
        )


# --- P10, P10L ---------------------------------------------------------------------------------------------------------------

RUNS = 5


def cpu_ms(work: Callable[[], object], runs: int = RUNS, before: Callable[[], object] | None = None) -> list[float]:
    """CPU milliseconds of each run, after a warm-up; `before` is called before each run and not measured."""
    work()
    found = []
    for _ in range(runs):
        if before is not None:
            before()
        gc.collect()
        begun = time.process_time()
        work()
        found.append((time.process_time() - begun) * 1000)
    return found


def print_result(name: str, parts: dict[str, list[float]]) -> float:
    """Print the parts; returns the mean of their sum."""
    total = [sum(each) for each in zip(*parts.values(), strict=True)]
    words = ", ".join(f"{part} {spread(values)}" for part, values in parts.items())
    print(f"{name}: {spread(total)} ms CPU ({words})", flush=True)
    return statistics.mean(total)


def measure_functions(
    now: ClusterState, steady: ClusterState | None = None, runs: int = RUNS
) -> dict[str, list[float]]:
    """CPU of the two functions of a pass; `steady` is the state of the snapshot before, as in a running operator."""
    if steady is None:
        snapshot = cpu_ms(now.pool, runs)
    else:
        pools = SnapshotBuilder(CONFIG)
        snapshot = cpu_ms(lambda: now.pool(pools), runs, before=lambda: steady.pool(pools))
    ready = now.pool()
    return {"build_snapshot()": snapshot, "allocate()": cpu_ms(lambda: allocate(ready), runs)}


def changes(steady: ClusterState) -> dict[str, ClusterState]:
    """The cluster after each kind of change of its steady state."""
    size = {job.metadata.uid: 0 for job in steady.jobs}
    for pod in steady.pods:
        size[pod.owner_uid] += 1
    largest = max(steady.jobs, key=lambda job: size[job.metadata.uid])
    middle = sorted(steady.jobs, key=lambda job: size[job.metadata.uid])[len(steady.jobs) // 2]
    return {
        "a job of middle size ends": steady.without(middle),
        "the largest job ends": steady.without(largest),
        "a new job comes": steady.with_job(new_job(len(steady.jobs) + 1, Random(7))),
        "nothing": steady,
    }


def describe(now: ClusterState) -> str:
    """Number of pods and resizes as text."""
    resizes = allocate(now.pool()).resizes
    grown = sum(one.after - one.before for one in resizes)
    return f"{len(now.pods)} pods of jobs run, {len(resizes)} resizes by {grown} in all"


def measure(
    figure: str, jobs: int, nodes: int, *, scratch_bar_ms: float, change_bar_ms: float, runs: int = RUNS
) -> Met:
    """PF:P10 for 1,000 TrainingJobs on 500 nodes; P10L for ten times as many, the largest number of nodes of Kubernetes.

    P10L has two runs instead of five: the deviation between runs is small compared with a second.
    """
    tune_gc()  # as in the operator, before objects are created
    stages = list(passes(new_cluster(jobs, nodes)))
    scratch = max(
        print_result(f"from scratch, {describe(now)}", measure_functions(now, runs=runs)) for now in stages[:-1]
    )
    steady = stages[-1]
    print(f"settled: {len(steady.pods)} pods of jobs run, {len(allocate(steady.pool()).waiting)} jobs would be larger")
    worst = max(
        print_result(f"after one change ({name})", measure_functions(now, steady, runs))
        for name, now in changes(steady).items()
    )
    yield result(figure, scratch, f"ms CPU from scratch, {jobs} jobs x {nodes} nodes", scratch_bar_ms)
    yield result(figure, worst, "ms CPU after one change, the worst of four", change_bar_ms)


# --- P10GROWTH ---------------------------------------------------------------------------------------------------------------

JOBS, NODES = (100, 300, 1000, 3000), (50, 500, 2000)
CHANGES = ("a job of middle size ends", "a new job comes")
COLORS = {50: "#c9a227", 500: "#0b6e4f", 2000: "#264b96"}


@dataclass(frozen=True)
class Point:
    """One cluster: CPU milliseconds of a pass."""

    jobs: int
    nodes: int
    scratch_ms: float
    change_ms: float
    allocate_ms: float
    """The planner's part of `change_ms`."""


def point_of(jobs: int, nodes: int) -> Point:
    """Measure all passes of one cluster."""
    stages = list(passes(new_cluster(jobs, nodes)))
    steady = stages[-1]
    scratch = max(sum(fastest(now)) for now in stages[:-1])
    known = changes(steady)
    worst = max((fastest(known[name], steady) for name in CHANGES), key=sum)
    return Point(jobs, nodes, scratch, sum(worst), worst[1])


def fastest(now: ClusterState, steady: ClusterState | None = None) -> tuple[float, float]:
    """Least CPU of `build_snapshot()` and of `allocate()` in three runs."""
    snapshot, plan = measure_functions(now, steady, 3).values()
    return min(snapshot), min(plan)


WIDTH, HEIGHT, LEFT, TOP, GAP = 380, 280, 70, 40, 80


def panel(title: str, field: str, points: Sequence[Point], column: int, bar_ms: float) -> list[str]:
    """One diagram, with the bar for 1,000 jobs on 500 nodes as a dashed line."""
    one = LogLogPanel(LEFT + column * (WIDTH + GAP), TOP, WIDTH, HEIGHT, JOBS, 10_000.0)
    bar = f'<path d="M{one.x0} {one.y(bar_ms):.1f}h{WIDTH}" stroke="#b23a48" stroke-dasharray="6 4"/>'
    curves = (one.curve([(p.jobs, getattr(p, field)) for p in points if p.nodes == n], COLORS[n]) for n in NODES)
    return [*one.frame(title), bar, *itertools.chain.from_iterable(curves)]


def plot(points: Sequence[Point]) -> str:
    """Diagrams from scratch and after one change."""
    width, height = LEFT + 2 * (WIDTH + GAP), TOP + HEIGHT + 60
    y = height - 12
    lines = [
        *panel("CPU of a pass from scratch, by TrainingJobs", "scratch_ms", points, 0, 1000),
        *panel("CPU of a pass after one change, by TrainingJobs", "change_ms", points, 1, 50),
        *(
            f'<text x="{LEFT + place * 110}" y="{y}" fill="{COLORS[n]}">{n:,} nodes</text>'
            for place, n in enumerate(NODES)
        ),
        f'<text x="{LEFT + 350}" y="{y}" fill="#b23a48">dashed: the bar for 1,000 jobs on 500 nodes</text>',
    ]
    return svg(width, height, lines)


def growth() -> Met:
    """PF:P10GROWTH: CPU time of a pass by jobs and nodes, best of three.

    The value after one change is that of a job that ends or of one that is submitted, whichever is slower. The result is the exponent
    of growth after one change, from 1,000 to 3,000 jobs on 2,000 nodes.
    """
    points = []
    for nodes, jobs in itertools.product(NODES, JOBS):
        points.append(point_of(jobs, nodes))
        last = points[-1]
        print(
            f"{jobs} jobs, {nodes} nodes: from scratch {last.scratch_ms:.0f} ms, after one change "
            f"{last.change_ms:.0f} ms, {last.allocate_ms:.0f} ms of that in allocate()",
            flush=True,
        )
    rows = [
        (p.jobs, p.nodes, *(f"{value:.1f}" for value in (p.scratch_ms, p.change_ms, p.allocate_ms))) for p in points
    ]
    head = ("jobs", "nodes", "scratch_cpu_ms", "change_cpu_ms", "divide_cpu_ms")
    write_table("training-plan-growth", head, rows)
    (DIAGRAMS / "training-plan-growth.svg").write_text(plot(points))
    before, last = points[-2:]
    power = exponent((before.jobs, before.change_ms), (last.jobs, last.change_ms))
    yield result("P10GROWTH", power, "exponent of growth with jobs after one change", 1.3)


FIGURES = {
    "P10": partial(measure, "P10", 1000, 500, scratch_bar_ms=1000, change_bar_ms=50),
    "P10L": partial(measure, "P10L", 10_000, 5_000, scratch_bar_ms=5000, change_bar_ms=1000, runs=2),
    "P10GROWTH": growth,
}

if __name__ == "__main__":
    sys.exit(run(FIGURES))
