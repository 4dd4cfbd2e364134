"""Participants: a TrainingJob as the planner sees it.

Input: a job's claim, the placement of its pods and what they request. Output: an anonymous `Participant` with its
bounds in pods, the pods that do not depend on the trainers, the pods that come with them, and whether it may grow or
shrink now. Pure; called by snapshot.py (D16; TJ §3, architecture §5 flow c).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from raytide.api.capacity import CapacityPod, Priority
from raytide.api.conditions import parse_timestamp
from raytide.api.meta import TRAININGJOBS, Key
from raytide.api.pod_requirements import Amounts
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_constants import MASTER, PSERVER, TRAINER
from raytide.api.trainingjob_pods import has_scheduling_gates, priority_of
from raytide.fairshare.algorithm.model import NO_NODE_S, Companion, Core, Participant, ParticipantId, Shape
from raytide.fairshare.eligibility import Cooldowns, JobDemand, admission_waits_until, is_eligible, job_demand
from raytide.fairshare.node_usage import added
from raytide.fairshare.pod_placement import RolePods
from raytide.fairshare.pod_requirements import role_shape

KIND: Final = TRAININGJOBS.kind

_LONG: Final = timedelta(seconds=NO_NODE_S + 1)
"""`NO_NODE_S` plus one second, because moments are stored without fractions."""


def id_of(key: Key) -> ParticipantId:
    """The planner's id of the job with that key."""
    return ParticipantId(KIND, key.namespace, key.name)


@dataclass(frozen=True, slots=True)
class ParticipantBuilder:
    """A claim with the placement of its pods and what each of its roles requests."""

    claim: JobDemand
    standings: Mapping[str, RolePods]
    shapes: Mapping[str, Shape]

    def participant(
        self, priorities: Mapping[str, Priority], rest: Cooldowns, unplaced_for_long: int = 0, *, tenant: str = ""
    ) -> Participant:
        """The planner's view of it; `priorities` maps names of PriorityClasses to priorities, "" to the default's."""
        claim, trainers = self.claim, self.standings[TRAINER]
        spec, (floor, ceiling, current) = claim.job.spec, _bounds(claim)
        is_forbidden, priority = claim.is_forbidden, _priority(claim.job, priorities)
        is_settled = all(
            each.is_carried_out or (is_forbidden and not each.released) for each in self.standings.values()
        )
        is_unproven = rest.has_failed or any(map(self._has_gates, _roles(claim.job)))
        # The next growth after one that failed waits until it is clear that this one has not.
        is_proven = not (rest.has_failed and any(each.unplaced for each in self.standings.values()))
        return Participant(
            id=id_of(claim.job.key),
            floor=floor,
            ceiling=ceiling,
            current=current,
            shape=self.shapes[TRAINER],
            priority=priority.value,
            may_preempt=priority.may_preempt and not is_unproven,
            created_at=claim.job.metadata.creation_timestamp,
            is_gang=claim.is_gang,
            core=self._core(),
            companion=self._companion(),
            placed=trainers.placed,
            leaves_last=trainers.node_of_rank_zero,
            pods_to_create=trainers.pods_to_create,
            gated=self._gated(TRAINER, trainers.pods_to_create),
            is_forbidden=is_forbidden,
            is_repeatedly_forbidden=claim.is_repeatedly_forbidden,
            unschedulable=sum(pod.is_unschedulable for pod in trainers.kept),
            unplaced_for_long=unplaced_for_long,
            is_unproven=is_unproven,
            retries=rest.retries,
            sizes=_sizes(claim, floor, ceiling),
            step=max(1, spec.scaling.step),
            step_from=spec.trainer.min_instance,
            may_await_nodes=rest.awaits_nodes_at is None,
            may_grow=rest.growth_until is None and is_proven and (is_settled or not claim.has_started),
            grows_soon=rest.grows_soon,
            may_shrink=rest.shrinking_until is None,
            is_settled=is_settled or not claim.has_started,
            is_scaling_enabled=spec.scaling.enabled,
            uses_limits=spec.scaling.accounting == "Limits",
            rebalances=spec.scaling.rebalance and not rest.answers_request,
            grows_to=_grows_to(claim) if rest.answers_request else None,
            is_reservation_lapsed=rest.is_reservation_lapsed,
            reserved_nodes=rest.reserved_nodes,
            tenant=tenant,
            yields=spec.scaling.yield_to_pods,
        )

    def _core(self) -> tuple[Core, ...]:
        """Pods whose number does not depend on the trainers."""
        job = self.claim.job
        counts = {MASTER: int(job.has_master), PSERVER: 0 if _is_by_ratio(job) else _pservers(job, 0)}
        return tuple(self._core_of(role, count) for role, count in counts.items() if count)

    def _core_of(self, role: str, count: int) -> Core:
        """None of those that the API server refuses to create claims capacity."""
        standing = self.standings[role]
        wanted = len(standing.kept) if self.claim.is_forbidden and self.claim.has_started else count
        missing, to_create = wanted - sum(standing.placed.values()), max(0, wanted - len(standing.kept))
        return Core(role, self.shapes[role], count, missing, standing.placed, to_create, self._gated(role, to_create))

    def _has_gates(self, role: str) -> bool:
        """Whether its pods have scheduling gates, or will have them once they exist."""
        has_all = self.claim.has_started and not self.standings[role].pods_to_create
        return bool(self.standings[role].gated) or (not has_all and has_scheduling_gates(self.claim.job, role))

    def _gated(self, role: str, to_create: int) -> int:
        """How many of its pods without a node have scheduling gates, or will have them once they exist."""
        return self.standings[role].gated + (to_create if has_scheduling_gates(self.claim.job, role) else 0)

    def _companion(self) -> Companion | None:
        """The parameter servers if their number follows that of the trainers, else None."""
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
            to_create=standing.pods_to_create,
            gated=self._gated(PSERVER, standing.pods_to_create),
        )

    def unplaced(self, now: datetime) -> tuple[int, datetime | None]:
        """How many trainers have had no node for `NO_NODE_S`, and when the next one will; gated pods do not count.

        Trainers created soon after one of them count too: a scale-up creates its pods over some seconds, and is one resize.
        """
        pods = (pod for pod in self.standings[TRAINER].kept if not pod.node and not pod.is_scheduling_gated)
        created = (parse_timestamp(pod.created_at) for pod in pods)
        moments = [moment + _LONG for moment in created if moment is not None]
        floor, _, current = _bounds(self.claim)
        counts_until = now + _LONG / 2 if any(moment <= now for moment in moments) else now
        later = [moment for moment in moments if moment > counts_until] if current > floor else []
        return len(moments) - sum(moment > counts_until for moment in moments), min(later, default=None)

    def pods_to_create(self) -> Amounts:
        """What is ordered and has no pod yet, by requests and `limits.*`."""
        if self.claim.is_forbidden:
            return {}
        return added(
            *(
                {name: amount * standing.pods_to_create for name, amount in _for_quota(self.shapes[role]).items()}
                for role, standing in self.standings.items()
                if standing.pods_to_create
            )
        )


