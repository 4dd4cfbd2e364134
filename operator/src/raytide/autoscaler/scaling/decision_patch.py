"""Patch of one tick: whether the decisions are written now, and the patch with their record.

Takes the targets in force and the decisions of all groups. Returns the patch, or how long it must wait: a new decision
at least 2 s after the last write, an unchanged decision against another writer's spec at least 10 s, reasons alone at
least 10 s; without a change nothing is written (contract, "Written only on a change of mind"). After a restart the
record's time replaces the time of the last write. json_patch.py builds the operations. Called by autoscaler/sidecar/reconcile.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from raytide.api.autoscaler_decision import DecisionRecord, GroupDecision, encode_record, parse_record
from raytide.autoscaler.scaling.json_patch import GroupChange, build_patch
from raytide.autoscaler.state.cluster_state import DEMAND_LAG_S, ClusterState
from raytide.autoscaler.state.current_targets import CurrentTarget, CurrentTargets
from raytide.autoscaler.state.snapshot import Operation, ReconcilerState, Snapshot
from raytide.diagnosis.model import Diagnosis


class Change(StrEnum):
    """Kind of change between the targets in force and the new decisions."""

    NONE = "none"
    DECISION = "mind"
    CONFLICT = "rival"
    """The decision is unchanged, but the spec differs from it."""
    MESSAGE = "words"


PAUSE_S: Final[Mapping[Change, float]] = {Change.DECISION: 2.0, Change.CONFLICT: 10.0, Change.MESSAGE: 10.0}
MAX_MESSAGE_DELAY_S: Final = 30.0
"""So long after the last write, reasons are written even while nodes keep joining."""


@dataclass(frozen=True, slots=True)
class PatchPlan:
    """The patch to write now, or how long it must wait."""

    change: Change = Change.NONE
    patch: tuple[Operation, ...] = ()
    record: DecisionRecord | None = None
    wait_s: float = 0.0

    @property
    def written(self) -> Change:
        """The kind of change the patch contains."""
        return self.change if self.patch else Change.NONE


def plan_patch(
    snapshot: Snapshot,
    state: ReconcilerState,
    cluster: ClusterState,
    decisions: Mapping[str, GroupDecision],
    why: tuple[Diagnosis, ...],
) -> PatchPlan:
    """The patch for these decisions; empty while the autoscaler is paused."""
    current = cluster.current
    if current.is_paused:
        return PatchPlan()
    text = _record_text(current, decisions, why, snapshot)
    record = parse_record(text)
    change = change_between(current, _decisions_as_read(decisions, record), why if record is None else record.why)
    since_s = since_last_write_s(current, state.written_at_s, snapshot.monotonic_s, snapshot.now)
    message_delay_s = (
        _message_delay_s(cluster.registered_s, since_s, snapshot.monotonic_s) if change is Change.MESSAGE else 0.0
    )
    waits_s = max(wait_s(change, since_s), message_delay_s)
    if change is Change.NONE or waits_s > 0:
        return PatchPlan(change, wait_s=waits_s)
    return PatchPlan(change, build_patch(snapshot.cluster, _changes(current, decisions), text), record)


def patch_now(
    snapshot: Snapshot, current: CurrentTargets, decisions: Mapping[str, GroupDecision], why: tuple[Diagnosis, ...]
) -> tuple[Operation, ...]:
    """The patch that writes these decisions and their record now."""
    return build_patch(snapshot.cluster, _changes(current, decisions), _record_text(current, decisions, why, snapshot))


def _changes(current: CurrentTargets, decisions: Mapping[str, GroupDecision]) -> list[GroupChange]:
    """Spec changes for the decisions; an absent `replicas` whose default equals the decision stays absent."""
    changes = []
    for group in (target.group for target in current.targets):
        decision = decisions.get(group.name)
        if decision is not None:
            is_default = group.replicas is None and group.spec_replicas == decision.replicas
            is_unchanged = group.is_suspended or is_default
            changes.append(GroupChange(group, None if is_unchanged else decision.replicas, decision.delete))
    return changes


def _record_text(
    current: CurrentTargets, decisions: Mapping[str, GroupDecision], why: tuple[Diagnosis, ...], snapshot: Snapshot
) -> str | None:
    if not current.is_recorded:
        return None
    at = snapshot.now.replace(microsecond=0)
    return encode_record(DecisionRecord(snapshot.cluster["metadata"]["uid"], current.head, at, decisions, why))


def _decisions_as_read(
    decisions: Mapping[str, GroupDecision], record: DecisionRecord | None
) -> dict[str, GroupDecision]:
    """The decisions as decoded from the record: long texts are truncated, and a truncation is no change of decision."""
    read = {} if record is None else record.groups
    return {
        name: _decision_as_read(decision, read[name]) if name in read else decision
        for name, decision in decisions.items()
    }


def _decision_as_read(decision: GroupDecision, read: GroupDecision) -> GroupDecision:
    """Names of a group in the spec are also stored there, so they are not truncated."""
    delete = decision.delete if decision.deadline is None else read.delete
    return replace(decision, why=read.why, backoff=read.backoff, delete=delete)


# --- when it is written -----------------------------------------------------------------------------------------------


def change_between(
    current: CurrentTargets, decisions: Mapping[str, GroupDecision], why: tuple[Diagnosis, ...] = ()
) -> Change:
    """The most urgent change of any group; `why` are the reasons that concern no single group."""
    found = {
        _change_of(target, decisions[target.group.name], is_recorded=current.is_recorded)
        for target in current.targets
        if target.group.name in decisions
    }
    found |= {
        Change.DECISION
        for name, decision in decisions.items()
        if decision.deadline and _is_record_outdated(current, name, decision)
    }
    if current.is_recorded:
        if current.is_record_foreign:
            return Change.DECISION
        if why != current.why:
            found.add(Change.MESSAGE)
    return next(
        (change for change in (Change.DECISION, Change.CONFLICT, Change.MESSAGE) if change in found), Change.NONE
    )


def wait_s(change: Change, since_last_s: float | None) -> float:
    """Seconds that change still has to wait; 0: write now."""
    if since_last_s is None or change is Change.NONE:
        return 0.0
    return max(0.0, PAUSE_S[change] - since_last_s)


def since_last_write_s(
    current: CurrentTargets, written_at_s: float | None, monotonic_s: float, now: datetime
) -> float | None:
    """Seconds since this cluster's autoscaler last wrote; None if unknown or the record's time is in the future."""
    if written_at_s is not None:
        return monotonic_s - written_at_s
    if current.record is None or current.record.at is None:
        return None
    age_s = (now - current.record.at).total_seconds()
    return age_s if age_s >= 0 else None


def _is_record_outdated(current: CurrentTargets, name: str, decision: GroupDecision) -> bool:
    """Whether the record of a group removed from the spec must be updated."""
    before = None if current.record is None else current.record.groups.get(name)
    return before is None or before.deadline != decision.deadline or set(before.delete) != set(decision.delete)


def _change_of(current: CurrentTarget, decision: GroupDecision, *, is_recorded: bool) -> Change:
    group, before = current.group, current.decision
    if (decision.replicas, decision.adopted_replicas, decision.backoff) != (
        before.replicas,
        before.adopted_replicas,
        before.backoff,
    ):
        return Change.DECISION
    if set(decision.delete) != set(current.names_to_delete):
        return Change.DECISION
    if group.spec_replicas != group.clamp(decision.replicas) or set(decision.delete) != set(
        group.workers_to_delete or ()
    ):
        return Change.CONFLICT
    return Change.MESSAGE if is_recorded and decision.why != before.why else Change.NONE


def _message_delay_s(registered_s: Mapping[str, float], since_last_s: float | None, now_s: float) -> float:
    """How long reasons are delayed because the demand is unsettled after nodes joined.

    Otherwise reasons would be removed and written again while nodes join, and after a restart, when all nodes are new
    (RM:I19). Nodes that join one after the other delay them only for `MAX_MESSAGE_DELAY_S`.
    """
    settled_s = DEMAND_LAG_S - now_s
    is_overdue = since_last_s is not None and since_last_s >= MAX_MESSAGE_DELAY_S
    first_seen_s = min if is_overdue else max
    return max(0.0, first_seen_s(registered_s.values(), default=now_s) + settled_s)
