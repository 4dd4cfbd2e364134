"""Findings about one workload, before they are sorted and bounded, and what both kinds need to make them.

Called by raycluster.py and trainingjob.py, which return `Findings`, and by explain.py, which makes an `Explanation` of them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from raytide.api.pod import ManagedPod
from raytide.api.pod_failure import failure_of
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


def failing_pod(pods: Iterable[ManagedPod]) -> str:
    """The pod to look at: one with a known failure, else one that is not ready; empty if all are."""
    unready = [pod for pod in pods if not pod.is_terminating and not pod.is_running_and_ready]
    failing = next((pod for pod in unready if failure_of(pod) is not None), None)
    found = failing or (unready[0] if unready else None)
    return found.name if found is not None else ""
