"""Scheduling decision for the state of the cluster.

Takes the snapshot, the state of the cluster and the timers. Returns the scheduler's decision and the launches to
request now. It prepares the scheduler's input: blocked groups get no new nodes, a node that rejected a drain is not
terminated as idle during its backoff, and a node that has just joined counts as empty while Ray's task demand lags
behind (AS:G-6), so that tasks already running on it are not counted twice. Room for parts of devices that work has waited
for in vain is none (device_waits.py). Of the decision's launches the upscaling mode may defer some: `Default` and
`Aggressive` set no limit, not even Ray's ten (B-11); with `Conservative` a group has at most as many launching as running
nodes, at least one (AS:R-40, AS:C-5). What `minReplicas` and `request_resources()` need is launched at once (AS V-2). Called
by autoscaler/sidecar/reconcile.py.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from raytide.autoscaler.model import (
    COUNTABLE,
    GcsState,
    Instance,
    NodeType,
    OnProgress,
    SchedulingRequest,
    Status,
    unwatched,
)
from raytide.autoscaler.scheduling.device_waits import device_waits, without_false_room
from raytide.autoscaler.scheduling.fallback import Scheduler, SchedulingRound, schedule_with_fallback
from raytide.autoscaler.scheduling.schedule import schedule
from raytide.autoscaler.state.cluster_state import DEMAND_LAG_S, ClusterState
from raytide.autoscaler.state.snapshot import DeviceWait, ReconcilerState, Snapshot


def run_scheduling(
    snapshot: Snapshot, state: ReconcilerState, cluster: ClusterState, on_progress: OnProgress = unwatched
) -> SchedulingRound | None:
    """Run the scheduler; None: nothing can be scheduled, `cluster.why_not` has the reason."""
    if cluster.limits is None:
        return None
    tasks, now_s = (snapshot.gcs or GcsState()).tasks, snapshot.monotonic_s
    waits = device_waits(cluster.found.instances, tasks, state.device_waits, now_s)
    inputs = _build_request(snapshot, state, cluster, waits)
    on_progress()
    scheduler = partial(schedule, on_progress=on_progress)
    decided = replace(schedule_with_fallback(inputs, cluster.limits, scheduler), device_waits=waits)
    return launched_conservatively(decided, scheduler) if cluster.types.is_conservative else decided


def _build_request(
    snapshot: Snapshot, state: ReconcilerState, cluster: ClusterState, waits: Mapping[str, DeviceWait]
) -> SchedulingRequest:
    gcs, types, now_s = snapshot.gcs or GcsState(), cluster.types, snapshot.monotonic_s
    in_backoff = {node_id for node_id, rejection in state.rejections.items() if now_s < rejection.until_s}
    return SchedulingRequest(
        types=types.types,
        instances=tuple(
            _as_scheduled(without_false_room(i, waits.get(i.node_id), now_s), in_backoff, cluster.registered_s, now_s)
            for i in cluster.found.instances
        ),
        tasks=gcs.tasks,
        gangs=gcs.gangs,
        constraint=gcs.constraint,
        max_nodes=types.max_nodes,
        idle_timeout_s=types.idle_timeout_s,
        has_gpu_conservation=snapshot.settings.has_gpu_conservation,
    )


def _as_scheduled(
    instance: Instance, in_backoff: set[str], registered_s: Mapping[str, float], now_s: float
) -> Instance:
    if instance.node_id in in_backoff:
        instance = replace(instance, is_idle_blocked=True)
    if instance.node_id and now_s - registered_s.get(instance.node_id, now_s) < DEMAND_LAG_S:
        # Tasks it runs are still reported as pending, so it counts as empty; an idle one may be about to get tasks.
        instance = replace(instance, available=instance.total, is_idle_blocked=True)
    return instance


# --- upscaling mode ---------------------------------------------------------------------------------------------------


def launched_conservatively(decided: SchedulingRound, schedule: Scheduler) -> SchedulingRound:
    """The decision with those of its launches held back that the mode `Conservative` defers."""
    planned = decided.launches
    if not planned:
        return decided
    at_once = schedule(replace(decided.request, tasks=(), gangs=(), idle_timeout_s=None)).launches
    kinds = {node_type.name: node_type for node_type in decided.request.types}
    now = {
        name: min(count, max(at_once.get(name, 0), _may_launch(kinds[name], decided.instances)))
        for name, count in planned.items()
    }
    return replace(
        decided,
        launches={name: count for name, count in now.items() if count},
        held_back={name: count - now[name] for name, count in planned.items() if count > now[name]},
    )


def _may_launch(node_type: NodeType, instances: tuple[Instance, ...]) -> int:
    """How many more nodes may be launching, in whole replicas."""
    mine = [i for i in instances if i.node_type == node_type.name and i.status in COUNTABLE]
    running = sum(i.status in (Status.RAY_RUNNING, Status.RAY_STOP_REQUESTED) for i in mine)
    hosts = node_type.num_of_hosts
    replicas = max(1, running // hosts) - -(-(len(mine) - running) // hosts)
    return max(0, replicas) * hosts
