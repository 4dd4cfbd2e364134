"""What comes out of a plan about one TrainingJob?

`Plan` holds the writes in order, what to say besides, and when to look again; the slots are the names under which
refusals of anything but pods are remembered. Values only; steps in plan.py make them, the controller carries them out.
"""

from dataclasses import dataclass, field
from typing import Final

from raytide.api.actions import Action, Remark
from raytide.api.config import JobConfig
from raytide.api.faults import Violation

SERVICE_SLOT: Final = "(service)"
"""The `group` under which a refused service is remembered; pods have their role."""
MEMBERSHIP_SLOT: Final = "(membership)"
JOB_SLOT: Final = "(job)"
SOON_S: Final = 0.5
"""When the next step waits for the status to be written, and the status for its half second (D8)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Writes in order, what to say besides, and when to look again even if nothing happens."""

    actions: tuple[Action, ...] = ()
    remarks: tuple[Remark, ...] = ()
    violations: tuple[Violation, ...] = ()
    unwanted: frozenset[str] = frozenset()
    """Names of pods in flight that nobody wants any more: to be looked for, not asked for again."""
    look_again_in: float | None = None
    is_reported: bool = True
    """False when the job's status is not ours to write now."""
    is_gang_late: bool = False
    """Whether a gang gives its room back; the status says so before any of its pods goes."""
    config: JobConfig = field(default_factory=JobConfig)
    """With which settings it was made: the status is computed with the same."""
    is_last: bool = False
    """Set by a step after which no other may follow."""
    is_continued: bool = False
    """Set by a step whose writes open the way for more: look again as soon as they are done."""

    def __add__(self, later: "Plan") -> "Plan":
        """One step after another."""
        return Plan(
            actions=self.actions + later.actions,
            remarks=self.remarks + later.remarks,
            violations=self.violations + later.violations,
            unwanted=self.unwanted | later.unwanted,
            look_again_in=sooner(self.look_again_in, later.look_again_in),
            is_reported=self.is_reported and later.is_reported,
            is_gang_late=self.is_gang_late or later.is_gang_late,
            is_last=later.is_last,
            is_continued=self.is_continued or later.is_continued,
        )


NOTHING: Final = Plan()


def sooner(one: float | None, other: float | None) -> float | None:
    """The nearer of two deadlines, either of which may be missing."""
    return min((deadline for deadline in (one, other) if deadline is not None), default=None)
