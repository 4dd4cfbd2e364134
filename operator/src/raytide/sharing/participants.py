"""Who shares which room?

Takes TrainingJobs, all pods that have not ended and all nodes, gives the `Pool` that the planner divides: each job that
takes part as an anonymous participant with its pods where they are, each node with what is used and what is leaving, the
pods of others that wait for a node, and what quotas still allow. Everything is a function of its arguments. Called by the
sharing pass and by `raytide plan` (D16; TJ §3, architecture §5 flow c).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from raytide.api.capacity import CapacityNode, CapacityPod, CapacityQuota
from raytide.api.config import SharingConfig
from raytide.api.meta import TRAININGJOBS, Key
from raytide.api.training_names import MASTER, PSERVER, TRAINER
from raytide.api.trainingjob import TrainingJob
from raytide.elastic.model import Amounts, Companion, Core, Participant, ParticipantId, Pool, PoolOptions, Quota, Shape
from raytide.sharing.claims import Claim, admission_waits_until, claim_of, is_going, rest_of, takes_part
from raytide.sharing.quotas import quotas_left
from raytide.sharing.rooms import Rooms, added
from raytide.sharing.shapes import role_shape
from raytide.sharing.standing import Standing, stand

ShapeOf: TypeAlias = Callable[[TrainingJob, str], Shape]

KIND: Final = TRAININGJOBS.kind


def id_of(key: Key) -> ParticipantId:
    """How the planner calls the job of that key."""
    return ParticipantId(KIND, key.namespace, key.name)


def pool(
    jobs: Iterable[TrainingJob],
    pods: Iterable[CapacityPod],
    nodes: Iterable[CapacityNode],
    *,
    quotas: Iterable[CapacityQuota] = (),
    priorities: Mapping[str, int] | None = None,
    config: SharingConfig,
    now: datetime,
    shape_of: ShapeOf = role_shape,
) -> Pool:
    """One snapshot for the planner.

    `priorities` maps names of PriorityClasses to their values, the empty name to the default's; `shape_of` may remember
    what it has computed for a job.
    """
    rooms = Rooms(nodes)
    own, others = _by_job(pods)
    sharers: list[_Sharer] = []
    for job in sorted(jobs, key=lambda each: each.key):
        its_pods = own.pop((job.key, job.metadata.uid), [])
        claim = _claim(job, its_pods, config=config, now=now)
        if claim is None:
            rooms.hold(its_pods, is_leaving=is_going(job) or takes_part(job))
            continue
        sharer = _Sharer(claim, stand(its_pods, _wanted(claim)), {role: shape_of(job, role) for role in _roles(job)})
        sharers.append(sharer)
        for role, standing in sharer.standings.items():
            rooms.keep(standing, sharer.shapes.get(role))
    for rest in (others, *own.values()):
        rooms.hold(rest)
    return Pool(
        nodes=rooms.nodes(),
        participants=tuple(sharer.participant(priorities or {}, now) for sharer in sharers),
        strangers=rooms.strangers(),
        quotas=_quotas(quotas, sharers),
        charged=rooms.charged,
        options=PoolOptions(max_load_percent=config.max_load_percent, gpus=config.gpus),
    )


@dataclass(frozen=True, slots=True)
class _Sharer:
    """A claim, where its pods stand, and what each of its roles asks for."""

    claim: Claim
    standings: Mapping[str, Standing]
    shapes: Mapping[str, Shape]

    def participant(self, priorities: Mapping[str, int], now: datetime) -> Participant:
        claim, trainers, rest = self.claim, self.standings[TRAINER], rest_of(self.claim, now)
        spec, (floor, ceiling, current) = claim.job.spec, _bounds(claim)
        is_settled = all(standing.is_carried_out for standing in self.standings.values())
        return Participant(
            id=id_of(claim.job.key),
            floor=floor,
            ceiling=ceiling,
            current=current,
            shape=self.shapes[TRAINER],
            priority=priorities.get(spec.priority_class_name, priorities.get("", 0)),
            created_at=claim.job.metadata.creation_timestamp,
            is_gang=claim.is_gang,
            core=self._core(),
            companion=self._companion(),
            placed=trainers.placed,
            leaves_first=trainers.leaves_first,
            uncreated=trainers.uncreated,
            sizes=_sizes(claim, floor, ceiling),
            step=max(1, spec.scaling.step),
            may_grow=rest.growth_until is None and (is_settled or not claim.has_begun),
            may_shrink=rest.shrinking_until is None,
            is_settled=is_settled or not claim.has_begun,
            is_scaling_enabled=spec.scaling.enabled,
            is_accounted_by_limits=spec.scaling.accounting == "Limits",
            rebalances=spec.scaling.rebalance,
        )

    def _core(self) -> tuple[Core, ...]:
        """Pods whose number does not follow the trainers."""
        job = self.claim.job
        counts = {MASTER: int(job.has_master), PSERVER: 0 if _is_by_ratio(job) else _pservers(job, 0)}
        return tuple(
            Core(role, self.shapes[role], count, count - sum(self.standings[role].placed.values()))
            for role, count in counts.items()
            if count
        )

    def _companion(self) -> Companion | None:
        """Parameter servers that come and go with the trainers."""
        pserver = self.claim.job.spec.pserver
        if pserver is None or not pserver.is_by_ratio:
            return None
        standing = self.standings[PSERVER]
        return Companion(
            shape=self.shapes[PSERVER],
            per=max(1, pserver.trainers_per_pserver),
            floor=pserver.min_instance,
            ceiling=pserver.ceiling,
            current=standing.wanted,
            placed=standing.placed,
            leaves_first=standing.leaves_first,
        )

    def uncreated(self) -> Amounts:
        """What was ordered and has no pod yet, by requests and `limits.*`."""
        return added(
            *(
                {name: amount * standing.uncreated for name, amount in _for_quota(self.shapes[role]).items()}
                for role, standing in self.standings.items()
                if standing.uncreated
            )
        )


def _by_job(
    pods: Iterable[CapacityPod],
) -> tuple[dict[tuple[Key, str], list[CapacityPod]], list[CapacityPod]]:
    """Pods that a controller made for a job, by that job and its uid; and all others."""
    own: dict[tuple[Key, str], list[CapacityPod]] = {}
    others: list[CapacityPod] = []
    for pod in pods:
        if pod.is_finished:
            continue
        if pod.job and pod.owner_uid:
            own.setdefault((pod.job_key, pod.owner_uid), []).append(pod)
        else:
            others.append(pod)
    return own, others


def _claim(job: TrainingJob, pods: list[CapacityPod], *, config: SharingConfig, now: datetime) -> Claim | None:
    """None where the job gets nothing now."""
    if not takes_part(job):
        return None
    live = sum(1 for pod in pods if pod.role == TRAINER and not pod.is_terminating)
    claim = claim_of(job, live_trainers=live, gpus=config.gpus)
    has_to_wait = not claim.has_begun and admission_waits_until(job, now) is not None
    return None if has_to_wait else claim


def _wanted(claim: Claim) -> dict[str, int]:
    """Role -> how many pods its controller keeps now."""
    if not claim.has_begun:
        return {}
    job = claim.job
    return {
        MASTER: int(job.has_master),
        PSERVER: _pservers(job, claim.wanted),
        TRAINER: claim.trainers,
    }


def _bounds(claim: Claim) -> tuple[int, int, int]:
    """Floor, ceiling and current in pods, which is what others can have the room of.

    Once the first trainer has ended well the job is about to end: it neither grows nor gives (kubeflow/trainer#1751).
    """
    if claim.has_succeeded and claim.has_begun:
        return claim.trainers, claim.trainers, claim.trainers
    trainer, lost = claim.job.spec.trainer, claim.given_up
    floor, ceiling = max(0, trainer.min_instance - lost), max(0, trainer.ceiling - lost)
    return floor, ceiling, max(0, claim.current - lost)


def _sizes(claim: Claim, floor: int, ceiling: int) -> tuple[int, ...]:
    allowed = {size - claim.given_up for size in claim.job.spec.scaling.allowed_sizes}
    return tuple(sorted(size for size in allowed if floor <= size <= ceiling))


def _roles(job: TrainingJob) -> tuple[str, ...]:
    return (*([MASTER] if job.has_master else ()), *([PSERVER] if job.spec.pserver else ()), TRAINER)


def _pservers(job: TrainingJob, trainers: int) -> int:
    return 0 if job.spec.pserver is None else max(0, job.spec.pserver.count_for(trainers))


def _is_by_ratio(job: TrainingJob) -> bool:
    return job.spec.pserver is not None and job.spec.pserver.is_by_ratio


def _for_quota(shape: Shape) -> Amounts:
    return {**shape.requests, **{f"limits.{name}": amount for name, amount in shape.limits.items()}}


def _quotas(quotas: Iterable[CapacityQuota], sharers: list[_Sharer]) -> tuple[Quota, ...]:
    quotas = tuple(quotas)
    if not quotas:
        return ()
    uncreated: dict[str, Amounts] = {}
    classes: dict[str, frozenset[str]] = {}
    for sharer in sharers:
        job = sharer.claim.job
        namespace = job.key.namespace
        uncreated[namespace] = added(uncreated.get(namespace, {}), sharer.uncreated())
        classes[namespace] = classes.get(namespace, frozenset()) | {job.spec.priority_class_name}
    return quotas_left(quotas, uncreated=uncreated, classes=classes)
