"""What does the autoscaler do this time?

Takes one snapshot of the RayCluster, its pods and the GCS, and a memory of timers; gives everything that follows: the
patch, the drains, the report, the lines and events, and the next memory. Targets are absolute and computed from what
exists, so that a restart at any instruction changes nothing and repeating is harmless (D12, RM:I23). It composes the
other decisions and has no rule of its own but their order (contract, "Order of a scale-down"). Called by loop.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from raytide.api.scaling import MAX_NAMES_PER_GROUP, DecisionRecord, GroupDecision, Why, encode_record, parse_record
from raytide.autoscaler.model import OnProgress, unwatched
from raytide.autoscaler.ordering.deciding import DEMAND_LAG_S, Deciding, decide
from raytide.autoscaler.ordering.drains import (
    DrainTerms,
    drains_of,
    drains_of_removed,
    leaving_since,
    named_after,
    refusals_after,
)
from raytide.autoscaler.ordering.group_orders import HOLD_S, GroupOutcome, Outcomes, group_outcomes
from raytide.autoscaler.ordering.orders import (
    Answers,
    Drain,
    Level,
    LogLine,
    Memory,
    NamesPlan,
    Operation,
    Refusal,
    Snapshot,
    TickPlan,
)
from raytide.autoscaler.ordering.pacing import Change, change_between, is_lowering_pending, since_last_write_s, wait_s
from raytide.autoscaler.ordering.patch import GroupChange, build_patch
from raytide.autoscaler.ordering.removed_groups import removed_orders
from raytide.autoscaler.ordering.standing import Standing, is_head_leaving, is_paused, standing_of, with_own_pods
from raytide.autoscaler.telling.saying import counted
from raytide.autoscaler.telling.telling import report_of, words_of

LONGEST_DOUBT_S: Final = 30.0
"""So long after the last write reasons are written although nodes keep joining."""


def plan_tick(snapshot: Snapshot, memory: Memory, on_progress: OnProgress = unwatched) -> TickPlan:
    """Everything that follows from this snapshot; `on_progress` is called again and again meanwhile."""
    snapshot = with_own_pods(snapshot)
    standing = standing_of(snapshot, memory)
    why_not = _why_hands_off(snapshot)
    if why_not:
        return TickPlan(memory=memory, why_not=why_not, record=standing.record)
    deciding = decide(snapshot, memory, standing, on_progress)
    outcomes = group_outcomes(snapshot, memory, standing, deciding)
    on_progress()
    orders = {**outcomes.orders(), **removed_orders(snapshot, standing, deciding.found.instances)}
    writing = _writing(snapshot, memory, standing, orders, outcomes.cluster_why, joined_s=deciding.joined_s)
    words = words_of(memory, standing, deciding, outcomes, writing.written)
    report = report_of(snapshot, memory, deciding, outcomes)
    return TickPlan(
        patch=writing.patch,
        drains=_drains(snapshot, memory, standing, deciding, outcomes, is_written=bool(writing.patch)),
        report=report,
        memory=replace(
            _next_memory(snapshot, memory, deciding, outcomes, writing),
            report_version=report.version if report else memory.report_version,
            words=words.said,
        ),
        log=words.lines,
        events=words.events,
        look_again_s=_look_again_s(snapshot, deciding, outcomes, writing),
        orders=orders,
        why=outcomes.cluster_why,
        decision=None if deciding.choice is None else deciding.choice.decision,
        instances=deciding.found.instances,
        types=deciding.types.types,
        why_not="paused" if is_paused(snapshot.cluster) else deciding.why_not,
        record=writing.record or standing.record,
    )


def plan_names(snapshot: Snapshot, plan: TickPlan, answers: Answers) -> NamesPlan:
    """The second patch: the names of the replicas whose nodes agreed to leave.

    `snapshot.cluster` is the object as the first patch left it. What cannot be named now is found again by a later tick,
    because its Ray node is dead while its pod lives.
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
    standing = standing_of(snapshot, memory)
    patch = build_patch(
        snapshot.cluster, _changes(standing, orders), _record_text(standing, orders, plan.why, snapshot)
    )
    lines = tuple(
        LogLine(
            Level.INFO,
            f"group {group}: {counted(len(names), 'node')} agreed to leave, named for the operator to delete",
            (("group", group), ("named", len(names))),
        )
        for group, names in named.items()
    )
    return NamesPlan(patch, replace(memory, wrote_s=now_s), (*lines, *_refusal_lines(plan.drains, answers)))


