"""Scaling decision for one snapshot.

Takes the snapshot, the targets in force and the timers. Returns the node types, the instances and the scheduler's
decision, or the reason why nothing can be decided. It prepares the scheduler's input: blocked groups get no new nodes,
a node that rejected a drain is not terminated as idle during its backoff, and a node that has just joined counts as
empty while Ray's task demand lags behind (AS:G-6), so that tasks already running on it are not counted twice. Called by
autoscaler/reconcile.py.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from raytide.autoscaler.model import GcsState, Instance, OnProgress, SchedulingRequest, unwatched
from raytide.autoscaler.scheduling.fallback import FallbackResult, schedule_with_fallback
from raytide.autoscaler.scheduling.schedule import schedule
from raytide.autoscaler.scheduling.upscaling_mode import Launches, launches
from raytide.autoscaler.state.current_targets import CurrentTargets
from raytide.autoscaler.state.group_availability import AvailabilityInputs, Limits, assess_availability
from raytide.autoscaler.state.instance_lifecycle import Stage
from raytide.autoscaler.state.instances import Instances, instances
from raytide.autoscaler.state.node_types import NodeTypes, asked_resources, node_types
from raytide.autoscaler.state.observation import InstanceInputs
from raytide.autoscaler.state.snapshot import ReconcilerState, Snapshot

DEMAND_LAG_S: Final = 2.0
"""Twice the interval at which the GCS polls the raylets' task queues (AS:G-6)."""


@dataclass(frozen=True, slots=True)
class SchedulingRound:
    """Observed state and decision for the whole cluster."""

    types: NodeTypes
    found: Instances
    joined_s: Mapping[str, float]
    """By Ray node id, when it was first seen."""
    limits: Limits | None = None
    choice: FallbackResult | None = None
    """None: nothing can be decided; `why_not` has the reason."""
    launches: Launches | None = None
    why_not: str = ""


def run_scheduling(
    snapshot: Snapshot, memory: ReconcilerState, current: CurrentTargets, on_progress: OnProgress = unwatched
) -> SchedulingRound:
    """Observe the cluster and run the scheduler."""
    state = snapshot.gcs or GcsState()
    types = node_types(snapshot.cluster["spec"], state.nodes, asked_resources(state))
    time_limits = snapshot.settings.time_limits
    found = instances(
        _instance_inputs(snapshot, memory, current, types, state), memory.timers, time_limits, memory.known
    )
    joined_s = _joined(found.instances, memory.joined_s, snapshot.monotonic_s)
    if snapshot.gcs is None:
        return SchedulingRound(types, found, memory.joined_s, why_not="the GCS does not answer")
    if not found.is_head_running:
        return SchedulingRound(types, found, joined_s, why_not="the head's Ray node is not running")
    limits = assess_availability(
        found, types, _availability_inputs(snapshot, current), time_limits, snapshot.settings.recovery_s
    )
    question = _build_request(snapshot, memory, types, found, joined_s)
    on_progress()
    scheduler = partial(schedule, on_progress=on_progress)
    choice = schedule_with_fallback(question, limits, scheduler)
    speed = launches(choice, scheduler, is_conservative=types.is_conservative)
    return SchedulingRound(types, found, joined_s, limits, choice, speed)


def _instance_inputs(
    snapshot: Snapshot, memory: ReconcilerState, current: CurrentTargets, types: NodeTypes, state: GcsState
) -> InstanceInputs:
    return InstanceInputs(
        pods=snapshot.pods,
        nodes=state.nodes,
        types=types,
        now_s=snapshot.monotonic_s,
        wanted={group.name: current.replicas(group) * group.num_of_hosts for group in current.groups},
        to_delete=frozenset(name for group in current.groups for name in current.named(group)),
        drains=frozenset(memory.leaving_s),
    )


def _availability_inputs(snapshot: Snapshot, current: CurrentTargets) -> AvailabilityInputs:
    status: Any = snapshot.cluster.get("status")
    conditions = status.get("conditions") if isinstance(status, Mapping) else None
    return AvailabilityInputs(
        now=snapshot.now,
        now_s=snapshot.monotonic_s,
        conditions=[c for c in conditions if isinstance(c, Mapping)] if isinstance(conditions, list) else (),
        backoffs={group.name: current.decision(group).backoff for group in current.groups},
        whys={group.name: current.decision(group).why for group in current.groups},
        node_autoscaler=snapshot.node_autoscaler,
    )


def _build_request(
    snapshot: Snapshot, memory: ReconcilerState, types: NodeTypes, found: Instances, joined_s: Mapping[str, float]
) -> SchedulingRequest:
    state = snapshot.gcs or GcsState()
    now_s = snapshot.monotonic_s
    resting = {node_id for node_id, refusal in memory.refusals.items() if now_s < refusal.until_s}
    return SchedulingRequest(
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
        # Tasks it runs are still reported as pending, so it counts as empty; an idle one may be about to get tasks.
        instance = replace(instance, available=instance.total, is_idle_blocked=True)
    return instance


def _joined(found: Iterable[Instance], joined_s: Mapping[str, float], now_s: float) -> dict[str, float]:
    return {i.node_id: joined_s.get(i.node_id, now_s) for i in found if i.node_id}


def dead_after_drain(found: Instances, memory: ReconcilerState) -> frozenset[str]:
    """Pods whose Ray node received a drain request and is now dead: they must still be named for deletion."""
    asked = memory.leaving_s.keys() | memory.refusals.keys()
    return frozenset(
        name for name, stay in found.timers.stays.items() if stay.stage is Stage.DEAD and stay.node_id in asked
    )
