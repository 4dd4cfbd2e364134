"""Plan of a TrainingJob as a frozen value.

`Plan` holds the writes in order, the events to emit and the requeue delay; the slots are the groups under which
rejections of objects other than pods are stored. Made by the steps in plan.py, carried out by the reconciler.
"""

from dataclasses import dataclass, field
from typing import Final

from raytide.api.actions import Action, EventSpec
from raytide.api.config import JobConfig
from raytide.api.violations import Violation

SERVICE_SLOT: Final = "(service)"
"""The `group` under which a rejected service is stored; pods have their role."""
MEMBERSHIP_SLOT: Final = "(membership)"
JOB_SLOT: Final = "(job)"
SOON_S: Final = 0.5
"""Requeue delay in seconds when the next step waits for a status patch, at most one per half second (D8)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Writes in order, events to emit, and the requeue delay in seconds when no watch event comes before."""

    actions: tuple[Action, ...] = ()
    events: tuple[EventSpec, ...] = ()
    violations: tuple[Violation, ...] = ()
    unwanted: frozenset[str] = frozenset()
    """Names of pods in flight that are no longer wanted: their creates are checked by a read, not repeated."""
    requeue_after_s: float | None = None
    is_reported: bool = True
    """False when this controller must not write the job's status."""
    is_gang_late: bool = False
    """Whether the job did not start in time and releases its capacity; stored in status before pods are deleted."""
    config: JobConfig = field(default_factory=JobConfig)
    """The settings with which it was made: the status is computed with the same."""
    is_last: bool = False
    """Set by a step after which no other may follow."""
    is_continued: bool = False
    """Set by a step whose writes allow further writes: requeue as soon as they are done."""

    def __add__(self, later: "Plan") -> "Plan":
        """This plan followed by `later`."""
        return Plan(
            actions=self.actions + later.actions,
            events=self.events + later.events,
            violations=self.violations + later.violations,
            unwanted=self.unwanted | later.unwanted,
            requeue_after_s=earliest(self.requeue_after_s, later.requeue_after_s),
            is_reported=self.is_reported and later.is_reported,
            is_gang_late=self.is_gang_late or later.is_gang_late,
            is_last=later.is_last,
            is_continued=self.is_continued or later.is_continued,
        )


NOTHING: Final = Plan()


def earliest(one: float | None, other: float | None) -> float | None:
    """The earlier of two delays, either of which may be None."""
    return min((deadline for deadline in (one, other) if deadline is not None), default=None)