def _why_hands_off(snapshot: Snapshot) -> str:
    """Why nothing at all is decided; empty when something may be."""
    if snapshot.cluster["metadata"].get("deletionTimestamp"):
        return "the RayCluster is being deleted"
    if is_head_leaving(snapshot):
        return "the head pod beside us is going, its successor decides"
    spec = snapshot.cluster["spec"]
    if spec.get("suspend") is True:
        return "the RayCluster is suspended"
    return "" if spec.get("enableInTreeAutoscaling") is True else "autoscaling is switched off"


# --- writing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Writing:
    """What is written now, and what has to wait."""

    change: Change = Change.NONE
    patch: tuple[Operation, ...] = ()
    record: DecisionRecord | None = None
    wait_s: float = 0.0

    @property
    def written(self) -> Change:
        """The change that is in the patch."""
        return self.change if self.patch else Change.NONE


def _writing(
    snapshot: Snapshot,
    memory: Memory,
    standing: Standing,
    orders: Mapping[str, GroupDecision],
    why: tuple[Why, ...],
    *,
    joined_s: Mapping[str, float],
) -> _Writing:
    if is_paused(snapshot.cluster):
        return _Writing()
    text = _record_text(standing, orders, why, snapshot)
    record = parse_record(text)
    change = change_between(standing, _as_read(orders, record), why if record is None else record.why)
    since_s = since_last_write_s(standing, memory.wrote_s, snapshot.monotonic_s, snapshot.now)
    doubt_s = _doubt_s(joined_s, since_s, snapshot.monotonic_s) if change is Change.WORDS else 0.0
    waits_s = max(wait_s(change, since_s), doubt_s)
    if change is Change.NONE or waits_s > 0:
        return _Writing(change, wait_s=waits_s)
    return _Writing(change, build_patch(snapshot.cluster, _changes(standing, orders), text), record)


def _doubt_s(joined_s: Mapping[str, float], since_last_s: float | None, now_s: float) -> float:
    """How long it is not known yet what waits, because nodes are new to us: no reason to say anything.

    Else words would be taken back and written again while nodes join, and after a restart, when all are new (RM:I19).
    Nodes that join one after the other put it off for a while only.
    """
    settled_s = DEMAND_LAG_S - now_s
    is_put_off = since_last_s is not None and since_last_s >= LONGEST_DOUBT_S
    first_seen_s = min if is_put_off else max
    return max(0.0, first_seen_s(joined_s.values(), default=now_s) + settled_s)


def _changes(standing: Standing, orders: Mapping[str, GroupDecision]) -> list[GroupChange]:
    """What has to be different in the spec; an absent number that the operator reads as ours may stay absent."""
    changes = []
    for group in standing.groups:
        order = orders.get(group.name)
        if order is not None:
            is_understood = group.replicas is None and group.standing_replicas == order.replicas
            is_left = group.is_suspended or is_understood
            changes.append(GroupChange(group, None if is_left else order.replicas, order.delete))
    return changes


def _record_text(
    standing: Standing, orders: Mapping[str, GroupDecision], why: tuple[Why, ...], snapshot: Snapshot
) -> str | None:
    if not standing.is_recorded:
        return None
    at = snapshot.now.replace(microsecond=0)
    return encode_record(DecisionRecord(snapshot.cluster["metadata"]["uid"], standing.head, at, orders, why))


