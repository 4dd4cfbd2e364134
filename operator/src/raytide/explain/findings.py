"""Findings about one workload, before they are sorted and bounded, and what both kinds need to make them.

Called by raycluster.py and trainingjob.py, which return `Findings`, and by explain.py, which makes an `Explanation` of them.
"""

from dataclasses import dataclass, field

from raytide.api.base_model import ObjectMeta
from raytide.api.sharing_record import ResizeNote
from raytide.diagnosis.catalogue import TERMINATING, entry_of
from raytide.diagnosis.model import Diagnosis, Workload
from raytide.diagnosis.render import fix_of, holder_of, text_of
from raytide.explain import messages
from raytide.explain.model import Blocker, GroupLine, Need, PodLine, Size, StageLine


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
    size: Size = field(default_factory=Size)
    needs: tuple[Need, ...] = ()
    """Pods without a node; only where `Objects.cluster` is known."""
    resizes: tuple[ResizeNote, ...] = ()
    """The last resizes of a TrainingJob, oldest first."""


def terminating(metadata: ObjectMeta) -> Diagnosis:
    """The object is being deleted, and what still has to happen."""
    holder = f"finalizers {', '.join(metadata.finalizers)}" if metadata.finalizers else "the garbage collector"
    return Diagnosis(TERMINATING, message=messages.terminating()).having(holder=holder)


def blocker(
    found: Diagnosis,
    of: Workload,
    *,
    since: str = "",
    is_permanent: bool | None = None,
) -> Blocker:
    """The diagnosis with holder and fix; `is_permanent` overrides the catalogue."""
    entry = entry_of(found.reason)
    return Blocker(
        stage=found.stage or entry.stage,
        reason=found.reason,
        message=text_of(found),
        group=found.group,
        count=found.count,
        since=since,
        holder=holder_of(found, of),
        fix=fix_of(found, of),
        is_permanent=entry.is_permanent if is_permanent is None else is_permanent,
        stops_all=entry.stops_all,
        parameters=found.parameters,
    )
