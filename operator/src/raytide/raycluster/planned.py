"""What does a plan consist of?

A frozen value: writes in order, what to say besides, when to look again, and what whoever carries it out has to know.
Several of them, one per step, are joined into one. Made by plan.py, read by the controller and by status.py; D5, D7.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from raytide.api.actions import Action, Remark
from raytide.api.faults import Violation


@dataclass(frozen=True, slots=True)
class Plan:
    """Writes in order, what to say besides, and when to look again even if nothing happens."""

    actions: tuple[Action, ...] = ()
    remarks: tuple[Remark, ...] = ()
    violations: tuple[Violation, ...] = ()
    unprotected: tuple[Violation, ...] = ()
    """Why no pod is made although the spec is valid: the protection that it asks for cannot be given (FD:RC-B3)."""
    unwanted: frozenset[str] = frozenset()
    """Names of pods in flight that nobody wants any more: to be looked for, not asked for again."""
    given_up: frozenset[str] = frozenset()
    """Groups in which a multi-host replica goes because the API refuses the rest of it."""
    needs_no_replica: frozenset[str] = frozenset()
    """Groups of several hosts with all the replicas that they want: what held the next one back is void."""
    look_again_in: float | None = None
    is_reported: bool = True
    """False when the cluster's status is not ours to write now."""
    is_last: bool = False
    """Set by a step after which no other may follow."""
    is_continued: bool = False
    """Set by a step whose writes open the way for more: look again as soon as they are done."""
    has_more: bool = False
    """Set where the budget of creates ended before everything was listed: the next pass goes on."""
    is_status_gated: bool = False
    """Set where the next writes wait for what this pass stores in status: look again as soon as it is stored."""

    def __add__(self, later: "Plan") -> "Plan":
        """One step after another."""
        return joined((self, later))


NOTHING: Final = Plan()


def joined(plans: Sequence[Plan]) -> Plan:
    """Several steps one after another, each of them copied once."""
    if not plans:
        return NOTHING
    return Plan(
        actions=tuple(action for each in plans for action in each.actions),
        remarks=tuple(remark for each in plans for remark in each.remarks),
        violations=tuple(fault for each in plans for fault in each.violations),
        unprotected=tuple(fault for each in plans for fault in each.unprotected),
        unwanted=frozenset[str]().union(*(each.unwanted for each in plans)),
        given_up=frozenset[str]().union(*(each.given_up for each in plans)),
        needs_no_replica=frozenset[str]().union(*(each.needs_no_replica for each in plans)),
        look_again_in=min((each.look_again_in for each in plans if each.look_again_in is not None), default=None),
        is_reported=all(each.is_reported for each in plans),
        is_last=plans[-1].is_last,
        is_continued=any(each.is_continued for each in plans),
        has_more=any(each.has_more for each in plans),
        is_status_gated=any(each.is_status_gated for each in plans),
    )


def sooner(one: float | None, other: float | None) -> float | None:
    """The nearer of two deadlines, either of which may be missing."""
    return min((deadline for deadline in (one, other) if deadline is not None), default=None)
