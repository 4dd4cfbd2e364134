"""Throttle for writes to the RayCluster.

Takes the targets in force and the new decisions, and returns the kind of change between them and how long it must wait:
a new decision at least 2 s after the last write, an unchanged decision against another writer's spec at least 10 s,
reasons alone at least 10 s; without a change nothing is written (contract, "Written only on a change of mind"). After a
restart the record's time replaces the time of the last write. Called by decision_patch.py.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

from raytide.api.autoscaler_decision import GroupDecision, Why
from raytide.autoscaler.state.current_targets import CurrentTarget, CurrentTargets


class Change(StrEnum):
    """Kind of change between the targets in force and the new decisions."""

    NONE = "none"
    DECISION = "mind"
    CONFLICT = "rival"
    """The decision is unchanged, but the spec differs from it."""
    MESSAGE = "words"


PAUSE_S: Final[Mapping[Change, float]] = {Change.DECISION: 2.0, Change.CONFLICT: 10.0, Change.MESSAGE: 10.0}


def change_between(
    current: CurrentTargets, decisions: Mapping[str, GroupDecision], why: tuple[Why, ...] = ()
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
        if decision.deadline and _has_news(current, name, decision)
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
    current: CurrentTargets, wrote_s: float | None, monotonic_s: float, now: datetime
) -> float | None:
    """Seconds since this cluster's autoscaler last wrote; None if unknown or the record's time is in the future."""
    if wrote_s is not None:
        return monotonic_s - wrote_s
    if current.record is None or current.record.at is None:
        return None
    age_s = (now - current.record.at).total_seconds()
    return age_s if age_s >= 0 else None


def _has_news(current: CurrentTargets, name: str, decision: GroupDecision) -> bool:
    """Whether the record of a group removed from the spec must be updated."""
    before = None if current.record is None else current.record.groups.get(name)
    return before is None or before.deadline != decision.deadline or set(before.delete) != set(decision.delete)


def _change_of(current: CurrentTarget, decision: GroupDecision, *, is_recorded: bool) -> Change:
    group, before = current.group, current.decision
    if (decision.replicas, decision.foreign, decision.backoff) != (before.replicas, before.foreign, before.backoff):
        return Change.DECISION
    if set(decision.delete) != set(current.named):
        return Change.DECISION
    if group.spec_replicas != group.clamp(decision.replicas) or set(decision.delete) != set(
        group.workers_to_delete or ()
    ):
        return Change.CONFLICT
    return Change.MESSAGE if is_recorded and decision.why != before.why else Change.NONE
