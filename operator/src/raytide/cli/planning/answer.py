"""What would the operator do with this snapshot?

Takes a snapshot, the jobs that would be submitted and how the operator is told to share, makes the operator's own pool of
them and asks its planner, with and without those jobs. Jobs that are invalid take no part and are told as waiting. Pure:
the same snapshot and the same moment give the same answer. Called by `raytide plan`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from raytide.api.capacity import priorities_of
from raytide.api.config import SharingConfig
from raytide.api.meta import Key
from raytide.api.training_names import INVALID_SPEC
from raytide.api.trainingjob import TrainingJob
from raytide.cli.planning.assumed import assumed_pods, with_uid
from raytide.cli.planning.objects import Snapshot
from raytide.elastic.fairness import divide
from raytide.elastic.model import Division, ParticipantId, Pool, Waiting
from raytide.sharing.participants import id_of
from raytide.sharing.pools import pool
from raytide.trainingjob.validation import violations


@dataclass(frozen=True, slots=True)
class Answer:
    """A plan, and the pool it was made of."""

    pool: Pool
    division: Division
    invalid: tuple[Waiting, ...] = ()
    """Jobs that take no part because nobody can obey them."""
    submitted: tuple[ParticipantId, ...] = ()
    before: tuple[Pool, Division] | None = None
    """The same without what was submitted; None where nothing was."""

    @property
    def waiting(self) -> tuple[Waiting, ...]:
        """Everybody who is not as large as could be, in the order of ids."""
        return tuple(sorted((*self.division.waiting, *self.invalid), key=lambda each: each.id))


def answer(snapshot: Snapshot, submitted: Iterable[TrainingJob], *, config: SharingConfig, now: datetime) -> Answer:
    """The plan that the next sharing pass would make if the submitted jobs were there too."""
    new = tuple(with_uid(job) for job in submitted)
    invalid = {job.key: fault for job in snapshot.jobs if (fault := fault_of(job))}
    valid = tuple(job for job in snapshot.jobs if job.key not in invalid)
    there = _there(snapshot, valid, config, now)
    told = [
        *((id_of(Key(namespace, name)), fault) for namespace, name, fault in snapshot.unreadable),
        *((id_of(key), fault) for key, fault in invalid.items()),
    ]
    left_out = tuple(Waiting(id_, INVALID_SPEC, fault) for id_, fault in told)
    before = _pool(there, config, now)
    if not new:
        return Answer(before, divide(before), left_out)
    having = replace(there, jobs=(*there.jobs, *new))
    having = replace(having, pods=(*having.pods, *assumed_pods(new, (), before.nodes, config.gpus)))
    after = _pool(having, config, now)
    return Answer(after, divide(after), left_out, tuple(id_of(job.key) for job in new), (before, divide(before)))


def _there(snapshot: Snapshot, jobs: tuple[TrainingJob, ...], config: SharingConfig, now: datetime) -> Snapshot:
    """What is there; a list may leave out the pods of its jobs, a cluster has those that it has."""
    shown = replace(snapshot, jobs=jobs)
    if snapshot.is_live:
        return shown
    nodes = _pool(shown, config, now).nodes
    return replace(shown, pods=(*shown.pods, *assumed_pods(jobs, shown.pods, nodes, config.gpus)))


def fault_of(job: TrainingJob) -> str:
    """Why nobody can obey the job, in one line; empty where somebody can."""
    return "; ".join(str(each) for each in violations(job))


def _pool(snapshot: Snapshot, config: SharingConfig, now: datetime) -> Pool:
    return pool(
        snapshot.jobs,
        snapshot.pods,
        snapshot.nodes,
        quotas=snapshot.quotas,
        priorities=priorities_of(snapshot.priority_classes),
        config=config,
        now=now,
    )