def _as_read(orders: Mapping[str, GroupDecision], record: DecisionRecord | None) -> dict[str, GroupDecision]:
    """The orders as the record gives them back: long words are cut, and a cut is no change of mind."""
    read = {} if record is None else record.groups
    return {name: _as_one_reads(order, read[name]) if name in read else order for name, order in orders.items()}


def _as_one_reads(order: GroupDecision, read: GroupDecision) -> GroupDecision:
    """The names of a group that is in the spec are there, too, whatever was cut."""
    delete = order.delete if order.deadline is None else read.delete
    return replace(order, why=read.why, backoff=read.backoff, delete=delete)


# --- drains ----------------------------------------------------------------------------------------------------------


def _drains(
    snapshot: Snapshot,
    memory: Memory,
    standing: Standing,
    deciding: Deciding,
    outcomes: Outcomes,
    *,
    is_written: bool,
) -> tuple[Drain, ...]:
    """Only of groups whose number is lowered already, or in this very patch: else what leaves would be replaced (B-28)."""
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
        and (is_written or not is_lowering_pending(standing, outcome.group, outcome.order))
        for drain in drains_of(outcome.group.name, outcome.target, terms)
    )
    in_spec = frozenset(group.name for group in standing.groups)
    return (*drains, *drains_of_removed(deciding.found.instances, in_spec, memory.leaving_s, terms))


def _refusal_lines(drains: tuple[Drain, ...], answers: Answers) -> tuple[LogLine, ...]:
    lines = []
    for drain in drains:
        if drain.node_id not in answers:
            continue
        answer = answers[drain.node_id]
        if answer is None or not answer.is_accepted:
            said = "the GCS did not answer" if answer is None else answer.message
            values = (("group", drain.group), ("pod", drain.pod), ("node", drain.node_id))
            lines.append(LogLine(Level.INFO, f"{drain.pod} was not drained: {said}", values))
    return tuple(lines)


# --- memory ----------------------------------------------------------------------------------------------------------


def _next_memory(
    snapshot: Snapshot, memory: Memory, deciding: Deciding, outcomes: Outcomes, writing: _Writing
) -> Memory:
    now_s = snapshot.monotonic_s
    silent_s = None if deciding.choice is not None else now_s if memory.silent_s is None else memory.silent_s
    return replace(
        memory,
        wrote_s=now_s if writing.patch else memory.wrote_s,
        unrecorded={}
        if snapshot.settings.is_recorded
        else {outcome.group.name: _unrecorded(outcome) for outcome in outcomes.groups},
        joined_s=deciding.joined_s,
        unneeded_s=outcomes.unneeded_s,
        pending_s=outcomes.pending_s,
        leaving_s=outcomes.leaving_s,
        refusals=_refusals_of_those_there(memory, deciding),
        timers=deciding.found.timers,
        known=deciding.found.known,
        silent_s=silent_s,
    )


def _refusals_of_those_there(memory: Memory, deciding: Deciding) -> Mapping[str, Refusal]:
    if not memory.refusals:
        return memory.refusals
    there = {stay.node_id for stay in deciding.found.timers.stays.values()}
    return {node_id: refusal for node_id, refusal in memory.refusals.items() if node_id in there}


def _unrecorded(outcome: GroupOutcome) -> GroupDecision:
    """What a record would hold: a number counts as written once the spec has it, whatever became of the patch."""
    is_written = outcome.group.standing_replicas == outcome.order.replicas
    return replace(outcome.order, replicas=outcome.order.replicas if is_written else outcome.before.replicas)


def _look_again_s(snapshot: Snapshot, deciding: Deciding, outcomes: Outcomes, writing: _Writing) -> float | None:
    """The next moment at which the clock alone may change something."""
    now_s = snapshot.monotonic_s
    waits = [
        writing.wait_s,
        *((deciding.limits.look_again_s or 0.0,) if deciding.limits else ()),
        *(since_s + DEMAND_LAG_S - now_s for since_s in deciding.joined_s.values()),
        *(since_s + HOLD_S - now_s for since_s in outcomes.unneeded_s.values()),
    ]
    return min((wait for wait in waits if wait > 0), default=None)
