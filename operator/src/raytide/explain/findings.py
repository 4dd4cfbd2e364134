"""Findings about one workload, before they are sorted and bounded, and what both kinds need to make them.

Called by raycluster.py and trainingjob.py, which return `Findings`, and by explain.py, which makes an `Explanation` of them.
"""

from dataclasses import dataclass

from raytide.api.remedies import Facts, Stage, remedy_of
from raytide.api.sharing_record import ResizeNote
from raytide.explain.model import Blocker, GroupLine, PodLine, StageLine


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything about one workload, unbounded and in the order in which it was found."""

    blockers: tuple[Blocker, ...] = ()
    groups: tuple[GroupLine, ...] = ()
    stages: tuple[StageLine, ...] = ()
    pods: tuple[PodLine, ...] = ()
    notes: tuple[str, ...] = ()
    summary: str = ""
    """How many of the wanted pods are ready."""
    wanted: int = 0
    """Wanted workers or trainers."""
    ready: int = 0
    """Ready workers, or trainers that run."""
    resizes: tuple[ResizeNote, ...] = ()
    """The last resizes of a TrainingJob, oldest first."""
    is_over: bool = False
    """Whether the workload has ended and lacks nothing any more."""


def blocker(
    reason: str,
    facts: Facts,
    *,
    stage: Stage | None = None,
    count: int = 0,
    since: str = "",
    is_permanent: bool | None = None,
) -> Blocker:
    """The blocker with the remedy of that reason; `stage` and `is_permanent` override the table."""
    remedy = remedy_of(reason)
    return Blocker(
        stage=stage or remedy.stage,
        reason=reason,
        message=facts.message,
        group=facts.group,
        count=count,
        since=since,
        holder=remedy.holder_in(facts),
        cure=remedy.cure_in(facts),
        is_permanent=remedy.is_permanent if is_permanent is None else is_permanent,
        stops_all=remedy.stops_all,
    )
