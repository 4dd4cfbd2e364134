"""Scheduling decision for the state of the cluster.

Takes the snapshot, the state of the cluster and the timers. Returns the scheduler's decision and the launches to
request now. It prepares the scheduler's input: blocked groups get no new nodes, a node that rejected a drain is not
terminated as idle during its backoff, and a node that has just joined counts as empty while Ray's task demand lags
behind (AS:G-6), so that tasks already running on it are not counted twice. Called by autoscaler/reconcile.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from raytide.autoscaler.model import GcsState, Instance, OnProgress, SchedulingRequest, unwatched
from raytide.autoscaler.scheduling.fallback import FallbackResult, schedule_with_fallback
from raytide.autoscaler.scheduling.schedule import schedule
from raytide.autoscaler.scheduling.upscaling_mode import Launches, launches
from raytide.autoscaler.state.cluster_state import DEMAND_LAG_S, ClusterState
from raytide.autoscaler.state.snapshot import ReconcilerState, Snapshot


@dataclass(frozen=True, slots=True)
class SchedulingRound:
    """The scheduling decision for the whole cluster."""

    choice: FallbackResult
    launches: Launches


def run_scheduling(
    snapshot: Snapshot, state: ReconcilerState, cluster: ClusterState, on_progress: OnProgress = unwatched
) -> SchedulingRound | None:
    """Run the scheduler; None: nothing can be scheduled, `cluster.why_not` has the reason."""
    if cluster.limits is None:
        return None
    question = _build_request(snapshot, state, cluster)
    on_progress()
    scheduler = partial(schedule, on_progress=on_progress)
    choice = schedule_with_fallback(question, cluster.limits, scheduler)
    return SchedulingRound(choice, launches(choice, scheduler, is_conservative=cluster.types.is_conservative))


def _build_request(snapshot: Snapshot, state: ReconcilerState, cluster: ClusterState) -> SchedulingRequest:
    gcs, types, now_s = snapshot.gcs or GcsState(), cluster.types, snapshot.monotonic_s
    resting = {node_id for node_id, refusal in state.refusals.items() if now_s < refusal.until_s}
    return SchedulingRequest(
        types=types.types,
        instances=tuple(_as_scheduled(i, resting, cluster.joined_s, now_s) for i in cluster.found.instances),
        tasks=gcs.tasks,
        gangs=gcs.gangs,
        constraint=gcs.constraint,
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
