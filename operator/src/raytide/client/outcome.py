"""What the client returns: the status of a workload, why it is not larger, and its errors.

Values without I/O, with a representation for notebooks. Made by workloads.py.
"""

from dataclasses import dataclass
from html import escape

from raytide.explain.model import Blocker, Explanation, Verdict
from raytide.explain.overview import Lane


class WorkloadError(Exception):
    """A workload could not be read, written or waited for; the message names it, the cause and the fix."""


class NotFoundError(WorkloadError):
    """The workload does not exist."""


class WorkloadFailedError(WorkloadError):
    """The workload failed, or was deleted, while it was waited for."""


class WaitTimeoutError(WorkloadError, TimeoutError):
    """The workload was not there in time; the message has the first blocker."""


@dataclass(frozen=True, slots=True)
class Status:
    """Size and state of a workload at one time."""

    kind: str
    namespace: str
    name: str
    phase: str
    """`status.state` of a RayCluster, `status.phase` of a TrainingJob; empty before the first status."""
    wanted: int
    """Wanted workers or trainers."""
    ready: int
    """Ready workers, or trainers that run."""
    is_ready: bool
    """Whether the head and all wanted workers are ready, or the trainers of the minimum run."""
    is_finished: bool
    """Whether a TrainingJob has succeeded or failed."""
    reason: str
    """Reason of the first blocker; empty if nothing is missing."""
    message: str

    def __str__(self) -> str:
        """One line."""
        lane = f"{self.kind} {self.namespace}/{self.name}: {self.ready} of {self.wanted} ready"
        return f"{lane}, {self.phase or 'no status yet'}" + (f", {self.reason}: {self.message}" if self.reason else "")

    def _repr_html_(self) -> str:
        share = 100 if self.wanted == 0 else min(100, round(100 * self.ready / self.wanted))
        bar = (
            '<div style="width:16em;height:.8em;border:1px solid #8888;border-radius:3px;display:inline-block">'
            f'<div style="width:{share}%;height:100%;background:#5b8def"></div></div>'
        )
        name = f"<b>{escape(self.namespace)}/{escape(self.name)}</b> {escape(self.kind)}"
        reason = f"<br>{escape(self.reason)}: {escape(self.message)}" if self.reason else ""
        return f"<div>{name}<br>{bar} {self.ready} of {self.wanted} ready, {escape(self.phase or 'no status yet')}{reason}</div>"


def status_of(lane: Lane, phase: str, *, is_ready: bool, is_finished: bool) -> Status:
    """The status of a workload whose lane was computed from the same object."""
    return Status(
        lane.kind,
        lane.namespace,
        lane.name,
        phase,
        lane.wanted,
        lane.ready,
        is_ready=is_ready,
        is_finished=is_finished,
        reason=lane.reason,
        message=lane.message,
    )


@dataclass(frozen=True, slots=True)
class Why:
    """Why a workload is not larger, as `raytide why` prints it."""

    explanation: Explanation

    @property
    def verdict(self) -> Verdict:
        """NothingMissing, Waits or CanNeverRun."""
        return self.explanation.verdict

    @property
    def blockers(self) -> tuple[Blocker, ...]:
        """What is in the way, the most important first."""
        return self.explanation.blockers

    def __str__(self) -> str:
        """The summary, and a paragraph per blocker."""
        found = self.explanation
        head = f"{found.kind} {found.namespace}/{found.name}: {found.summary}"
        return "\n".join((head, *(line for each in found.blockers for line in _lines(each))))

    def _repr_html_(self) -> str:
        head, *lines = str(self).split("\n")
        return f"<div><b>{escape(head)}</b>{''.join(f'<br>{escape(line)}' for line in lines)}</div>"


def _lines(blocker: Blocker) -> list[str]:
    return [f"{blocker.reason}: {blocker.message}", *([f"  {blocker.fix}"] if blocker.fix else [])]
