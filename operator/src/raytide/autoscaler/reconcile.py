"""Reconciler: one tick's plan from one snapshot.

Takes a snapshot of the RayCluster, its pods and the GCS, and a memory of timers. Returns the patch, the drains, the
report, log lines and events, and the next memory. Targets are absolute and computed from current state, so that a
restart at any instruction changes nothing and repetition is harmless (D12, RM:I23). It composes the other decisions and
only defines their order (contract, "Order of a scale-down"). Called by loop.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from raytide.api.autoscaler_decision import (
    MAX_NAMES_PER_GROUP,
    DecisionRecord,
    GroupDecision,
    Why,
    encode_record,
    parse_record,
)
from raytide.autoscaler.model import OnProgress, unwatched
from raytide.autoscaler.reporting.collect import collect_messages, report_of
from raytide.autoscaler.reporting.messages import counted
from raytide.autoscaler.scaling.drains import (
    DrainTerms,
    drains_of,
    drains_of_removed,
    leaving_since,
    named_after,
    refusals_after,
)
from raytide.autoscaler.scaling.group_decisions import HOLD_S, GroupResult, Outcomes, group_outcomes
from raytide.autoscaler.scaling.json_patch import GroupChange, build_patch
from raytide.autoscaler.scaling.removed_groups import removed_orders
from raytide.autoscaler.scaling.write_throttle import (
    Change,
    change_between,
    is_lowering_pending,
    since_last_write_s,
    wait_s,
)
from raytide.autoscaler.scheduling.decide import DEMAND_LAG_S, SchedulingRound, run_scheduling
from raytide.autoscaler.state.current_targets import (
    CurrentTargets,
    is_head_leaving,
    is_paused,
    read_current_targets,
    with_own_pods,
)
from raytide.autoscaler.state.snapshot import (
    Answers,
    Drain,
    DrainRejection,
    Level,
    LogLine,
    NamesPlan,
    Operation,
    ReconcileResult,
    ReconcilerState,
    Snapshot,
)

LONGEST_DOUBT_S: Final = 30.0
"""So long after the last write, reasons are written even while nodes keep joining."""


def reconcile(snapshot: Snapshot, memory: ReconcilerState, on_progress: OnProgress = unwatched) -> ReconcileResult:
    """The plan for this snapshot; `on_progress` is called repeatedly meanwhile."""
    snapshot = with_own_pods(snapshot)
    current = read_current_targets(snapshot, memory)
    why_not = _why_hands_off(snapshot)
    if why_not:
        return ReconcileResult(memory=memory, why_not=why_not, record=current.record)
    scheduled = run_scheduling(snapshot, memory, current, on_progress)
    outcomes = group_outcomes(snapshot, memory, current, scheduled)
    on_progress()
    orders = {**outcomes.orders(), **removed_orders(snapshot, current, scheduled.found.instances)}
    writing = _writing(snapshot, memory, current, orders, outcomes.cluster_why, joined_s=scheduled.joined_s)
    words = collect_messages(memory, current, scheduled, outcomes, writing.written)
    report = report_of(snapshot, memory, scheduled, outcomes)
    return ReconcileResult(
        patch=writing.patch,
        drains=_drains(snapshot, memory, current, scheduled, outcomes, is_written=bool(writing.patch)),
        report=report,
        memory=replace(
            _next_memory(snapshot, memory, scheduled, outcomes, writing),
            report_version=report.version if report else memory.report_version,
            words=words.said,
        ),
        log=words.lines,
        events=words.events,
        requeue_after_s=_requeue_after_s(snapshot, scheduled, outcomes, writing),
        orders=orders,
        why=outcomes.cluster_why,
        decision=None if scheduled.choice is None else scheduled.choice.decision,
        instances=scheduled.found.instances,
        types=scheduled.types.types,
        why_not="paused" if is_paused(snapshot.cluster) else scheduled.why_not,
        record=writing.record or current.record,
    )


def plan_names(snapshot: Snapshot, plan: ReconcileResult, answers: Answers) -> NamesPlan:
    """The second patch: names of the replicas whose nodes accepted their drains.

    `snapshot.cluster` is the object after the first patch. A pod that cannot be named now is found by a later tick,
    because its Ray node is dead while the pod exists.
    """
    now_s = snapshot.monotonic_s
    memory = replace(
        plan.memory,
        leaving_s=leaving_since(plan.memory.leaving_s, answers, now_s),
        refusals=refusals_after(plan.memory.refusals, plan.drains, answers, now_s),
    )
    orders = dict(plan.orders)
    named = {g: names for g, names in named_after(plan.drains, answers, plan.instances).items() if g in orders}
    for group, names in named.items():
        together = tuple(dict.fromkeys([*orders[group].delete, *names]))[:MAX_NAMES_PER_GROUP]
        orders[group] = replace(orders[group], delete=together)
    if not named:
        return NamesPlan(memory=memory, log=_refusal_lines(plan.drains, answers))
    current = read_current_targets(snapshot, memory)
    patch = build_patch(snapshot.cluster, _changes(current, orders), _record_text(current, orders, plan.why, snapshot))
    lines = tuple(
        LogLine(
            Level.INFO,
            f"group {group}: {counted(len(names), 'node')} accepted the drain, the operator deletes the pods",
            (("group", group), ("named", len(names))),
        )
        for group, names in named.items()
    )
    return NamesPlan(patch, replace(memory, wrote_s=now_s), (*lines, *_refusal_lines(plan.drains, answers)))


def _why_hands_off(snapshot: Snapshot) -> str:
    """Why nothing is decided at all; empty if decisions are allowed."""
    if snapshot.cluster["metadata"].get("deletionTimestamp"):
        return "the RayCluster is being deleted"
    if is_head_leaving(snapshot):
        return "the head pod of this sidecar is terminating, the sidecar of the next head decides"
    spec = snapshot.cluster["spec"]
    if spec.get("suspend") is True:
        return "the RayCluster is suspended"
    return "" if spec.get("enableInTreeAutoscaling") is True else "enableInTreeAutoscaling is not true"


# --- writing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Writing:
    """The patch to write now, or how long it must wait."""

    change: Change = Change.NONE
    patch: tuple[Operation, ...] = ()
    record: DecisionRecord | None = None
    wait_s: float = 0.0

    @property
    def written(self) -> Change:
        """The kind of change the patch contains."""
        return self.change if self.patch else Change.NONE


def _writing(
    snapshot: Snapshot,
    memory: ReconcilerState,
    current: CurrentTargets,
    orders: Mapping[str, GroupDecision],
    why: tuple[Why, ...],
    *,
    joined_s: Mapping[str, float],
) -> _Writing:
    if is_paused(snapshot.cluster):
        return _Writing()
    text = _record_text(current, orders, why, snapshot)
    record = parse_record(text)
    change = change_between(current, _as_read(orders, record), why if record is None else record.why)
    since_s = since_last_write_s(current, memory.wrote_s, snapshot.monotonic_s, snapshot.now)
    doubt_s = _doubt_s(joined_s, since_s, snapshot.monotonic_s) if change is Change.MESSAGE else 0.0
    waits_s = max(wait_s(change, since_s), doubt_s)
    if change is Change.NONE or waits_s > 0:
        return _Writing(change, wait_s=waits_s)
    return _Writing(change, build_patch(snapshot.cluster, _changes(current, orders), text), record)


def _doubt_s(joined_s: Mapping[str, float], since_last_s: float | None, now_s: float) -> float:
    """How long reasons are delayed because the demand is unsettled after nodes joined.

    Otherwise reasons would be removed and written again while nodes join, and after a restart, when all nodes are new
    (RM:I19). Nodes that join one after the other delay them only for `LONGEST_DOUBT_S`.
    """
    settled_s = DEMAND_LAG_S - now_s
    is_put_off = since_last_s is not None and since_last_s >= LONGEST_DOUBT_S
    first_seen_s = min if is_put_off else max
    return max(0.0, first_seen_s(joined_s.values(), default=now_s) + settled_s)


def _changes(current: CurrentTargets, orders: Mapping[str, GroupDecision]) -> list[GroupChange]:
    """Spec changes for the orders; an absent `replicas` whose default equals the decision stays absent."""
    changes = []
    for group in current.groups:
        order = orders.get(group.name)
        if order is not None:
            is_understood = group.replicas is None and group.spec_replicas == order.replicas
            is_left = group.is_suspended or is_understood
            changes.append(GroupChange(group, None if is_left else order.replicas, order.delete))
    return changes


def _record_text(
    current: CurrentTargets, orders: Mapping[str, GroupDecision], why: tuple[Why, ...], snapshot: Snapshot
) -> str | None:
    if not current.is_recorded:
        return None
    at = snapshot.now.replace(microsecond=0)
    return encode_record(DecisionRecord(snapshot.cluster["metadata"]["uid"], current.head, at, orders, why))


def _as_read(orders: Mapping[str, GroupDecision], record: DecisionRecord | None) -> dict[str, GroupDecision]:
    """The orders as decoded from the record: long texts are truncated, and a truncation is no change of decision."""
    read = {} if record is None else record.groups
    return {name: _as_one_reads(order, read[name]) if name in read else order for name, order in orders.items()}


def _as_one_reads(order: GroupDecision, read: GroupDecision) -> GroupDecision:
    """Names of a group in the spec are also stored there, so they are not truncated."""
    delete = order.delete if order.deadline is None else read.delete
    return replace(order, why=read.why, backoff=read.backoff, delete=delete)


# --- drains ----------------------------------------------------------------------------------------------------------


def _drains(
    snapshot: Snapshot,
    memory: ReconcilerState,
    current: CurrentTargets,
    scheduled: SchedulingRound,
    outcomes: Outcomes,
    *,
    is_written: bool,
) -> tuple[Drain, ...]:
    """Drains only for groups whose count is lowered already or in this patch: else pods would be replaced (B-28)."""
    if is_paused(snapshot.cluster):
        return ()
    terms = DrainTerms(
        pods={pod.name: pod for pod in snapshot.pods},
        now=snapshot.now,
        monotonic_s=snapshot.monotonic_s,
        grace_s=snapshot.settings.preemption_grace_s,
        refusals=memory.refusals,
    )
    drains = tuple(
        drain
        for outcome in outcomes.groups
        if outcome.target is not None
        and (is_written or not is_lowering_pending(current, outcome.group, outcome.desired))
        for drain in drains_of(outcome.group.name, outcome.target, terms)
    )
    in_spec = frozenset(group.name for group in current.groups)
    return (*drains, *drains_of_removed(scheduled.found.instances, in_spec, memory.leaving_s, terms))


def _refusal_lines(drains: tuple[Drain, ...], answers: Answers) -> tuple[LogLine, ...]:
    lines = []
    for drain in drains:
        if drain.node_id not in answers:
            continue
        answer = answers[drain.node_id]
        if answer is None or not answer.is_accepted:
            said = "the GCS did not answer" if answer is None else answer.message
            values = (("group", drain.group), ("pod", drain.pod), ("node", drain.node_id))
            lines.append(LogLine(Level.INFO, f"pod {drain.pod} was not drained: {said}", values))
    return tuple(lines)


# --- memory ----------------------------------------------------------------------------------------------------------


def _next_memory(
    snapshot: Snapshot, memory: ReconcilerState, scheduled: SchedulingRound, outcomes: Outcomes, writing: _Writing
) -> ReconcilerState:
    now_s = snapshot.monotonic_s
    silent_s = None if scheduled.choice is not None else now_s if memory.silent_s is None else memory.silent_s
    return replace(
        memory,
        wrote_s=now_s if writing.patch else memory.wrote_s,
        unrecorded={}
        if snapshot.settings.is_recorded
        else {outcome.group.name: _unrecorded(outcome) for outcome in outcomes.groups},
        joined_s=scheduled.joined_s,
        unneeded_s=outcomes.unneeded_s,
        pending_s=outcomes.pending_s,
        leaving_s=outcomes.leaving_s,
        refusals=_refusals_of_those_there(memory, scheduled),
        timers=scheduled.found.timers,
        known=scheduled.found.known,
        silent_s=silent_s,
    )


def _refusals_of_those_there(memory: ReconcilerState, scheduled: SchedulingRound) -> Mapping[str, DrainRejection]:
    if not memory.refusals:
        return memory.refusals
    there = {stay.node_id for stay in scheduled.found.timers.stays.values()}
    return {node_id: refusal for node_id, refusal in memory.refusals.items() if node_id in there}


def _unrecorded(outcome: GroupResult) -> GroupDecision:
    """Substitute for the record: a count is written once the spec has it, whatever the outcome of the patch."""
    is_written = outcome.group.spec_replicas == outcome.desired.replicas
    return replace(outcome.desired, replicas=outcome.desired.replicas if is_written else outcome.before.replicas)


def _requeue_after_s(
    snapshot: Snapshot, scheduled: SchedulingRound, outcomes: Outcomes, writing: _Writing
) -> float | None:
    """Seconds until the next time at which a timer alone may change a decision."""
    now_s = snapshot.monotonic_s
    waits = [
        writing.wait_s,
        *((scheduled.limits.requeue_after_s or 0.0,) if scheduled.limits else ()),
        *(since_s + DEMAND_LAG_S - now_s for since_s in scheduled.joined_s.values()),
        *(since_s + HOLD_S - now_s for since_s in outcomes.unneeded_s.values()),
    ]
    return min((wait for wait in waits if wait > 0), default=None)
