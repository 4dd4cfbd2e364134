"""How does one TrainingJob take part?

Takes a claim, where its pods stand and what they ask for, gives the anonymous participant that the planner knows: bounds in
pods, what does not follow the trainers, what comes with them, and whether it may grow or shrink now. Pure; called by
pools.py (D16; TJ §3, architecture §5 flow c).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from raytide.api.capacity import CapacityPod
from raytide.api.conditions import moment_of
from raytide.api.job_shape import priority_class_of
from raytide.api.meta import TRAININGJOBS, Key
from raytide.api.training_names import MASTER, PSERVER, TRAINER
from raytide.api.trainingjob import TrainingJob
from raytide.elastic.model import NO_NODE_S, Amounts, Companion, Core, Participant, ParticipantId, Shape
from raytide.sharing.claims import Claim, Rest, admission_waits_until, claim_of, takes_part
from raytide.sharing.rooms import added
from raytide.sharing.shapes import role_shape
from raytide.sharing.standing import Standing

KIND: Final = TRAININGJOBS.kind

_LONG: Final = timedelta(seconds=NO_NODE_S + 1)
"""One second more, because moments are written without their fractions."""


def id_of(key: Key) -> ParticipantId:
    """How the planner calls the job of that key."""
    return ParticipantId(KIND, key.namespace, key.name)


@dataclass(frozen=True, slots=True)
class Sharer:
    """A claim, where its pods stand, and what each of its roles asks for."""

    claim: Claim
    standings: Mapping[str, Standing]
    shapes: Mapping[str, Shape]

    def participant(self, priorities: Mapping[str, int], rest: Rest, unplaced_for_long: int = 0) -> Participant:
        """What the planner knows of it; `priorities` maps names of PriorityClasses to values, "" to the default's."""
        claim, trainers = self.claim, self.standings[TRAINER]
        spec, (floor, ceiling, current) = claim.job.spec, _bounds(claim)
        is_forbidden = claim.is_forbidden
        is_settled = all(each.is_carried_out or (is_forbidden and not each.leaving) for each in self.standings.values())
        return Participant(
            id=id_of(claim.job.key),
            floor=floor,
            ceiling=ceiling,
            current=current,
            shape=self.shapes[TRAINER],
            priority=_priority(claim.job, priorities),
            created_at=claim.job.metadata.creation_timestamp,
            is_gang=claim.is_gang,
            core=self._core(),
            companion=self._companion(),
            placed=trainers.placed,
            leaves_first=trainers.leaves_first,
            uncreated=trainers.uncreated,
            is_forbidden=is_forbidden,
            is_repeatedly_forbidden=claim.is_repeatedly_forbidden,
            unschedulable=sum(pod.is_unschedulable for pod in trainers.kept),
            unplaced_for_long=unplaced_for_long,
            sizes=_sizes(claim, floor, ceiling),
            step=max(1, spec.scaling.step),
            step_from=spec.trainer.min_instance,
            may_grow=rest.growth_until is None and (is_settled or not claim.has_begun),
            may_shrink=rest.shrinking_until is None,
            is_settled=is_settled or not claim.has_begun,
            is_scaling_enabled=spec.scaling.enabled,
            is_accounted_by_limits=spec.scaling.accounting == "Limits",
            rebalances=spec.scaling.rebalance,
            is_fresh=rest.fresh_until is not None,
            yields=spec.scaling.yield_to_pods,
        )

    def _core(self) -> tuple[Core, ...]:
        """Pods whose number does not follow the trainers."""
        job = self.claim.job
        counts = {MASTER: int(job.has_master), PSERVER: 0 if _is_by_ratio(job) else _pservers(job, 0)}
        return tuple(
            Core(role, self.shapes[role], count, self._without_node(role, count))
            for role, count in counts.items()
            if count
        )

    def _without_node(self, role: str, count: int) -> int:
        """How many of them claim room; none that the API refuses to create."""
        standing = self.standings[role]
        wanted = len(standing.kept) if self.claim.is_forbidden and self.claim.has_begun else count
        return wanted - sum(standing.placed.values())

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
            current=len(standing.kept) if self.claim.is_forbidden else standing.wanted,
            placed=standing.placed,
            leaves_first=standing.leaves_first,
        )

    def unplaced(self, now: datetime) -> tuple[int, datetime | None]:
        """How many trainers found no node for long, and when the next one will have; a gated one looks for none."""
        pods = (pod for pod in self.standings[TRAINER].kept if not pod.node and not pod.is_scheduling_gated)
        created = (moment_of(pod.created_at) for pod in pods)
        moments = [moment + _LONG for moment in created if moment is not None]
        floor, _, current = _bounds(self.claim)
        later = [moment for moment in moments if moment > now] if current > floor else []
        return sum(moment <= now for moment in moments), min(later, default=None)

    def uncreated(self) -> Amounts:
        """What was ordered and has no pod yet, by requests and `limits.*`."""
        if self.claim.is_forbidden:
            return {}
        return added(
            *(
                {name: amount * standing.uncreated for name, amount in _for_quota(self.shapes[role]).items()}
                for role, standing in self.standings.items()
                if standing.uncreated
            )
        )


def claimed(
    job: TrainingJob, pods: Iterable[CapacityPod], *, gpus: frozenset[str], now: datetime
) -> tuple[Claim | None, datetime | None]:
    """Its claim, None where the job gets nothing now; and when that ends by time alone."""
    if not takes_part(job):
        return None, None
    live = sum(1 for pod in pods if pod.role == TRAINER and not pod.is_terminating)
    claim = claim_of(job, live_trainers=live, gpus=gpus)
    waits_until = None if claim.has_begun else admission_waits_until(job, now)
    return (claim, None) if waits_until is None else (None, waits_until)


def role_shapes(job: TrainingJob) -> dict[str, Shape]:
    """What one pod of each of its roles asks for."""
    return {role: role_shape(job, role) for role in _roles(job)}


def wanted_pods(claim: Claim) -> dict[str, int]:
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
    """What the user lists are numbers of trainers that run, whatever failed for good; the floor is always allowed."""
    listed = claim.job.spec.scaling.allowed_sizes
    return tuple(sorted({floor, *(size for size in listed if floor <= size <= ceiling)})) if listed else ()


def _priority(job: TrainingJob, priorities: Mapping[str, int]) -> int:
    """What its pods really have; the lowest where roles differ, so that nobody gains room by a class of a few."""
    classes = {priority_class_of(job, role) for role in _roles(job)}
    return min(priorities.get(name, priorities.get("", 0)) for name in classes)


def _roles(job: TrainingJob) -> tuple[str, ...]:
    return (*([MASTER] if job.has_master else ()), *([PSERVER] if job.spec.pserver else ()), TRAINER)


def _pservers(job: TrainingJob, trainers: int) -> int:
    return 0 if job.spec.pserver is None else max(0, job.spec.pserver.count_for(trainers))


def _is_by_ratio(job: TrainingJob) -> bool:
    return job.spec.pserver is not None and job.spec.pserver.is_by_ratio


def _for_quota(shape: Shape) -> Amounts:
    return {**shape.requests, **{f"limits.{name}": amount for name, amount in shape.limits.items()}}
