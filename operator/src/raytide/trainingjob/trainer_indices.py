"""Indices of the wanted trainers, and the trainer pods to delete.

Takes the size, the observed trainers and the victims that the sharing pass named. An index is the stable identity of a
trainer; its rank is its position among the wanted indices. A job that shrinks loses the named trainers first, then
pending ones, then those that are not ready, then the highest index, and trainer 0 last (TJ 7.5), so indices may have
gaps; a job that grows fills the lowest gaps first, which makes them dense again (TJ 7.7). Once a trainer has succeeded
the job does not grow any more, and pending trainers beyond its minimum are deleted (TJ §6, kubeflow/trainer #1751).
Called by plan and status.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import count

from raytide.api.pod_failure import failure_of
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_pod import JobPod
from raytide.trainingjob.observed import Observed
from raytide.trainingjob.restart_policy import TerminationCounts


@dataclass(frozen=True, slots=True)
class TrainerAssignment:
    """The wanted trainers."""

    active: tuple[int, ...]
    """Indices that should have a pod that has not ended, ascending."""
    members: tuple[int, ...]
    """Indices in rank order: the active ones and those that have succeeded."""
    victims: tuple[JobPod, ...]
    """Pods that have not ended and are not wanted, cheapest loss first."""

    @property
    def is_over(self) -> bool:
        """Whether no trainer has to run any more."""
        return not self.active


def assign_trainers(
    job: TrainingJob, observed: Observed, counts: TerminationCounts, victims: Collection[str] = ()
) -> TrainerAssignment:
    """Choose from the observed trainers; deterministic, and without victims once it is carried out.

    `victims` are names of pods to delete first. A trainer that was replaced has the name of its predecessor, so they
    count only while there are more trainers than wanted.
    """
    alive = {pod.index: pod for pod in observed.trainers if is_alive(pod) and pod.index is not None}
    blocked = {pod.index for pod in observed.trainers if pod.index is not None and observed.is_lost(pod)}
    is_shrinking = len(alive) > job.desired_replicas()
    named = {index for index, pod in alive.items() if is_shrinking and pod.name in victims}
    active = (
        _while_ending(job, alive, counts, blocked, named)
        if counts.completed
        else _while_running(job, alive, counts.permanently_failed, blocked, named)
    )
    leaving = [pod for pod in observed.trainers if is_alive(pod) and pod.index not in active]
    return TrainerAssignment(
        active=tuple(sorted(active)),
        members=tuple(sorted(active | counts.completed)),
        victims=tuple(sorted(leaving, key=lambda pod: (loss_of(pod), -(pod.index or 0)))),
    )


def is_alive(pod: JobPod) -> bool:
    """Whether it has neither ended nor is terminating."""
    return not pod.is_terminating and not pod.is_finished


def loss_of(pod: JobPod) -> int:
    """Cost of losing a pod, from 0 (stuck before it ever ran) to 3 (running and ready)."""
    if not pod.is_running:
        return 0 if failure_of(pod) is not None else 1
    return 3 if pod.ready.is_true else 2


def planned_nodes(placements: Mapping[str, int], missing: int) -> list[str]:
    """The nodes for the next `missing` trainers in the order of their indices; "" where none is planned.

    `placements` are those of the whole scale-up. Trainers are created in the order of their indices, so the missing ones
    have the last of these nodes, however many exist already.
    """
    found: list[str] = []
    for node, number in sorted(placements.items(), reverse=True):
        found += [node] * min(number, missing - len(found))
    return [""] * (missing - len(found)) + found[::-1]


# --- parts -----------------------------------------------------------------------------------------------------------


def _while_running(
    job: TrainingJob, alive: dict[int, JobPod], dead: Collection[int], blocked: Collection[int], named: Collection[int]
) -> set[int]:
    """As many as wanted; an index that failed permanently is the first that a smaller job does without."""
    wanted = job.desired_replicas()
    kept = _first(alive, wanted - int(_needs_zero(alive, dead, blocked)), named)
    if _needs_zero(alive, dead, blocked) and wanted > 0:
        kept.add(0)
    return kept | _lowest(wanted - len(kept) - len(dead), kept, dead, blocked)


def _while_ending(
    job: TrainingJob,
    alive: dict[int, JobPod],
    counts: TerminationCounts,
    blocked: Collection[int],
    named: Collection[int],
) -> set[int]:
    """Running trainers continue; others start only for the minimum, or for trainer 0 if its success is required."""
    started = {index: pod for index, pod in alive.items() if pod.is_running}
    done = counts.completed | counts.permanently_failed
    kept = _first(started, job.desired_replicas(), named)
    if job.spec.success_policy == "RankZero" and 0 not in done and 0 not in blocked:
        kept.add(0)
    needed = job.spec.trainer.min_instance - len(done)
    pending = {index: pod for index, pod in alive.items() if index not in kept}
    kept |= _first(pending, needed - len(kept), named) if len(kept) < needed else set()
    return kept | _lowest(needed - len(kept), kept, done, blocked)


def _needs_zero(alive: Collection[int], dead: Collection[int], blocked: Collection[int]) -> bool:
    """Whether trainer 0, the rendezvous of the others, is being replaced, so that its place is reserved."""
    return 0 not in alive and 0 not in dead and 0 not in blocked


def _first(alive: dict[int, JobPod], number: int, named: Collection[int]) -> set[int]:
    """The `number` trainers whose loss would cost most; trainer 0 first, named victims last."""
    by_cost = sorted(alive, key=lambda index: (index != 0, index in named, -loss_of(alive[index]), index))
    return set(by_cost[: max(0, number)])


def _lowest(number: int, *taken: Iterable[int]) -> set[int]:
    """The `number` lowest indices that are not taken."""
    occupied = {index for indices in taken for index in indices}
    free = (index for index in count() if index not in occupied)
    return {next(free) for _ in range(number)}
