"""Is there anything to write, and is it time?

Takes the order that stands and the one decided now, gives what kind of change lies between them and how long to wait: a
change of mind at least 2 s after the last write, the same order against another writer's at least 10 s, other words alone
at least 10 s, and nothing at all when nothing changed (contract, "Written only on a change of mind"). After a restart the
time in the record stands in for memory. Called by tick.py.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

from raytide.api.scaling import GroupDecision, Why
from raytide.autoscaler.inputs.spec_groups import SpecGroup
from raytide.autoscaler.ordering.standing import Standing


class Change(StrEnum):
    """What lies between what stands and what was decided."""

    NONE = "none"
    MIND = "mind"
    RIVAL = "rival"
    """Our mind is the same, the spec says something else."""
    WORDS = "words"


PAUSE_S: Final[Mapping[Change, float]] = {Change.MIND: 2.0, Change.RIVAL: 10.0, Change.WORDS: 10.0}


def change_between(standing: Standing, orders: Mapping[str, GroupDecision], why: tuple[Why, ...] = ()) -> Change:
    """The most pressing change of any group; `why` are the reasons that concern none of them."""
    found = {_change_of(standing, group, orders[group.name]) for group in standing.groups if group.name in orders}
    found |= {Change.MIND for name, order in orders.items() if order.deadline and _has_news(standing, name, order)}
    if standing.is_recorded:
        if standing.is_record_foreign:
            return Change.MIND
        if why != standing.why:
            found.add(Change.WORDS)
    return next((change for change in (Change.MIND, Change.RIVAL, Change.WORDS) if change in found), Change.NONE)


def is_lowering_pending(standing: Standing, group: SpecGroup, order: GroupDecision) -> bool:
    """Whether an operator would still replace what leaves the group: then nobody may be drained yet (B-28)."""
    return standing.replicas(group) > order.replicas


def wait_s(change: Change, since_last_s: float | None) -> float:
    """How long that change has to wait; 0 for now."""
    if since_last_s is None or change is Change.NONE:
        return 0.0
    return max(0.0, PAUSE_S[change] - since_last_s)


def since_last_write_s(standing: Standing, wrote_s: float | None, monotonic_s: float, now: datetime) -> float | None:
    """Seconds since we wrote last, as far as anybody knows; a record from the future says nothing."""
    if wrote_s is not None:
        return monotonic_s - wrote_s
    if standing.record is None or standing.record.at is None:
        return None
    age_s = (now - standing.record.at).total_seconds()
    return age_s if age_s >= 0 else None


def _has_news(standing: Standing, name: str, order: GroupDecision) -> bool:
    """Whether the record has to say something new about a group that has left the spec."""
    before = None if standing.record is None else standing.record.groups.get(name)
    return before is None or before.deadline != order.deadline or set(before.delete) != set(order.delete)


def _change_of(standing: Standing, group: SpecGroup, order: GroupDecision) -> Change:
    before = standing.decision(group)
    if (order.replicas, order.foreign, order.backoff) != (before.replicas, before.foreign, before.backoff):
        return Change.MIND
    if set(order.delete) != set(standing.named(group)):
        return Change.MIND
    if group.standing_replicas != group.clamp(order.replicas) or set(order.delete) != set(
        group.workers_to_delete or ()
    ):
        return Change.RIVAL
    return Change.WORDS if standing.is_recorded and order.why != before.why else Change.NONE
