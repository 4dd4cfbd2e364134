"""Who takes the work of a blocked group, and what becomes of its stuck pods?

Takes what the scheduler is asked and what limits.py found, gives the decision and the fate of every stuck instance. Work
goes to the next fitting group in the same tick; what is stuck is withdrawn, except what only waits for room while nobody
else can do its work, and what the group's minimum demands (SC:S2, SC:S13). Work that nobody else can do is asked of a
group without room all the same: somebody may make room, such as an autoscaler of Kubernetes nodes. Pure; called by
tick.py with schedule.py as the scheduler, which promises that a node some waiting gang needs is not idle (SC:S5).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from raytide.autoscaler.inputs.limits import Limits
from raytide.autoscaler.model import (
    COUNTABLE,
    Decision,
    Demand,
    Instance,
    NodeType,
    SchedulingInput,
    Status,
)
from raytide.autoscaler.scheduling.shapes import merged_by_affinity

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
        instances=sound,
        availability={**question.availability, **limits.availability},
        recoverable={**question.recoverable, **limits.recoverable},
    )
    decision = schedule(asked)
    rest = _ask_all_the_same(question, sound, limits, decision, schedule)
    kept = _within_minimum(question, sound, limits) | rest.needed | _beside_running(sound, limits)
    kept = _whole_replicas(limits.stuck, kept)
    withdrawn = stuck_ids - kept
    return Choice(
        decision=replace(decision, launches=_sum(decision.launches, rest.launches)),
        question=asked,
        instances=tuple(_given_up(i) if i.instance_id in withdrawn else i for i in question.instances),
        withdrawn=frozenset(withdrawn),
        kept=kept,
    )


# --- what is stuck ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rest:
    """What is asked of groups without room."""

    needed: frozenset[str] = frozenset()
    """Stuck instances that go on waiting."""
    launches: Mapping[str, int] = field(default_factory=dict)


def _ask_all_the_same(
    question: SchedulingInput,
    sound: Sequence[Instance],
    limits: Limits,
    decision: Decision,
    schedule: Scheduler,
) -> _Rest:
    """What found no place elsewhere, as far as groups that only lack room could hold it."""
    full = frozenset(name for name, blocked in limits.blocked.items() if blocked.is_room_missing)
    if not full:
        return _Rest()
    waiting = tuple(i for i in limits.stuck if i.node_type in full and i.status in COUNTABLE)
    rest = _Rest()
    work = _unplaced(decision)
    if work:
        counts = Counter(i.node_type for i in sound if i.status in COUNTABLE)
        types = tuple(_with_room(kind, kind.max_nodes - counts[kind.name], full) for kind in question.types)
        rest = _of(schedule(_only(question, types, waiting, tasks=tuple(work))), waiting, full)
    if decision.is_constraint_unmet:
        types = tuple(_with_room(kind, kind.max_nodes, full, limits) for kind in question.types)
        more = _of(schedule(_only(question, types, (*sound, *waiting), constraint=question.constraint)), waiting, full)
        rest = _Rest(rest.needed | more.needed, _most(rest.launches, more.launches))
    return rest


def _of(answer: Decision, waiting: Iterable[Instance], full: frozenset[str]) -> _Rest:
    return _Rest(
        answer.needed & {i.instance_id for i in waiting},
        {name: count for name, count in answer.launches.items() if name in full},
    )


def _only(
    question: SchedulingInput,
    types: tuple[NodeType, ...],
    instances: tuple[Instance, ...],
    *,
    tasks: tuple[Demand, ...] = (),
    constraint: tuple[Demand, ...] | None = None,
) -> SchedulingInput:
    """The same question about these alone, in which nothing is ended."""
    return replace(
        question,
        types=types,
        instances=instances,
        tasks=tasks,
        gangs=(),
        constraint=constraint,
        max_nodes=0,
        idle_timeout_s=None,
    )


def _with_room(node_type: NodeType, most: int, full: frozenset[str], limits: Limits | None = None) -> NodeType:
    """The type with all that its maximum leaves if only room is missing; else with nothing, or what `limits` leave it."""
    if node_type.name in full:
        return replace(node_type, min_nodes=0, max_nodes=max(0, most), available=None)
    left = {kind.name: kind.available for kind in limits.types} if limits else {}
    return replace(node_type, min_nodes=0, available=left.get(node_type.name, 0))


def _within_minimum(question: SchedulingInput, sound: Sequence[Instance], limits: Limits) -> frozenset[str]:
    """Below its minimum a blocked group is asked for the same pods again, so nothing is won by giving them up."""
    counts = Counter(i.node_type for i in sound if i.status in COUNTABLE)
    stuck_by_group: dict[str, list[Instance]] = {}
    for instance in limits.stuck:
        stuck_by_group.setdefault(instance.node_type, []).append(instance)
    kept: set[str] = set()
    for node_type in (kind for kind in question.types if kind.name in limits.blocked):
        stuck = stuck_by_group.get(node_type.name, [])
        kept.update(i.instance_id for i in stuck[: max(0, node_type.min_nodes - counts[node_type.name])])
    return frozenset(kept)


def _beside_running(sound: Iterable[Instance], limits: Limits) -> frozenset[str]:
    """Hosts of a replica that has come in parts: giving them up would end the part that works.

    They go with that part, once it is idle; a host that is broken, not only without room, keeps no idle part.
    """
    full = {name for name, blocked in limits.blocked.items() if blocked.is_room_missing}
    running = {
        i.replica
        for i in sound
        if i.replica and i.status is Status.RAY_RUNNING and (not i.idle_ms or i.node_type in full)
    }
    return frozenset(i.instance_id for i in limits.stuck if i.replica in running)


def _whole_replicas(stuck: Iterable[Instance], kept: frozenset[str]) -> frozenset[str]:
    """A replica of several hosts waits as a whole or not at all (B-8)."""
    stuck = tuple(stuck)
    replicas = {i.replica for i in stuck if i.replica and i.instance_id in kept}
    return frozenset(i.instance_id for i in stuck if i.instance_id in kept or i.replica in replicas)


def _unplaced(decision: Decision) -> list[Demand]:
    """What some node could hold; the bundles of a gang one by one, because other nodes may hold the rest of it."""
    impossible = set(decision.impossible)
    impossible_gangs = set(decision.impossible_gangs)
    gangs = [gang for gang in decision.unplaced_gangs if gang not in impossible_gangs]
    return [
        *(demand for demand in decision.unplaced if demand not in impossible),
        *(Demand(bundle) for gang in gangs for bundle in merged_by_affinity(gang.bundles)),
    ]


def _sum(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(first) + Counter(second))


def _most(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(first) | Counter(second))


def _given_up(instance: Instance) -> Instance:
    return replace(instance, status=Status.ALLOCATION_TIMEOUT if instance.pod else Status.ALLOCATION_FAILED)
