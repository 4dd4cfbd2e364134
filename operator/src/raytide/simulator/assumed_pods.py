"""Assumed pods: pods of jobs whose pods are missing from a snapshot.

Takes a snapshot with jobs that have no pods, because it was written by hand, dumped without pods, or the jobs are about
to be submitted. Returns the pods that those jobs would have: the size in their spec, each on a node where it fits, in
order of age. A gang has pods only if its size was ordered; before that it has not begun. A job with any pod in the
snapshot is left as it is. Pure; called by simulate.py, not for live clusters.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from raytide.api.capacity import CapacityPod
from raytide.api.meta import Key
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_constants import MASTER, PSERVER, TRAINER
from raytide.fairshare.algorithm.model import Node, Shape
from raytide.fairshare.algorithm.placement import ClusterCapacity
from raytide.fairshare.eligibility import is_eligible, job_demand
from raytide.fairshare.pod_requirements import role_shape

_UID: Final = "assumed-"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One pod that a job would have."""

    job: TrainingJob
    role: str
    index: int
    shape: Shape

    def on(self, node: str) -> CapacityPod:
        """The pod on that node; an empty node name leaves it pending."""
        return assumed_pod(self.job, self.role, self.index, self.shape, node)


def assumed_pod(job: TrainingJob, role: str, index: int, shape: Shape, node: str = "") -> CapacityPod:
    """A pod of the job that does not exist; an empty node name leaves it pending."""
    return CapacityPod(
        namespace=job.key.namespace,
        name=f"{job.key.name}-{role}-{index}",
        owner_uid=job.metadata.uid,
        node=node,
        job=job.key.name,
        role=role,
        index=index,
        requests=shape.requests,
        limits=shape.limits,
        constraints=shape.constraints,
        is_running=bool(node),
    )


def placeholder_uid(key: Key) -> str:
    """The uid of an object that was never created."""
    return f"{_UID}{key.namespace}-{key.name}"


def with_placeholder_uid(job: TrainingJob) -> TrainingJob:
    """Give the job a placeholder as its uid if it was never created: pods refer to uids."""
    if job.metadata.uid:
        return job
    metadata = job.metadata.model_copy(update={"uid": placeholder_uid(job.key)})
    return job.model_copy(update={"metadata": metadata})


def assumed_pods(
    jobs: Iterable[TrainingJob], pods: Iterable[CapacityPod], nodes: Iterable[Node], gpus: frozenset[str]
) -> Iterator[CapacityPod]:
    """Yield pods for the jobs that have none; `nodes` carry the usage of the listed pods."""
    shown = {(pod.job_key, pod.owner_uid) for pod in pods if pod.job}
    bare = [job for job in jobs if is_eligible(job) and (job.key, job.metadata.uid) not in shown]
    bare.sort(key=lambda job: (job.spec.trainer.replicas is None, job.metadata.creation_timestamp, job.key))
    wanted = [pod for job in bare for pod in _wanted(job, gpus)]
    cluster = ClusterCapacity(tuple(nodes), [pod.shape for pod in wanted], gpus)
    for pod in wanted:
        placed = cluster.pod(pod.shape)
        found = cluster.find(placed)
        if found is None or not found[1]:
            yield pod.on("")
            continue
        cluster.put(placed, found[0])
        yield pod.on(found[0].name)


def _wanted(job: TrainingJob, gpus: frozenset[str]) -> Iterator[_Wanted]:
    """The pods that the controller would keep, in start order."""
    claim = job_demand(job, live_trainers=job.spec.trainer.replicas or 0, gpus=gpus)
    if not claim.has_started:
        return
    pserver = job.spec.pserver
    counts = {
        MASTER: int(job.has_master),
        PSERVER: 0 if pserver is None else max(0, pserver.count_for(claim.wanted)),
        TRAINER: claim.trainers,
    }
    for role, count in counts.items():
        if count:
            shape = role_shape(job, role)
            yield from (_Wanted(job, role, index, shape) for index in range(count))
