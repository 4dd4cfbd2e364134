"""Who shares which room?

Takes TrainingJobs, all pods that have not ended and all nodes, gives the `Pool` that the planner divides: each job that
takes part as an anonymous participant with its pods where they are, each node with what is used and what is leaving, the
pods of others that wait for a node, and what quotas still allow. Everything is a function of its arguments; `Pools` gives
the same as `pool`, and remembers of each job and each node what it was computed from, because between two snapshots of a
large cluster almost nothing changes (PF:P10). Called by the sharing pass and by `raytide plan` (D16; TJ §3, architecture §5
flow c).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Final, TypeAlias

from raytide.api.capacity import CapacityNode, CapacityPod, CapacityQuota
from raytide.api.config import SharingConfig
from raytide.api.job_shape import priority_class_of
from raytide.api.training_names import TRAINER
from raytide.api.trainingjob import TrainingJob
from raytide.elastic.model import Amounts, Participant, Pool, PoolOptions, Quota, Shape
from raytide.sharing.claims import is_going, rest_of, takes_part
from raytide.sharing.participants import Sharer, claimed, role_shapes, wanted_pods
from raytide.sharing.quotas import Ordered, quotas_left
from raytide.sharing.rooms import Holding, Rooms, strangers
from raytide.sharing.standing import stand

Owner: TypeAlias = tuple[str, str, str]
"""Namespace and name of a TrainingJob, and the uid of the one that made the pods."""

_BY_KEY: Final = attrgetter("key")


def pool(
    jobs: Iterable[TrainingJob],
    pods: Iterable[CapacityPod],
    nodes: Iterable[CapacityNode],
    *,
    quotas: Iterable[CapacityQuota] = (),
    priorities: Mapping[str, int] | None = None,
    config: SharingConfig,
    now: datetime,
) -> Pool:
    """One snapshot for the planner.

    `priorities` maps names of PriorityClasses to their values, the empty name to the default's.
    """
    return Pools(config).pool(jobs, pods, nodes, quotas=quotas, priorities=priorities, now=now)


@dataclass(frozen=True, slots=True)
class _Known:
    """What was found out about one job, and what has to be the same for it to hold."""

    job: TrainingJob
    pods: Sequence[CapacityPod]
    since: datetime
    until: datetime | None
    """When time alone makes it another; None: never."""
    shapes: Mapping[str, Shape]
    holding: Holding
    participant: Participant | None = None
    uncreated: Amounts = field(default_factory=dict)

    def holds_for(self, job: TrainingJob, pods: Sequence[CapacityPod], now: datetime) -> bool:
        """Whether it would come out the same."""
        is_same = self.job is job and self.pods == pods
        return is_same and self.since <= now and (self.until is None or now < self.until)


class Pools:
    """One snapshot after the other, each at the price of what has changed since.

    Jobs and pods are known again by being the same objects, as an informer keeps them. A job that breaks leaves what is
    known of the others as it is.
    """

    def __init__(self, config: SharingConfig) -> None:
        self._options = PoolOptions(max_load_percent=config.max_load_percent, gpus=config.gpus)
        self._priorities: Mapping[str, int] = {}
        self._rooms = Rooms()
        self._jobs: dict[Owner, _Known] = {}
        self._others: dict[Owner | str, tuple[list[CapacityPod], Holding]] = {}
        """Pods that nobody shares out, by node, or by the job that is gone."""

    def pool(
        self,
        jobs: Iterable[TrainingJob],
        pods: Iterable[CapacityPod],
        nodes: Iterable[CapacityNode],
        *,
        quotas: Iterable[CapacityQuota] = (),
        priorities: Mapping[str, int] | None = None,
        now: datetime,
    ) -> Pool:
        """One snapshot; see `pool`."""
        if (priorities or {}) != self._priorities:
            self._forget_jobs()
            self._priorities = dict(priorities or {})
        own, others = _by_holder(pods)
        known: dict[Owner, _Known] = {}
        for job in sorted(jobs, key=_BY_KEY):
            owner = (*job.key, job.metadata.uid)
            known[owner] = self._job(owner, job, own.pop(owner, []), now)
        for owner in self._jobs.keys() - known.keys():
            self._rooms.swap(self._jobs.pop(owner).holding, None)
        self._hold_others([*others.items(), *own.items()])
        seen = self._rooms.nodes(nodes)
        return Pool(
            nodes=seen,
            participants=tuple(each.participant for each in known.values() if each.participant is not None),
            strangers=strangers(self._waiting()),
            quotas=_quotas(quotas, known.values()),
            charged=self._rooms.charged(seen),
            options=self._options,
        )

    @property
    def changes_at(self) -> datetime | None:
        """When time alone makes the last snapshot another: a rest ends, a pod has waited for long; None where neither will."""
        return min((known.until for known in self._jobs.values() if known.until is not None), default=None)

    # --- jobs ----------------------------------------------------------------------------------------------------------

    def _forget_jobs(self) -> None:
        for known in self._jobs.values():
            self._rooms.swap(known.holding, None)
        self._jobs.clear()

    def _job(self, owner: Owner, job: TrainingJob, pods: list[CapacityPod], now: datetime) -> _Known:
        old = self._jobs.get(owner)
        if old is not None and old.holds_for(job, pods, now):
            return old
        new = self._looked_at(job, pods, old, now)
        self._rooms.swap(old.holding if old is not None else None, new.holding)
        self._jobs[owner] = new
        return new

    def _looked_at(self, job: TrainingJob, pods: list[CapacityPod], old: _Known | None, now: datetime) -> _Known:
        is_same_spec = old is not None and old.job.metadata.generation == job.metadata.generation and job.metadata.uid
        shapes = old.shapes if old is not None and is_same_spec else role_shapes(job)
        claim, until = claimed(job, pods, gpus=self._options.gpus, now=now)
        holding = Holding()
        if claim is None:
            holding.hold(pods, is_leaving=is_going(job) or takes_part(job))
            return _Known(job, pods, now, until, shapes, holding)
        sharer = Sharer(claim, stand(pods, wanted_pods(claim)), shapes)
        for role, standing in sharer.standings.items():
            holding.keep(standing, shapes.get(role), is_forbidden=claim.is_forbidden and role != TRAINER)
        rest = rest_of(claim, now)
        unplaced, until = sharer.unplaced(now)
        until = min((moment for moment in (rest.until, until) if moment is not None), default=None)
        participant = sharer.participant(self._priorities, rest, unplaced)
        return _Known(job, pods, now, until, shapes, holding, participant, sharer.uncreated())

    # --- others --------------------------------------------------------------------------------------------------------

    def _hold_others(self, held: Iterable[tuple[Owner | str, list[CapacityPod]]]) -> None:
        gone = set(self._others)
        for holder, pods in held:
            gone.discard(holder)
            old = self._others.get(holder)
            if old is None or old[0] != pods:
                holding = Holding()
                holding.hold(pods)
                self._rooms.swap(old[1] if old is not None else None, holding)
                self._others[holder] = pods, holding
        for holder in gone:
            self._rooms.swap(self._others.pop(holder)[1], None)

    def _waiting(self) -> Iterator[CapacityPod]:
        """Pods without a node, of others and of jobs that take no part now."""
        for known in self._jobs.values():
            yield from known.holding.waiting
        for _, holding in self._others.values():
            yield from holding.waiting


def _by_holder(pods: Iterable[CapacityPod]) -> tuple[dict[Owner, list[CapacityPod]], dict[str, list[CapacityPod]]]:
    """Pods that a controller made for a job, by that job and its uid; and all others, by node."""
    own: dict[Owner, list[CapacityPod]] = {}
    others: dict[str, list[CapacityPod]] = {}
    for pod in pods:
        if pod.is_finished:
            continue
        if pod.job and pod.owner_uid:
            owner = pod.namespace, pod.job, pod.owner_uid
            if owner in own:
                own[owner].append(pod)
            else:
                own[owner] = [pod]
        elif pod.node in others:
            others[pod.node].append(pod)
        else:
            others[pod.node] = [pod]
    return own, others


def _quotas(quotas: Iterable[CapacityQuota], jobs: Iterable[_Known]) -> tuple[Quota, ...]:
    ordered = (
        Ordered(known.participant.id, priority_class_of(known.job, TRAINER), known.uncreated)
        for known in jobs
        if known.participant is not None
    )
    quotas = tuple(quotas)
    return quotas_left(quotas, ordered) if quotas else ()
