"""What did the sharing pass decide for one job, and why?

The record it writes beside `spec.trainer.replicas`, in the same patch, as one annotation: whether the job may begin, why
it waits, and its last resizes. The job's own passes obey it and put its words into conditions, events and status, so that
neither side needs a memory (as D19). Reading forgives everything: unknown fields are skipped, nonsense is no record.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

MAX_RESIZES: Final = 10


@dataclass(frozen=True, slots=True)
class ResizeNote:
    """One resize that was ordered: TJ §8 `scaling.history`."""

    at: datetime
    before: int
    after: int
    reason: str
    """A reason of elastic/model.py, or `Requested` where somebody else wrote `replicas`."""
    message: str = ""
    for_job: str = ""
    """namespace/name of the job for which it was taken."""


@dataclass(frozen=True, slots=True)
class WaitingNote:
    """Why the job is below its minimum, or not larger."""

    reason: str
    message: str
    is_below_minimum: bool = True


@dataclass(frozen=True, slots=True)
class SharingRecord:
    """The whole record; `uid` is the job's, so that a record copied with a manifest means nothing."""

    uid: str
    replicas: int
    """What was ordered last; another number in the spec is somebody else's request (TJ §3 row 21)."""
    pservers: int | None = None
    """How many go with them under `Ratio`; None: the spec's minimum."""
    is_admitted: bool = False
    """Whether a gang may begin; others begin without."""
    admitted_at: datetime | None = None
    """When `is_admitted` was ordered last. A gang that gave its room back later than that is not admitted any more, and
    needs a new order (api/job_admission.py)."""
    waiting: WaitingNote | None = None
    resizes: tuple[ResizeNote, ...] = ()
    """The last ten, oldest first."""
    at: datetime | None = None
    """When something in it changed last (whole seconds)."""
