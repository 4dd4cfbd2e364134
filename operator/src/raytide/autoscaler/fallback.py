"""Who takes the work of a blocked group, and what becomes of its stuck pods?

Takes what the scheduler is asked and what limits.py found, gives the decision and the fate of every stuck instance. Work
goes to the next fitting group in the same tick; what is stuck is withdrawn, except what only waits for room while nobody
else can do its work, and what the group's minimum demands (SC:S2, SC:S13). A node that a pending gang needs is not idle
while the gang's other nodes are late or blocked (SC:S5). Pure; called by tick.py, with schedule.py as the scheduler.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from raytide.autoscaler.limits import Limits
from raytide.autoscaler.model import (
    COUNTABLE,
    Decision,
    Demand,
    Instance,
    NodeType,
    SchedulingInput,
    Status,
)

Scheduler: TypeAlias = Callable[[SchedulingInput], Decision]
"""`schedule.schedule`, or another with the same promise."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The scheduler's decision, and what blocked groups have to do with it."""

    decision: Decision
    question: SchedulingInput
    """What the decision answers: with the blocks, without the stuck."""
    instances: tuple[Instance, ...]
    """All of them; what is withdrawn is shown as ALLOCATION_TIMEOUT (a pod) or ALLOCATION_FAILED (no pod yet)."""
    withdrawn: frozenset[str] = frozenset()
    """Ids of stuck instances to give up: name the pods, no drain is needed; ask for that many fewer."""
    kept: frozenset[str] = frozenset()
    """Ids of stuck instances that go on waiting: they count in `replicas`, and not as capacity."""


def choose(question: SchedulingInput, limits: Limits, schedule: Scheduler) -> Choice:
    """Decide with the blocks of `limits`; `question` says all the rest, as if nothing were blocked.

    Its types are those of node_types.py, its instances all of instances.py, stuck ones too.
    """
    stuck_ids = {instance.instance_id for instance in limits.stuck}
    sound = tuple(i for i in question.instances if i.instance_id not in stuck_ids)
    asked = replace(
        question,
        types=limits.types,
        instances=_protected(question, sound, limits, schedule),
        availability={**question.availability, **limits.availability},
        recoverable={**question.recoverable, **limits.recoverable},
    )
    decision = schedule(asked)
    kept = _kept(question, sound, limits, decision, schedule) if limits.stuck else frozenset()
    withdrawn = stuck_ids - kept
    return Choice(
        decision=decision,
        question=asked,
        instances=tuple(_given_up(i) if i.instance_id in withdrawn else i for i in question.instances),
        withdrawn=frozenset(withdrawn),
        kept=kept,
    )


def _protected(
    question: SchedulingInput, sound: tuple[Instance, ...], limits: Limits, schedule: Scheduler
) -> tuple[Instance, ...]:
    """The sound instances; those a gang would use if nothing were blocked are not to be ended as idle (SC:S5)."""
    if not question.gangs or not (limits.backoffs or limits.stuck):
        return sound
    needed = schedule(replace(question, tasks=(), constraint=None, idle_timeout_s=None)).needed
    return tuple(replace(i, is_idle_blocked=True) if i.instance_id in needed else i for i in sound)


# --- what is stuck ---------------------------------------------------------------------------------------------------


def _kept(
    question: SchedulingInput, sound: Sequence[Instance], limits: Limits, decision: Decision, schedule: Scheduler
) -> frozenset[str]:
    """The stuck instances that are not given up: those of the minimum, and those that nobody can replace."""
    waiting = [i for i in limits.stuck if _is_room_missing(i, limits)]
    kept = _within_minimum(question, sound, limits) | _without_alternative(question, decision, waiting, schedule)
    replicas = {instance.replica for instance in limits.stuck if instance.replica and instance.instance_id in kept}
    return frozenset(i.instance_id for i in limits.stuck if i.instance_id in kept or i.replica in replicas)


def _is_room_missing(instance: Instance, limits: Limits) -> bool:
    blocked = limits.blocked.get(instance.node_type)
    return blocked is not None and blocked.is_room_missing and instance.status in COUNTABLE


def _within_minimum(question: SchedulingInput, sound: Sequence[Instance], limits: Limits) -> set[str]:
    """Below its minimum a group is asked for the same pods again at once, so nothing is won by giving them up."""
    kept: set[str] = set()
    for node_type in question.types:
        present = sum(i.node_type == node_type.name and i.status in COUNTABLE for i in sound)
        stuck = [i for i in limits.stuck if i.node_type == node_type.name]
        kept.update(i.instance_id for i in stuck[: max(0, node_type.min_nodes - present)])
    return kept


def _without_alternative(
    question: SchedulingInput, decision: Decision, waiting: Sequence[Instance], schedule: Scheduler
) -> set[str]:
    """What waits for room and would hold work that found no place elsewhere."""
    if not waiting:
        return set()
    if decision.is_constraint_unmet:
        return {instance.instance_id for instance in waiting}
    work = _unplaced(decision)
    if not work:
        return set()
    only_these = replace(
        question,
        types=tuple(_exactly(node_type, waiting) for node_type in question.types),
        instances=tuple(waiting),
        tasks=tuple(work),
        gangs=(),
        constraint=None,
        max_nodes=0,
        idle_timeout_s=None,
    )
    return set(schedule(only_these).needed)


def _unplaced(decision: Decision) -> list[Demand]:
    """What some node could hold; the bundles of a gang one by one, because other nodes may hold the rest of it."""
    impossible = set(decision.impossible)
    impossible_gangs = set(decision.impossible_gangs)
    return [
        *(demand for demand in decision.unplaced if demand not in impossible),
        *(
            Demand(bundle)
            for gang in decision.unplaced_gangs
            if gang not in impossible_gangs
            for bundle in gang.bundles
        ),
    ]


def _exactly(node_type: NodeType, instances: Iterable[Instance]) -> NodeType:
    """The type without room for any other than these, and not a reason to launch or end one."""
    return replace(node_type, min_nodes=0, max_nodes=sum(i.node_type == node_type.name for i in instances))


def _given_up(instance: Instance) -> Instance:
    return replace(instance, status=Status.ALLOCATION_TIMEOUT if instance.pod else Status.ALLOCATION_FAILED)
