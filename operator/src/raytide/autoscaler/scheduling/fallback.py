"""Fallback scheduling: demand of blocked groups and what becomes of their stuck instances.

Takes the scheduling input and the result of autoscaler/state/group_availability.py. Returns the decision and which
stuck instances are withdrawn. Demand moves to the next feasible group in the same tick. Stuck instances are withdrawn,
except those that only wait for capacity and are needed because no other group fits their demand, and those the group's
minimum requires (SC:S2, SC:S13). Demand that fits no other group is still requested from a group without capacity,
since a node autoscaler may add some, unless a scale gate says that there is none. Pure; called by decide.py with schedule.py as the scheduler, which guarantees that
such demand is placed last, on capacity the rest leaves free, and that a node a pending gang needs is not idle (SC:S5).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from raytide.autoscaler.model import (
    COUNTABLE,
    Instance,
    SchedulingReply,
    SchedulingRequest,
    Status,
)
from raytide.autoscaler.replicas import touched_replicas
from raytide.autoscaler.state.group_availability import Limits
from raytide.autoscaler.state.snapshot import DeviceWait

Scheduler: TypeAlias = Callable[[SchedulingRequest], SchedulingReply]
"""`schedule.schedule`, or a function with the same guarantees."""


@dataclass(frozen=True, slots=True)
class SchedulingRound:
    """The scheduling decision for the whole cluster, and what becomes of stuck instances."""

    reply: SchedulingReply
    request: SchedulingRequest
    """What the scheduler was asked: with blocked groups, without stuck instances."""
    launches: Mapping[str, int]
    """By type, in nodes, whole replicas: those of the reply that are requested now."""
    instances: tuple[Instance, ...] = ()
    """All of them; a withdrawn one is shown as ALLOCATION_TIMEOUT (a pod) or ALLOCATION_FAILED (no pod yet)."""
    withdrawn: frozenset[str] = frozenset()
    """Ids of stuck instances to withdraw: name the pods, no drain is needed, and reduce `replicas` accordingly."""
    kept: frozenset[str] = frozenset()
    """Ids of stuck instances that keep waiting: they count in `replicas`, but not as capacity."""
    held_back: Mapping[str, int] = field(default_factory=dict)
    """By type, launches that the upscaling mode defers until earlier ones are running."""
    device_waits: Mapping[str, DeviceWait] = field(default_factory=dict)
    """Work that running nodes do not take although their sums have room for it, by Ray node id."""


def schedule_with_fallback(inputs: SchedulingRequest, limits: Limits, schedule: Scheduler) -> SchedulingRound:
    """Decide with the blocked groups of `limits`; `inputs` is the input as if no group were blocked.

    Its types are those of autoscaler/state/node_types.py, its instances all of autoscaler/state/instances.py, stuck
    ones included.
    """
    stuck_ids = {instance.instance_id for instance in limits.stuck}
    sound = tuple(i for i in inputs.instances if i.instance_id not in stuck_ids)
    lacking = frozenset(name for name, blocked in limits.blocked.items() if blocked.is_capacity_missing)
    asked = replace(
        inputs,
        types=limits.types,
        instances=sound,
        availability={**inputs.availability, **limits.availability},
        recoverable={**inputs.recoverable, **limits.recoverable},
        full=frozenset(name for name in lacking if limits.blocked[name].may_request),
        waiting=tuple(i for i in limits.stuck if i.node_type in lacking and i.status in COUNTABLE),
    )
    reply = schedule(asked)
    needed = reply.needed & stuck_ids
    kept = _within_minimum(inputs, sound, limits) | needed | _beside_running(sound, limits, lacking)
    kept = touched_replicas(limits.stuck, kept)  # a replica waits as a whole or not at all (B-8)
    withdrawn = stuck_ids - kept
    return SchedulingRound(
        reply=reply,
        request=asked,
        launches=dict(reply.launches),
        instances=tuple(_given_up(i) if i.instance_id in withdrawn else i for i in inputs.instances),
        withdrawn=frozenset(withdrawn),
        kept=kept,
    )


# --- stuck instances -------------------------------------------------------------------------------------------------


def _within_minimum(inputs: SchedulingRequest, sound: Sequence[Instance], limits: Limits) -> frozenset[str]:
    """Stuck instances of a blocked group up to its minimum: withdrawing them would only request the same pods again."""
    counts = Counter(i.node_type for i in sound if i.status in COUNTABLE)
    stuck_by_group: dict[str, list[Instance]] = {}
    for instance in limits.stuck:
        stuck_by_group.setdefault(instance.node_type, []).append(instance)
    kept: set[str] = set()
    for node_type in (kind for kind in inputs.types if kind.name in limits.blocked):
        stuck = stuck_by_group.get(node_type.name, [])
        kept.update(i.instance_id for i in stuck[: max(0, node_type.min_nodes - counts[node_type.name])])
    return frozenset(kept)


def _beside_running(sound: Iterable[Instance], limits: Limits, lacking: Collection[str]) -> frozenset[str]:
    """Stuck hosts of a replica that is partly running: withdrawing them would terminate the running part.

    They are removed with that part once it is idle; a host that failed, instead of only lacking capacity, keeps no idle
    part.
    """
    running = {
        i.replica
        for i in sound
        if i.replica and i.status is Status.RAY_RUNNING and (not i.idle_ms or i.node_type in lacking)
    }
    return frozenset(i.instance_id for i in limits.stuck if i.replica in running)


def _given_up(instance: Instance) -> Instance:
    return replace(instance, status=Status.ALLOCATION_TIMEOUT if instance.pod else Status.ALLOCATION_FAILED)
