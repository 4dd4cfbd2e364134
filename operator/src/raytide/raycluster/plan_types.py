"""Plan of a reconcile as a frozen value.

It holds the writes in order, the events to emit, the requeue delay, and flags for the reconciler that carries it out.
The plans of the steps are joined into one. Made by plan.py, read by the reconciler and by status.py; D5, D7.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from raytide.api.actions import Action, EventSpec
from raytide.api.violations import Violation


@dataclass(frozen=True, slots=True)
class Plan:
    """Writes in order, events to emit, and the requeue delay in seconds when no watch event comes before."""

    actions: tuple[Action, ...] = ()
    events: tuple[EventSpec, ...] = ()
    violations: tuple[Violation, ...] = ()
    unprotected: tuple[Violation, ...] = ()
    """Why no pod is created although the spec is valid: protection that it asks for is not available (FD:RC-B3)."""
    unwanted: frozenset[str] = frozenset()
    """Names of pods in flight that are no longer wanted: their creates are checked by a read, not repeated."""
    given_up: frozenset[str] = frozenset()
    """Groups in which a multi-host replica is deleted because the API server rejects its other hosts."""
    needs_no_replica: frozenset[str] = frozenset()
    """Multi-host groups that have all the replicas they want: the backoff of their next replica is reset."""
    requeue_after_s: float | None = None
    is_reported: bool = True
    """False when this controller must not write the cluster's status."""
    is_last: bool = False
    """Set by a step after which no other may follow."""
    is_continued: bool = False
    """Set by a step whose writes allow further writes: requeue as soon as they are done."""
    has_more: bool = False
    """Set when the budget of creates did not suffice: the next reconcile continues."""
    is_status_gated: bool = False
    """Set when the next writes wait for this reconcile's status patch: requeue as soon as it is stored."""

    def __add__(self, later: "Plan") -> "Plan":
        """This plan followed by `later`."""
        return joined((self, later))


NOTHING: Final = Plan()


def joined(plans: Sequence[Plan]) -> Plan:
    """Several plans in sequence as one plan."""
    if not plans:
        return NOTHING
    return Plan(
        actions=tuple(action for each in plans for action in each.actions),
        events=tuple(remark for each in plans for remark in each.events),
        violations=tuple(fault for each in plans for fault in each.violations),
        unprotected=tuple(fault for each in plans for fault in each.unprotected),
        unwanted=frozenset[str]().union(*(each.unwanted for each in plans)),
        given_up=frozenset[str]().union(*(each.given_up for each in plans)),
        needs_no_replica=frozenset[str]().union(*(each.needs_no_replica for each in plans)),
        requeue_after_s=min((each.requeue_after_s for each in plans if each.requeue_after_s is not None), default=None),
        is_reported=all(each.is_reported for each in plans),
        is_last=plans[-1].is_last,
        is_continued=any(each.is_continued for each in plans),
        has_more=any(each.has_more for each in plans),
        is_status_gated=any(each.is_status_gated for each in plans),
    )


def earliest(one: float | None, other: float | None) -> float | None:
    """The earlier of two delays, either of which may be None."""
    return min((deadline for deadline in (one, other) if deadline is not None), default=None)