def claimed(
    job: TrainingJob, pods: Iterable[CapacityPod], *, gpus: frozenset[str], now: datetime
) -> tuple[JobDemand | None, datetime | None]:
    """The job's claim, None if it does not take part now; and when time alone changes that."""
    if not is_eligible(job):
        return None, None
    live = sum(1 for pod in pods if pod.role == TRAINER and not pod.is_terminating)
    claim = job_demand(job, live_trainers=live, gpus=gpus)
    waits_until = None if claim.has_started else admission_waits_until(job, now)
    return (claim, None) if waits_until is None else (None, waits_until)


def role_shapes(job: TrainingJob) -> dict[str, Shape]:
    """What one pod of each of its roles requests."""
    return {role: role_shape(job, role) for role in _roles(job)}


def wanted_pods(claim: JobDemand) -> dict[str, int]:
    """Role -> how many pods its controller keeps now."""
    if not claim.has_started:
        return {}
    job = claim.job
    return {
        MASTER: int(job.has_master),
        PSERVER: _pservers(job, claim.wanted),
        TRAINER: claim.trainers,
    }


def _bounds(claim: JobDemand) -> tuple[int, int, int]:
    """Minimum, maximum and current size in pods, without trainers that failed permanently.

    The minimum of a gang is never 0, unless its maximum is: it has no other pods either without trainers.
    Once the first trainer has succeeded the job is about to end: it is neither scaled up nor down
    (kubeflow/trainer#1751).
    """
    if claim.has_succeeded and claim.has_started:
        return claim.trainers, claim.trainers, claim.trainers
    trainer = claim.job.spec.trainer
    floor, ceiling = claim.trainers_at(trainer.min_instance), claim.trainers_at(trainer.ceiling)
    return min(ceiling, max(floor, int(claim.is_gang))), ceiling, claim.trainers_at(claim.current)


def _grows_to(claim: JobDemand) -> int | None:
    """The requested size in pods, within the maximum."""
    return None if claim.requested is None else claim.trainers_at(claim.job.spec.trainer.clamp(claim.requested))


def _sizes(claim: JobDemand, floor: int, ceiling: int) -> tuple[int, ...]:
    """The allowed sizes in running trainers, whatever failed permanently; the minimum is always allowed."""
    listed = claim.job.spec.scaling.allowed_sizes
    return tuple(sorted({floor, *(size for size in listed if floor <= size <= ceiling)})) if listed else ()


def _priority(job: TrainingJob, priorities: Mapping[str, Priority]) -> Priority:
    """The priority of its pods; where roles differ what gains least, so that a class on a few pods gains no capacity."""
    values, may_preempt = zip(*(priority_of(job, role, priorities) for role in _roles(job)), strict=True)
    return Priority(min(values), all(may_preempt))


def _roles(job: TrainingJob) -> tuple[str, ...]:
    return (*([MASTER] if job.has_master else ()), *([PSERVER] if job.spec.pserver else ()), TRAINER)


def _pservers(job: TrainingJob, trainers: int) -> int:
    return 0 if job.spec.pserver is None else max(0, job.spec.pserver.count_for(trainers))


def _is_by_ratio(job: TrainingJob) -> bool:
    return job.spec.pserver is not None and job.spec.pserver.is_by_ratio


def _for_quota(shape: Shape) -> Amounts:
    return {**shape.requests, **{f"limits.{name}": amount for name, amount in shape.limits.items()}}
