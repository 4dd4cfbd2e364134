"""Plan of a pass as a frozen value.

It holds the writes in order, the events to emit, the requeue delay, and flags for the reconciler that carries it out.
Each step of a kind's plan returns one, and `run_steps` joins them. Subclasses add what only one kind has. Made by the
plan.py of each kind, carried out by controller/reconciler.py; D5, D7.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

from raytide.api.actions import Action, Delete, EventSpec, PendingRetry
from raytide.api.violations import Violation


@dataclass(frozen=True)
class Plan:
    """Writes in order, events to emit, and the requeue delay in seconds when no watch event comes before."""

    actions: tuple[Action, ...] = ()
    events: tuple[EventSpec, ...] = ()
    violations: tuple[Violation, ...] = ()
    unwanted: frozenset[str] = frozenset()
    """Names of pods in flight that are no longer wanted: their creates are checked by a read, not repeated."""
    requeue_after_s: float | None = None
    is_reported: bool = True
    """False when this controller must not write the object's status."""
    is_last: bool = False
    """Set by a step after which no other may follow."""
    is_continued: bool = False
    """Set by a step whose writes allow further writes: requeue as soon as they are done."""
    has_more: bool = False
    """Set when the budget of creates did not suffice: the next pass continues."""
    is_status_gated: bool = False
    """Set when the next writes wait for this pass's status patch: requeue as soon as it is stored."""

    @property
    def may_create(self) -> bool:
        """Whether creates in flight may be repeated; deletes that were begun are finished in any case."""
        return not self.violations

    @classmethod
    def joined(cls, plans: Sequence[Self]) -> Self:
        """Several plans in sequence as one plan."""
        return cls(
            actions=tuple(action for each in plans for action in each.actions),
            events=tuple(event for each in plans for event in each.events),
            violations=tuple(violation for each in plans for violation in each.violations),
            unwanted=frozenset[str]().union(*(each.unwanted for each in plans)),
            requeue_after_s=earliest(*(each.requeue_after_s for each in plans)),
            is_reported=all(each.is_reported for each in plans),
            is_last=any(each.is_last for each in plans),
            is_continued=any(each.is_continued for each in plans),
            has_more=any(each.has_more for each in plans),
            is_status_gated=any(each.is_status_gated for each in plans),
        )

    def __add__(self, later: Self) -> Self:
        """This plan followed by `later`."""
        return self.joined((self, later))

    @classmethod
    def unless_rejected(cls, rejection: PendingRetry | None, writes: Callable[[], Iterable[Action]]) -> Self:
        """The writes, or only a requeue delay while the backoff of their group after a rejection lasts."""
        return cls(actions=tuple(writes())) if rejection is None else cls(requeue_after_s=rejection.retry_in_s)

    @classmethod
    def deleting(cls, deletes: Iterable[Delete]) -> Self:
        """Deletes of pods that exist; a pod whose create has no response yet has no uid and is only listed as unwanted."""
        chosen = tuple(deletes)
        return cls(
            actions=tuple(delete for delete in chosen if delete.uid),
            unwanted=frozenset(delete.name for delete in chosen if not delete.uid),
        )


C = TypeVar("C")
P = TypeVar("P", bound=Plan)


def run_steps(steps: Sequence[Callable[[C], P]], context: C) -> P:
    """Run the steps in order until one is the last, and join their plans."""
    plans: list[P] = []
    for step in steps:
        plans.append(step(context))
        if plans[-1].is_last:
            break
    return plans[0].joined(plans)


def earliest(*delays_s: float | None) -> float | None:
    """The earliest of the delays, each of which may be None."""
    return min((delay_s for delay_s in delays_s if delay_s is not None), default=None)
