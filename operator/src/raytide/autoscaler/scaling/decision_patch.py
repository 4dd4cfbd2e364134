"""Patch of one tick: whether the decisions are written now, and the patch with their record.

Takes the targets in force and the decisions of all groups. Returns the patch, or how long it must wait. It composes
write_throttle.py, json_patch.py and the decision record (contract, "The decision record"). Called by
autoscaler/reconcile.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from raytide.api.autoscaler_decision import DecisionRecord, GroupDecision, Why, encode_record, parse_record
from raytide.autoscaler.scaling.json_patch import GroupChange, build_patch
from raytide.autoscaler.scaling.write_throttle import Change, change_between, since_last_write_s, wait_s
from raytide.autoscaler.state.cluster_state import DEMAND_LAG_S, ClusterState
from raytide.autoscaler.state.current_targets import CurrentTargets
from raytide.autoscaler.state.snapshot import Operation, ReconcilerState, Snapshot

LONGEST_DOUBT_S: Final = 30.0
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
    why: tuple[Why, ...],
) -> PatchPlan:
    """The patch for these decisions; empty while the autoscaler is paused."""
    current = cluster.current
    if current.is_paused:
        return PatchPlan()
    text = _record_text(current, decisions, why, snapshot)
    record = parse_record(text)
    change = change_between(current, _as_read(decisions, record), why if record is None else record.why)
    since_s = since_last_write_s(current, state.wrote_s, snapshot.monotonic_s, snapshot.now)
    doubt_s = _doubt_s(cluster.joined_s, since_s, snapshot.monotonic_s) if change is Change.MESSAGE else 0.0
    waits_s = max(wait_s(change, since_s), doubt_s)
    if change is Change.NONE or waits_s > 0:
        return PatchPlan(change, wait_s=waits_s)
    return PatchPlan(change, build_patch(snapshot.cluster, _changes(current, decisions), text), record)


def patch_now(
    snapshot: Snapshot, current: CurrentTargets, decisions: Mapping[str, GroupDecision], why: tuple[Why, ...]
) -> tuple[Operation, ...]:
    """The patch that writes these decisions and their record now."""
    return build_patch(snapshot.cluster, _changes(current, decisions), _record_text(current, decisions, why, snapshot))


def _doubt_s(joined_s: Mapping[str, float], since_last_s: float | None, now_s: float) -> float:
    """How long reasons are delayed because the demand is unsettled after nodes joined.

    Otherwise reasons would be removed and written again while nodes join, and after a restart, when all nodes are new
    (RM:I19). Nodes that join one after the other delay them only for `LONGEST_DOUBT_S`.
    """
    settled_s = DEMAND_LAG_S - now_s
    is_put_off = since_last_s is not None and since_last_s >= LONGEST_DOUBT_S
    first_seen_s = min if is_put_off else max
    return max(0.0, first_seen_s(joined_s.values(), default=now_s) + settled_s)


def _changes(current: CurrentTargets, decisions: Mapping[str, GroupDecision]) -> list[GroupChange]:
    """Spec changes for the decisions; an absent `replicas` whose default equals the decision stays absent."""
    changes = []
    for group in (target.group for target in current.targets):
        decision = decisions.get(group.name)
        if decision is not None:
            is_understood = group.replicas is None and group.spec_replicas == decision.replicas
            is_left = group.is_suspended or is_understood
            changes.append(GroupChange(group, None if is_left else decision.replicas, decision.delete))
    return changes


def _record_text(
    current: CurrentTargets, decisions: Mapping[str, GroupDecision], why: tuple[Why, ...], snapshot: Snapshot
) -> str | None:
    if not current.is_recorded:
        return None
    at = snapshot.now.replace(microsecond=0)
    return encode_record(DecisionRecord(snapshot.cluster["metadata"]["uid"], current.head, at, decisions, why))


def _as_read(decisions: Mapping[str, GroupDecision], record: DecisionRecord | None) -> dict[str, GroupDecision]:
    """The decisions as decoded from the record: long texts are truncated, and a truncation is no change of decision."""
    read = {} if record is None else record.groups
    return {
        name: _as_one_reads(decision, read[name]) if name in read else decision for name, decision in decisions.items()
    }


def _as_one_reads(decision: GroupDecision, read: GroupDecision) -> GroupDecision:
    """Names of a group in the spec are also stored there, so they are not truncated."""
    delete = decision.delete if decision.deadline is None else read.delete
    return replace(decision, why=read.why, backoff=read.backoff, delete=delete)
