"""Plan of a TrainingJob as a frozen value.

It adds to api/plan.py what only a TrainingJob has; the slots are the groups under which rejections of objects other
than pods are stored. Made by the steps in plan.py, read by the reconciler and by status.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

from raytide.api.config import JobConfig
from raytide.api.plan import Plan

SERVICE_SLOT: Final = "(service)"
"""The `group` under which a rejected service is stored; pods have their role."""
MEMBERSHIP_SLOT: Final = "(membership)"
ANNOUNCEMENT_SLOT: Final = "(announcement)"
JOB_SLOT: Final = "(job)"
SOON_S: Final = 0.5
"""Requeue delay in seconds when the next step waits for a status patch, at most one per half second (D8)."""


@dataclass(frozen=True)
class TrainingJobPlan(Plan):
    """The writes, events and flags of a TrainingJob's pass."""

    is_gang_late: bool = False
    """Whether the job did not start in time and releases its capacity; stored in status before pods are deleted."""
    config: JobConfig = field(default_factory=JobConfig)
    """The settings with which it was made: the status is computed with the same."""

    @classmethod
    def joined(cls, plans: Sequence[Self]) -> Self:
        """Several plans in sequence as one plan, with the settings of the first."""
        return replace(
            super().joined(plans), is_gang_late=any(each.is_gang_late for each in plans), config=plans[0].config
        )


NOTHING: Final = TrainingJobPlan()
