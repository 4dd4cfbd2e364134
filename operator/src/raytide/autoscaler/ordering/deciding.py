"""What does this snapshot need?

Takes the snapshot, the order that stands and the timers, gives the node types, the instances and the scheduler's decision,
or the reason why nothing can be decided. It prepares what the scheduler reads: groups that cannot deliver have no room, a
node that refused to leave is not asked again, and a node that has just joined counts as empty for as long as Ray's task
demand lags behind (AS:G-6), so that work it has already taken is not counted twice. Called by tick.py.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from raytide.autoscaler.inputs.fallback import Choice, choose
from raytide.autoscaler.inputs.instances import Instances, instances
from raytide.autoscaler.inputs.lifecycle import Stage
from raytide.autoscaler.inputs.limits import Evidence, Limits, limit
from raytide.autoscaler.inputs.node_types import NodeTypes, asked_resources, node_types
from raytide.autoscaler.inputs.sight import Sight
from raytide.autoscaler.inputs.upscaling import Launches, launches
from raytide.autoscaler.model import GcsState, Instance, OnProgress, SchedulingInput, unwatched
from raytide.autoscaler.ordering.orders import Memory, Snapshot
from raytide.autoscaler.ordering.standing import Standing
from raytide.autoscaler.scheduling.schedule import schedule

DEMAND_LAG_S: Final = 2.0
"""Twice the interval in which the GCS asks raylets for their queues (AS:G-6)."""


@dataclass(frozen=True, slots=True)
class Deciding:
    """What was seen and what follows for the whole cluster."""

    types: NodeTypes
    found: Instances
    joined_s: Mapping[str, float]
    """By Ray node id, when it was first seen."""
    limits: Limits | None = None
    choice: Choice | None = None
    """None: nothing can be decided, `why_not` says why."""
    launches: Launches | None = None
    why_not: str = ""


def decide(snapshot: Snapshot, memory: Memory, standing: Standing, on_progress: OnProgress = unwatched) -> Deciding:
    """See and decide."""
    state = snapshot.gcs or GcsState()
    types = node_types(snapshot.cluster["spec"], state.nodes, asked_resources(state))
    time_limits = snapshot.settings.time_limits
    found = instances(_sight(snapshot, memory, standing, types, state), memory.timers, time_limits, memory.known)
    joined_s = _joined(found.instances, memory.joined_s, snapshot.monotonic_s)
    if snapshot.gcs is None:
        return Deciding(types, found, memory.joined_s, why_not="the GCS does not answer")
    if not found.is_head_running:
        return Deciding(types, found, joined_s, why_not="the head's Ray node is not running")
    limits = limit(found, types, _evidence(snapshot, standing), time_limits, snapshot.settings.recovery_s)
    question = _question(snapshot, memory, types, found, joined_s)
    on_progress()
    scheduler = partial(schedule, on_progress=on_progress)
    choice = choose(question, limits, scheduler)
    speed = launches(choice, scheduler, is_conservative=types.is_conservative)
    return Deciding(types, found, joined_s, limits, choice, speed)


def _sight(snapshot: Snapshot, memory: Memory, standing: Standing, types: NodeTypes, state: GcsState) -> Sight:
    return Sight(
        pods=snapshot.pods,
        nodes=state.nodes,
        types=types,
        now_s=snapshot.monotonic_s,
        wanted={group.name: standing.replicas(group) * group.num_of_hosts for group in standing.groups},
        to_delete=frozenset(name for group in standing.groups for name in standing.named(group)),
        drains=frozenset(memory.leaving_s),
    )


def _evidence(snapshot: Snapshot, standing: Standing) -> Evidence:
    status: Any = snapshot.cluster.get("status")
    conditions = status.get("conditions") if isinstance(status, Mapping) else None
    return Evidence(
        now=snapshot.now,
        now_s=snapshot.monotonic_s,
        conditions=[c for c in conditions if isinstance(c, Mapping)] if isinstance(conditions, list) else (),
        backoffs={group.name: standing.decision(group).backoff for group in standing.groups},
        whys={group.name: standing.decision(group).why for group in standing.groups},
        node_autoscaler=snapshot.node_autoscaler,
    )


def _question(
    snapshot: Snapshot, memory: Memory, types: NodeTypes, found: Instances, joined_s: Mapping[str, float]
) -> SchedulingInput:
    state = snapshot.gcs or GcsState()
    now_s = snapshot.monotonic_s
    resting = {node_id for node_id, refusal in memory.refusals.items() if now_s < refusal.until_s}
    return SchedulingInput(
        types=types.types,
        instances=tuple(_as_scheduled(i, resting, joined_s, now_s) for i in found.instances),
        tasks=state.tasks,
        gangs=state.gangs,
        constraint=state.constraint,
        max_nodes=types.max_nodes,
        idle_timeout_s=types.idle_timeout_s,
        has_gpu_conservation=snapshot.settings.has_gpu_conservation,
    )


def _as_scheduled(instance: Instance, resting: set[str], joined_s: Mapping[str, float], now_s: float) -> Instance:
    if instance.node_id in resting:
        instance = replace(instance, is_idle_blocked=True)
    if instance.node_id and now_s - joined_s.get(instance.node_id, now_s) < DEMAND_LAG_S:
        # What runs there is still told as waiting; were it idle, what waits elsewhere could be meant for it.
        instance = replace(instance, available=instance.total, is_idle_blocked=True)
    return instance


def _joined(found: Iterable[Instance], joined_s: Mapping[str, float], now_s: float) -> dict[str, float]:
    return {i.node_id: joined_s.get(i.node_id, now_s) for i in found if i.node_id}


def dead_after_drain(found: Instances, memory: Memory) -> frozenset[str]:
    """Pods whose Ray node we asked to leave, and which is dead now: their names are still to be written."""
    asked = memory.leaving_s.keys() | memory.refusals.keys()
    return frozenset(
        name for name, stay in found.timers.stays.items() if stay.stage is Stage.DEAD and stay.node_id in asked
    )
