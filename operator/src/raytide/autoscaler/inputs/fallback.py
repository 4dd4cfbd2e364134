"""Who takes the work of a blocked group, and what becomes of its stuck pods?

Takes what the scheduler is asked and what limits.py found, gives the decision and the fate of every stuck instance. Work
goes to the next fitting group in the same tick; what is stuck is withdrawn, except what only waits for room while nobody
else can do its work, and what the group's minimum demands (SC:S2, SC:S13). Work that nobody else can do is asked of a
group without room all the same: room may be made for it, as an autoscaler of Kubernetes nodes does. Pure; called by
tick.py with schedule.py as the scheduler, which promises that such work is placed after all other work and on what that
leaves free, and that a node that some waiting gang needs is not idle (SC:S5).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from raytide.autoscaler.inputs.limits import Limits
from raytide.autoscaler.model import (
    COUNTABLE,
    Decision,
    Instance,
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
    """What the decision answers: with the blocks, and what is stuck set apart."""
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
    full = frozenset(name for name, blocked in limits.blocked.items() if blocked.is_room_missing)
    asked = replace(
        question,
        types=limits.types,
        instances=sound,
        availability={**question.availability, **limits.availability},
        recoverable={**question.recoverable, **limits.recoverable},
        full=full,
        waiting=tuple(i for i in limits.stuck if i.node_type in full and i.status in COUNTABLE),
    )
    decision = schedule(asked)
    needed = decision.needed & stuck_ids
    kept = _within_minimum(question, sound, limits) | needed | _beside_running(sound, limits, full)
    kept = _whole_replicas(limits.stuck, kept)
    withdrawn = stuck_ids - kept
    return Choice(
        decision=decision,
        question=asked,
        instances=tuple(_given_up(i) if i.instance_id in withdrawn else i for i in question.instances),
        withdrawn=frozenset(withdrawn),
        kept=kept,
    )


# --- what is stuck ---------------------------------------------------------------------------------------------------


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


def _beside_running(sound: Iterable[Instance], limits: Limits, full: Collection[str]) -> frozenset[str]:
    """Hosts of a replica that has come in parts: giving them up would end the part that works.

    They go with that part, once it is idle; a host that is broken, not only without room, keeps no idle part.
    """
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


def _given_up(instance: Instance) -> Instance:
    return replace(instance, status=Status.ALLOCATION_TIMEOUT if instance.pod else Status.ALLOCATION_FAILED)
