"""The decisions of PaddlePaddle's EDL autoscaler by its published rules, for comparison only.

Takes jobs with what they have and a cluster's sums, gives how many trainers each job gets more or less (TJ 2.4). Kept as it
was, faults included (TJ 2.5): jobs are sorted once per round by their size before the plan, so that every job gets one in
turn; jobs above the load limit shrink, whether that helps another job or not. Checked against upstream's own assertions
(TJ 2.6) in tests/unit/bench/test_edl.py, so that the baseline is no straw man. Its loop can go on for ever (D1); here it
ends after `MAX_ROUNDS`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

MAX_ROUNDS = 2000
MAX_LOAD = 0.97


@dataclass(frozen=True)
class EdlJob:
    """One training job: bounds, desired trainers, and the requests of one (CPU in thousandths, memory in 10^6 bytes)."""

    name: str
    low: int
    high: int
    current: int
    cpu_millis: int
    memory_mega: int
    gpus: int = 0

    @property
    def is_elastic(self) -> bool:
        """Whether it is scaled at all."""
        return self.low < self.high

    @property
    def score(self) -> float:
        """Fulfilment, not clamped; 1 for fixed jobs."""
        return (self.current - self.low) / (self.high - self.low) if self.is_elastic else 1.0


@dataclass
class EdlNode:
    """What is idle on one node; GPUs are not counted by node."""

    cpu_millis: int
    memory_mega: int


@dataclass
class EdlCluster:
    """Sums over all nodes and all pods that have not ended; the plan moves them as it goes."""

    cpu_total: int
    cpu_requested: int
    memory_total: int
    memory_requested: int
    gpu_total: int = 0
    gpu_limited: int = 0
    nodes: dict[str, EdlNode] = field(default_factory=dict)

    def is_over(self, max_load: float) -> bool:
        """Whether any sum is above its limit."""
        return (
            self.gpu_limited > math.floor(self.gpu_total * max_load)
            or self.cpu_requested > math.floor(self.cpu_total * max_load)
            or self.memory_requested > math.floor(self.memory_total * max_load)
        )

    def node_for(self, job: EdlJob) -> EdlNode | None:
        """The first node whose idle CPU and memory would do."""
        fitting = (
            node
            for node in self.nodes.values()
            if node.cpu_millis >= job.cpu_millis and node.memory_mega >= job.memory_mega
        )
        return next(fitting, None)

    def move(self, job: EdlJob, step: int) -> None:
        """The sums follow a step."""
        self.gpu_limited += job.gpus * step
        self.cpu_requested += job.cpu_millis * step
        self.memory_requested += job.memory_mega * step


def step_down(job: EdlJob, planned: int, cluster: EdlCluster, max_load: float) -> int:
    """What the down pass does with a job that is planned to have so many: -1 or 0."""
    step = 0
    if planned > job.high or (cluster.is_over(max_load) and planned > job.low):
        step = -1
    cluster.move(job, step)
    return step


def step_up(job: EdlJob, planned: int, cluster: EdlCluster, max_load: float) -> int:
    """What the up pass does with it: +1, 0, or straight down to the maximum."""
    step, node = _wanted_up(job, planned, cluster, max_load)
    cluster.move(job, step)
    if step > 0 and node is not None:
        node.cpu_millis -= job.cpu_millis
        node.memory_mega -= job.memory_mega
    return step


def _wanted_up(job: EdlJob, planned: int, cluster: EdlCluster, max_load: float) -> tuple[int, EdlNode | None]:
    if planned >= job.high:
        return job.high - planned, None
    if cluster.memory_total - cluster.memory_requested <= job.memory_mega:
        return 0, None
    node = cluster.node_for(job)
    if node is None:
        return 0, None
    has_cpu = math.floor(cluster.cpu_total * max_load) - cluster.cpu_requested >= job.cpu_millis
    has_gpu = cluster.gpu_total - cluster.gpu_limited >= job.gpus
    return int(has_cpu and (has_gpu or not job.gpus)), node


def in_order(jobs: Sequence[EdlJob]) -> list[EdlJob]:
    """Elastic jobs, the least fulfilled first; smaller requests first among equals."""
    elastic = [job for job in jobs if job.is_elastic]
    return sorted(elastic, key=lambda job: (job.score, job.gpus, job.cpu_millis, job.memory_mega))


def plan(jobs: Sequence[EdlJob], cluster: EdlCluster, max_load: float = MAX_LOAD) -> dict[str, int]:
    """Job -> how many more, or less; the cluster's sums are used up."""
    order = in_order(jobs)
    more = dict.fromkeys((job.name for job in order), 0)
    for _ in range(MAX_ROUNDS):
        has_changed = False
        for job in order:
            step = step_up(job, job.current + more[job.name], cluster, max_load)
            more[job.name] += step
            has_changed = has_changed or step != 0
        for job in reversed(order):
            step = step_down(job, job.current + more[job.name], cluster, max_load)
            more[job.name] += step
            has_changed = has_changed or step != 0
        if not has_changed:
            break
    return more
