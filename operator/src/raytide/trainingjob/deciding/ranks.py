"""Which trainers should there be?

Takes the size and the observed trainers, gives the indices that are wanted and the pods that have to go. An index is a
name that stays with a place in the job; the rank is its position among those that are wanted. A job that shrinks loses
pending trainers first, then those that are not ready, then the highest index, and trainer 0 last (TJ 7.5), so indices may
get holes; a job that grows fills the lowest holes first, which makes them dense again (TJ 7.7). Once a trainer has ended
well the job does not grow any more, and what pends beyond its minimum goes (TJ §6, kubeflow/trainer #1751). Called by
plan and status.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import count

from raytide.api.job_pod import JobPod
from raytide.api.pod_trouble import trouble_of
from raytide.api.trainingjob import TrainingJob
from raytide.trainingjob.deciding.restarts import Tally
from raytide.trainingjob.observed import Observed


@dataclass(frozen=True, slots=True)
class Roster:
    """Who is wanted."""

    active: tuple[int, ...]
    """Indices that should have a pod that has not ended, ascending."""
    members: tuple[int, ...]
    """Indices in rank order: the active ones and those that have ended well."""
    victims: tuple[JobPod, ...]
    """Pods that have not ended and are not wanted, first the one that costs least."""

    @property
    def is_over(self) -> bool:
        """Whether nobody has to run any more."""
        return not self.active


def roster(job: TrainingJob, observed: Observed, counts: Tally) -> Roster:
    """Decide from what is there; the same for the same pods, and nothing to do once it is carried out."""
    alive = {pod.index: pod for pod in observed.trainers if is_alive(pod) and pod.index is not None}
    blocked = {pod.index for pod in observed.trainers if pod.index is not None and observed.is_lost(pod)}
    active = (
        _while_ending(job, alive, counts, blocked)
        if counts.completed
        else _while_running(job, alive, counts.dead, blocked)
    )
    leaving = [pod for pod in observed.trainers if is_alive(pod) and pod.index not in active]
    return Roster(
        active=tuple(sorted(active)),
        members=tuple(sorted(active | counts.completed)),
        victims=tuple(sorted(leaving, key=lambda pod: (loss_of(pod), -(pod.index or 0)))),
    )


def is_alive(pod: JobPod) -> bool:
    """Whether it has neither ended nor been told to."""
    return not pod.is_terminating and not pod.is_finished


def loss_of(pod: JobPod) -> int:
    """What it costs to lose a pod, from 0 (stuck before it ever ran) to 3 (it runs and is ready)."""
    if not pod.is_running:
        return 0 if trouble_of(pod) is not None else 1
    return 3 if pod.ready.is_true else 2


# --- parts -----------------------------------------------------------------------------------------------------------


def _while_running(
    job: TrainingJob, alive: dict[int, JobPod], dead: Collection[int], blocked: Collection[int]
) -> set[int]:
    """As many as wanted; a place given up for good is the first that a smaller job does without."""
    wanted = job.trainers_wanted()
    kept = _first(alive, wanted - int(_needs_zero(alive, dead, blocked)))
    if _needs_zero(alive, dead, blocked) and wanted > 0:
        kept.add(0)
    return kept | _lowest(wanted - len(kept) - len(dead), kept, dead, blocked)


def _while_ending(job: TrainingJob, alive: dict[int, JobPod], counts: Tally, blocked: Collection[int]) -> set[int]:
    """Whoever began goes on; nobody else begins, except for the minimum and for the one whose success is asked for."""
    started = {index: pod for index, pod in alive.items() if pod.is_running}
    done = counts.completed | counts.dead
    kept = _first(started, job.trainers_wanted())
    if job.spec.success_policy == "RankZero" and 0 not in done and 0 not in blocked:
        kept.add(0)
    needed = job.spec.trainer.min_instance - len(done)
    pending = {index: pod for index, pod in alive.items() if index not in kept}
    kept |= _first(pending, needed - len(kept)) if len(kept) < needed else set()
    return kept | _lowest(needed - len(kept), kept, done, blocked)


def _needs_zero(alive: Collection[int], dead: Collection[int], blocked: Collection[int]) -> bool:
    """Trainer 0 is somebody others meet at: its place is kept while it is replaced."""
    return 0 not in alive and 0 not in dead and 0 not in blocked


def _first(alive: dict[int, JobPod], number: int) -> set[int]:
    """The ones whose loss would cost most."""
    by_cost = sorted(alive, key=lambda index: (index != 0, -loss_of(alive[index]), index))
    return set(by_cost[: max(0, number)])


def _lowest(number: int, *taken: Iterable[int]) -> set[int]:
    """The lowest indices that nobody has."""
    occupied = {index for indices in taken for index in indices}
    free = (index for index in count() if index not in occupied)
    return {next(free) for _ in range(number)}
