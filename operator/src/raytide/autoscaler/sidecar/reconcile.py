"""Reconciler: one tick's plan from one snapshot.

Takes a snapshot of the RayCluster, its pods and the GCS, and the timers. Returns the patch, the drains, the
report, log lines and events, and the next state. Targets are absolute and computed from current state, so that a
restart at any instruction changes nothing and repetition is harmless (D12, RM:I23). It only composes state, scheduling,
scaling and reporting, in this order (contract, "Order of a scale-down"). Called by loop.py.
"""

from collections.abc import Mapping
from dataclasses import replace

from raytide.api.autoscaler_decision import MAX_NAMES_PER_GROUP, GroupDecision
from raytide.autoscaler.model import OnProgress, unwatched
from raytide.autoscaler.reporting.collect import collect_messages, report_of
from raytide.autoscaler.reporting.messages import drained_line, not_drained_lines
from raytide.autoscaler.scaling.decision_patch import PatchPlan, patch_now, plan_patch
from raytide.autoscaler.scaling.drains import draining_since, names_to_delete_after, plan_drains, rejections_after
from raytide.autoscaler.scaling.group_decisions import HOLD_S, GroupResult, Outcomes, group_outcomes
from raytide.autoscaler.scaling.removed_groups import removed_decisions
from raytide.autoscaler.scheduling.decide import run_scheduling
from raytide.autoscaler.state.cluster_state import DEMAND_LAG_S, ClusterState, read_cluster_state
from raytide.autoscaler.state.current_targets import is_head_terminating, read_current_targets, with_own_pods
from raytide.autoscaler.state.snapshot import (
    Answers,
    DrainRejection,
    ReconcileResult,
    ReconcilerState,
    Snapshot,
)


def reconcile(snapshot: Snapshot, state: ReconcilerState, on_progress: OnProgress = unwatched) -> ReconcileResult:
    """The plan for this snapshot; `on_progress` is called repeatedly meanwhile."""
    snapshot = with_own_pods(snapshot)
    current = read_current_targets(snapshot, state)
    why_not = _why_inactive(snapshot)
    if why_not:
        return ReconcileResult(state=state, why_not=why_not, record=current.record)
    cluster = read_cluster_state(snapshot, state, current)
    scheduled = run_scheduling(snapshot, state, cluster, on_progress)
    outcomes = group_outcomes(snapshot, state, cluster, scheduled)
    on_progress()
    decisions = {**outcomes.decisions(), **removed_decisions(snapshot, current, cluster.found.instances)}
    writing = plan_patch(snapshot, state, cluster, decisions, outcomes.cluster_why)
    drains = plan_drains(snapshot, state, cluster, outcomes, is_written=bool(writing.patch))
    texts = collect_messages(state, cluster, scheduled, outcomes, writing.written)
    report = report_of(snapshot, state, cluster, scheduled, outcomes)
    return ReconcileResult(
        patch=writing.patch,
        drains=drains,
        report=report,
        state=replace(
            _next_state(snapshot, state, cluster, outcomes, writing),
            device_waits=scheduled.device_waits if scheduled else state.device_waits,
            report_version=report.version if report else state.report_version,
            reported_keys=texts.reported_keys,
        ),
        log=texts.lines,
        events=texts.events,
        requeue_after_s=_requeue_after_s(snapshot, cluster, outcomes, writing),
        decisions=decisions,
        why=outcomes.cluster_why,
        reply=None if scheduled is None else scheduled.reply,
        instances=cluster.found.instances,
        types=cluster.types.types,
        why_not="paused" if current.is_paused else cluster.why_not,
        record=writing.record or current.record,
    )


