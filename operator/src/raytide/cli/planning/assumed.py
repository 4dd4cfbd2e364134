"""Where are the pods of jobs that a list does not show?

Takes a snapshot whose jobs have no pods in it, written by hand, dumped without pods, or about to be submitted, and gives
the pods that those jobs would have: at the size in their spec, each on a node where it fits as long as there is one, in
the order of age. A gang has pods only if its size was ordered, since without an order it has not begun. A job of which any
pod is in the list is taken as it is. Pure; called by answer.py, never for what a cluster says itself.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from raytide.api.capacity import CapacityPod
from raytide.api.training_names import MASTER, PSERVER, TRAINER
from raytide.api.trainingjob import TrainingJob
from raytide.elastic.model import Node, Shape
from raytide.elastic.placement import Room
from raytide.sharing.claims import claim_of, takes_part
from raytide.sharing.shapes import role_shape

_UID: Final = "assumed-"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One pod that a job would have."""

    job: TrainingJob
    role: str
    index: int
    shape: Shape

    def on(self, node: str) -> CapacityPod:
        """The pod, there; without a node it waits for one."""
        return CapacityPod(
            namespace=self.job.key.namespace,
            name=f"{self.job.key.name}-{self.role}-{self.index}",
            owner_uid=self.job.metadata.uid,
            node=node,
            job=self.job.key.name,
            role=self.role,
            index=self.index,
            requests=self.shape.requests,
            limits=self.shape.limits,
            is_running=bool(node),
        )


def with_uid(job: TrainingJob) -> TrainingJob:
    """The job itself, with a uid if nobody gave it one: pods belong to uids."""
    if job.metadata.uid:
        return job
    metadata = job.metadata.model_copy(update={"uid": f"{_UID}{job.key.namespace}-{job.key.name}"})
    return job.model_copy(update={"metadata": metadata})


def assumed_pods(
    jobs: Iterable[TrainingJob], pods: Iterable[CapacityPod], nodes: Iterable[Node], gpus: frozenset[str]
) -> Iterator[CapacityPod]:
    """Pods for the jobs that have none; `nodes` say what the pods of the list use."""
    shown = {(pod.job_key, pod.owner_uid) for pod in pods if pod.job}
    bare = [job for job in jobs if takes_part(job) and (job.key, job.metadata.uid) not in shown]
    bare.sort(key=lambda job: (job.spec.trainer.replicas is None, job.metadata.creation_timestamp, job.key))
    wanted = [pod for job in bare for pod in _wanted(job, gpus)]
    room = Room(tuple(nodes), [pod.shape for pod in wanted], gpus)
    for pod in wanted:
        asked = room.pod(pod.shape)
        found = room.find(asked)
        if found is None or not found[1]:
            yield pod.on("")
            continue
        room.put(asked, found[0])
        yield pod.on(found[0].name)


def _wanted(job: TrainingJob, gpus: frozenset[str]) -> Iterator[_Wanted]:
    """What its controller would keep, in the order in which it starts."""
    claim = claim_of(job, live_trainers=job.spec.trainer.replicas or 0, gpus=gpus)
    if not claim.has_begun:
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
