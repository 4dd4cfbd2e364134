"""Clusters for the benchmarks of the sharing pass: TrainingJobs of mixed requests on nodes of four kinds.

`crowd(jobs, nodes)` is the moment before the first plan: every job is new, nothing runs, external pods hold a tenth of
the room. `passes(crowd)` carries the plan out, pass after pass, until nothing changes any more: what a pass meets on a
calm day. All values are those the sharing pass gets from its informers, and the same for the same numbers.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
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
from raytide.fairshare.eligibility import record_of
from raytide.fairshare.participants import role_shapes
from raytide.fairshare.patch_plan import plan_patches
from raytide.fairshare.pod_placement import RolePods
from raytide.fairshare.snapshot import SnapshotBuilder

GIB = 1 << 30
GPU = "nvidia.com/gpu"
BORN = datetime(2026, 1, 1, tzinfo=UTC)
CONFIG = SharingConfig()
ZONES = ("a", "b", "c")
TAINT = NodeTaint(GPU, "present", "NoSchedule")
TOLERATION = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
PODS_PER_NODE = 110
PASSES = 20
"""In which everything is settled."""


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
class Crowd:
    """Everything a pass looks at."""

    jobs: Sequence[TrainingJob]
    nodes: Sequence[CapacityNode]
    pods: Sequence[CapacityPod] = ()
    external_pods: Sequence[CapacityPod] = ()
    at: datetime = BORN + timedelta(hours=1)

    def pool(self, pools: SnapshotBuilder | None = None) -> ClusterSnapshot:
        """What the planner is given; with `SnapshotBuilder` only what is another since the last time is looked at."""
        return (pools or SnapshotBuilder(CONFIG)).build(
            self.jobs, [*self.pods, *self.external_pods], self.nodes, now=self.at
        )

    def without(self, job: TrainingJob) -> "Crowd":
        """With one job less, and its pods gone."""
        uid = job.metadata.uid
        kept = [pod for pod in self.pods if pod.owner_uid != uid]
        return replace(self, jobs=[each for each in self.jobs if each is not job], pods=kept)

    def with_job(self, job: TrainingJob) -> "Crowd":
        """With one job more, that has just been created."""
        return replace(self, jobs=[*self.jobs, job])


def crowd(jobs: int, nodes: int, seed: int = 1) -> Crowd:
    """So many new jobs, and so many nodes of which external pods hold a little."""
    all_nodes = [_node(number) for number in range(nodes)]
    random = Random(seed)
    external_pods = [_foreign_pod(number, each, random) for number, each in enumerate(all_nodes)]
    return Crowd([a_job(number, random) for number in range(jobs)], all_nodes, external_pods=external_pods)


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


def a_job(number: int, random: Random) -> TrainingJob:
    """One new job of some kind, as a user writes it."""
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


# --- until nothing changes any more ----------------------------------------------------------------------------------------


def passes(start: Crowd) -> Iterator[Crowd]:
    """What pass after pass meets, until the last one finds nothing to change."""
    now = start
    pools = SnapshotBuilder(CONFIG)
    for _ in range(PASSES):
        yield now
        before = now.pool(pools)
        division = allocate(before)
        if not division.resizes and now is not start:
            return
        now = carried_out(now, before, division, pools.trainers)
    message = f"not settled after {PASSES} passes"
    raise AssertionError(message)


def settled(start: Crowd) -> Crowd:
    """Everything that is decided has come true: sizes are written, pods are where the plan put them."""
    return list(passes(start))[-1]


def carried_out(
    now: Crowd, before: ClusterSnapshot, division: Allocation, trainers: Mapping[ParticipantId, RolePods]
) -> Crowd:
    """With the orders written and their pods there, an hour later, when no job is in a cooldown any more."""
    plan = plan_patches(now.jobs, before, division, now.at, trainers=trainers)
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


def _placed(now: Crowd, jobs: Sequence[TrainingJob]) -> list[CapacityPod]:
    """The pods that the jobs want, kept where they are; who is new goes where the planner itself would put it."""
    known: dict[tuple[str, str], dict[int, CapacityPod]] = {}
    for pod in now.pods:
        known.setdefault((pod.owner_uid, pod.role), {})[pod.index or 0] = pod
    free_capacity = FreeCapacity(now.nodes, [*now.pods, *now.external_pods])
    found: list[CapacityPod] = []
    for job in jobs:
        shapes, victims = role_shapes(job), victims_of(record_of(job), job.spec.trainer.replicas)
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
    """What is free on each node, for a scheduler that takes the first node that fits."""

    def __init__(self, nodes: Sequence[CapacityNode], pods: Sequence[CapacityPod]) -> None:
        self._nodes = nodes
        self._free = {node.name: dict(node.allocatable) for node in nodes}
        self._first: dict[object, int] = {}
        """Per kind of pod the first node that may still have capacity: capacity only decreases."""
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
        """A running pod of the job; None if it fits nowhere."""
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