def plan_names(snapshot: Snapshot, plan: ReconcileResult, answers: Answers) -> ReconcileResult:
    """The second patch: names of the replicas whose nodes accepted their drains.

    `snapshot.cluster` is the object after the first patch. A pod that cannot be named now is found by a later tick,
    because its Ray node is dead while the pod exists.
    """
    now_s = snapshot.monotonic_s
    current = read_current_targets(snapshot, plan.state)
    state = replace(
        plan.state,
        draining_since_s=draining_since(plan.state.draining_since_s, answers, now_s),
        rejections=rejections_after(plan.state.rejections, plan.drains, answers, now_s),
    )
    decisions = dict(plan.decisions)
    names_by_group = names_to_delete_after(plan.drains, answers, plan.instances)
    names_by_group = {group: names for group, names in names_by_group.items() if group in decisions}
    for group, names in names_by_group.items():
        together = tuple(dict.fromkeys([*decisions[group].delete, *names]))[:MAX_NAMES_PER_GROUP]
        decisions[group] = replace(decisions[group], delete=together)
    if not names_by_group:
        return ReconcileResult(state=state, log=not_drained_lines(plan.drains, answers))
    patch = patch_now(snapshot, current, decisions, plan.why)
    lines = tuple(drained_line(group, len(names)) for group, names in names_by_group.items())
    lines += not_drained_lines(plan.drains, answers)
    return ReconcileResult(patch=patch, state=replace(state, written_at_s=now_s), log=lines)


def _why_inactive(snapshot: Snapshot) -> str:
    """Why nothing is decided at all; empty if decisions are allowed."""
    if snapshot.cluster["metadata"].get("deletionTimestamp"):
        return "the RayCluster is being deleted"
    if is_head_terminating(snapshot):
        return "the head pod of this sidecar is terminating, the sidecar of the next head decides"
    spec = snapshot.cluster["spec"]
    if spec.get("suspend") is True:
        return "the RayCluster is suspended"
    return "" if spec.get("enableInTreeAutoscaling") is True else "enableInTreeAutoscaling is not true"


# --- next state ------------------------------------------------------------------------------------------------------


def _next_state(
    snapshot: Snapshot, state: ReconcilerState, cluster: ClusterState, outcomes: Outcomes, writing: PatchPlan
) -> ReconcilerState:
    now_s = snapshot.monotonic_s
    silent_s = None if cluster.limits is not None else now_s if state.silent_s is None else state.silent_s
    return replace(
        state,
        written_at_s=now_s if writing.patch else state.written_at_s,
        unrecorded={}
        if snapshot.settings.is_recorded
        else {outcome.group.name: _unrecorded(outcome) for outcome in outcomes.groups},
        registered_s=cluster.registered_s,
        unneeded_since_s=outcomes.unneeded_since_s,
        pending_since_s=outcomes.pending_since_s,
        draining_since_s=outcomes.draining_since_s,
        rejections=_rejections_of_present_nodes(state, cluster),
        timers=cluster.found.timers,
        known=cluster.found.known,
        silent_s=silent_s,
    )


def _rejections_of_present_nodes(state: ReconcilerState, cluster: ClusterState) -> Mapping[str, DrainRejection]:
    if not state.rejections:
        return state.rejections
    there = {entry.node_id for entry in cluster.found.timers.stages.values()}
    return {node_id: rejection for node_id, rejection in state.rejections.items() if node_id in there}


def _unrecorded(outcome: GroupResult) -> GroupDecision:
    """Substitute for the record: a count is written once the spec has it, whatever the outcome of the patch."""
    is_written = outcome.group.spec_replicas == outcome.desired.replicas
    return replace(
        outcome.desired, replicas=outcome.desired.replicas if is_written else outcome.current.decision.replicas
    )


def _requeue_after_s(snapshot: Snapshot, cluster: ClusterState, outcomes: Outcomes, writing: PatchPlan) -> float | None:
    """Seconds until the next time at which a timer alone may change a decision."""
    now_s = snapshot.monotonic_s
    waits = [
        writing.wait_s,
        *((cluster.limits.requeue_after_s or 0.0,) if cluster.limits else ()),
        *(since_s + DEMAND_LAG_S - now_s for since_s in cluster.registered_s.values()),
        *(since_s + HOLD_S - now_s for since_s in outcomes.unneeded_since_s.values()),
    ]
    return min((wait for wait in waits if wait > 0), default=None)
