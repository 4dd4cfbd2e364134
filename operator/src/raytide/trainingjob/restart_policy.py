"""Restart policy of a TrainingJob: ended pods, the cause of their end, and the backoff before a replacement.

Takes the job and its observed pods, and returns a `TerminationCounts`: the counts in the status plus what ended since. A pod is
counted once, by its uid: the uid stays in the status while the pod exists, and no pod is replaced before its uid is
there, so that a crash in between neither loses nor repeats a count. A pod deleted before it ended never counts (TJ §6
row 8); a disrupted one (evicted, preempted, node lost) and peers that end with it count against no limit; limits count
incidents, not pods (incidents.py). Called by plan and status, which therefore agree; rules TJ §5.2, §6, §7.12.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

from raytide.api import trainingjob_constants as constants
from raytide.api.conditions import parse_timestamp
from raytide.api.index_ranges import indices_in
from raytide.api.sharing_record import SharingRecord
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_pod import JobPod
from raytide.trainingjob import messages
from raytide.trainingjob.incidents import NO_INCIDENTS, Incidents, incidents_in
from raytide.trainingjob.observed import Observed

FIRST_WAIT_S: Final = 10.0
LONGEST_WAIT_S: Final = 360.0
"""Bounds of the backoff between a failure and the next attempt, as in Kubernetes' Job."""
LONG_RUN_S: Final = 600.0
"""A pod that ran this long before it failed, or fails this long after the last failure, resets the backoff."""
EARLY_EXIT_GRACE_S: Final = 30.0
"""How long before the first trainer's success a parameter server or master may exit 0; after that it is a failure."""
PERMANENT_CODES: Final = range(1, 128)
"""Exit codes that are not retried with `restartPolicy: ExitCode`; 128 and above are signals."""


class Fault(Enum):
    """Cause of a pod's end."""

    TRANSIENT = "transient"
    """The pod failed, and may be retried."""
    PERMANENT = "permanent"
    """The pod failed, and the restart policy allows no retry."""
    CLUSTER = "cluster"
    """The pod was disrupted: evicted, preempted, node lost."""
    PEER = "peer"
    """It followed the disruption of a peer, or a resize; it is replaced, and counts against no limit."""


UNCOUNTED: Final = frozenset({Fault.CLUSTER, Fault.PEER})
"""Causes that count against no limit and do not extend the backoff."""


@dataclass(frozen=True, slots=True)
class PodTermination:
    """A pod that ended and is counted in this reconcile."""

    pod: JobPod
    fault: Fault

    def __str__(self) -> str:
        return why_it_ended(self.pod)


@dataclass(frozen=True, slots=True)
class TerminationCounts:
    """The pods that ended so far."""

    failed_by_role: Mapping[str, int]
    """Total number of pods that failed without being disrupted, by role."""
    completed: frozenset[int]
    """Indices of trainers that succeeded."""
    dead: frozenset[int]
    """Indices of trainers that failed permanently and are not replaced."""
    counted: frozenset[str]
    """uids of ended pods that still exist and are in the status already."""
    fresh: tuple[PodTermination, ...] = ()
    """Endings that were not counted before."""
    incidents: Incidents = NO_INCIDENTS
    """The number that limits apply to: pods that end together count as one failure."""
    in_a_row: int = 0
    last_at: datetime | None = None
    requeue_after_s: float | None = None
    """Seconds until a pod that exited 0 early counts as a failure."""

    @property
    def next_try_at(self) -> datetime | None:
        """When the backoff ends and replacements may be created; None when nothing failed recently."""
        if self.last_at is None or self.in_a_row <= 0:
            return None
        wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(self.in_a_row - 1, 30))
        return self.last_at + timedelta(seconds=wait_s)

    def wait_s(self, now: datetime) -> float:
        """Seconds of backoff left; 0 when replacements may be created."""
        return max(0.0, (self.next_try_at - now).total_seconds()) if self.next_try_at else 0.0


def count_terminations(job: TrainingJob, observed: Observed, record: SharingRecord | None = None) -> TerminationCounts:
    """The counts of the status plus what ended since; `record` contains the resizes."""
    old = _counted_before(job)
    ended = [pod for pod in observed.pods if pod.is_finished and pod.uid]
    # A terminating pod may exit with code 0: that is neither a success nor a failure.
    uncounted = [pod for pod in ended if pod.uid not in old.counted and not pod.is_terminating]
    completed = old.completed | {
        pod.index for pod in uncounted if pod.role == constants.TRAINER and pod.has_succeeded and pod.index is not None
    }
    left_early = [pod for pod in uncounted if pod.has_succeeded and pod.role != constants.TRAINER and not completed]
    waits = {pod.uid: _early_exit_grace_left_s(pod, observed.seen_at) for pod in left_early}
    due = [pod for pod in uncounted if pod.has_failed or waits.get(pod.uid, 1.0) <= 0]
    incidents = old.incidents.with_disruption(observed, due)
    incidents = incidents.with_resizes(record, _retried(job, due, incidents, observed.seen_at), observed.seen_at)
    fresh = tuple(PodTermination(pod, _fault(job, pod, incidents, record, observed.seen_at)) for pod in due)
    own = [ending.pod for ending in fresh if ending.fault not in UNCOUNTED]
    counted = incidents.with_failures(own, observed.seen_at)
    return TerminationCounts(
        failed_by_role=Counter(old.failed_by_role)
        + Counter(ending.pod.role for ending in fresh if ending.fault is not Fault.CLUSTER),
        completed=completed,
        dead=old.dead | _given_up(fresh),
        counted=frozenset(pod.uid for pod in ended if pod.uid in old.counted),
        fresh=fresh,
        incidents=counted,
        in_a_row=_in_a_row(old, fresh, observed.seen_at, is_new=counted.total > incidents.total),
        last_at=observed.seen_at.replace(microsecond=0) if fresh else old.last_at,
        requeue_after_s=min((wait_s for wait_s in waits.values() if wait_s > 0), default=None),
    )


def fault_of(job: TrainingJob, pod: JobPod) -> Fault:
    """The cause by exit code and restart policy (TJ §5.2: 1-127 permanent, 128-255 not)."""
    if pod.is_disrupted:
        return Fault.CLUSTER
    policy = job.spec.restart_policy
    if policy == "OnFailure" or pod.has_succeeded:
        return Fault.TRANSIENT
    if policy == "ExitCode":
        return Fault.PERMANENT if pod.exit_code in PERMANENT_CODES else Fault.TRANSIENT
    return Fault.PERMANENT


def _fault(job: TrainingJob, pod: JobPod, incidents: Incidents, record: SharingRecord | None, now: datetime) -> Fault:
    """The cause, with what happened to the pod's peers taken into account.

    A disruption overrides a restart policy that forbids a retry, as it does for the disrupted pod itself; a resize does
    not, because elastic training has to survive resizes.
    """
    fault = fault_of(job, pod)
    if fault is Fault.CLUSTER:
        return fault
    if incidents.follows_disruption(pod, now) or (
        fault is Fault.TRANSIENT and incidents.follows_resize(pod, record, now)
    ):
        return Fault.PEER
    return fault


def why_it_ended(pod: JobPod) -> str:
    """One sentence for users: which pod, where, how."""
    name, node = pod.name, pod.node_name
    if pod.is_disrupted:
        return messages.pod_disrupted(name, node, pod.disruption.reason or pod.reason)
    if pod.has_succeeded:
        return messages.pod_ended_early(name, node)
    if pod.failed_container is None:
        return messages.pod_failed(name, node, pod.reason)
    return messages.container_failed(name, node, pod.exit_code, pod.failed_container.reason)


# --- parts -----------------------------------------------------------------------------------------------------------


def _counted_before(job: TrainingJob) -> TerminationCounts:
    """The counts in the status; invalid values are ignored."""
    failures, trainer = _part(job.status, "failures"), _part(job.status, constants.TRAINER)
    counted = failures.get("counted")
    return TerminationCounts(
        failed_by_role={role: _whole(_part(job.status, role).get("failed")) for role in constants.ROLES},
        completed=indices_in(trainer.get("completedIndexes")),
        dead=indices_in(trainer.get("failedIndexes")),
        counted=frozenset(counted) if isinstance(counted, list) else frozenset(),
        incidents=incidents_in(failures),
        in_a_row=_whole(failures.get("inARow")),
        last_at=parse_timestamp(str(failures.get("lastTime"))),
    )


def _retried(job: TrainingJob, due: list[JobPod], incidents: Incidents, now: datetime) -> list[JobPod]:
    """Pods that failed by themselves and may be retried."""
    return [pod for pod in due if fault_of(job, pod) is Fault.TRANSIENT and not incidents.follows_disruption(pod, now)]


def _given_up(fresh: tuple[PodTermination, ...]) -> set[int]:
    return {
        ending.pod.index
        for ending in fresh
        if ending.pod.role == constants.TRAINER and ending.fault is Fault.PERMANENT and ending.pod.index is not None
    }


def _in_a_row(old: TerminationCounts, fresh: tuple[PodTermination, ...], now: datetime, *, is_new: bool) -> int:
    """Failures in a row; pods that end together count once (`is_new`: an incident began), disruptions do not."""
    if not fresh:
        return old.in_a_row
    own = [ending.pod for ending in fresh if ending.fault not in UNCOUNTED]
    is_long_ago = old.last_at is not None and (now - old.last_at).total_seconds() >= LONG_RUN_S
    before = 0 if is_long_ago or (is_new and any(_ran_s(pod) >= LONG_RUN_S for pod in own)) else old.in_a_row
    return before + 1 if is_new else max(1, before)


def _ran_s(pod: JobPod) -> float:
    began, ended = parse_timestamp(pod.started_at), parse_timestamp(pod.finished_at)
    return (ended - began).total_seconds() if began and ended else 0.0


def _early_exit_grace_left_s(pod: JobPod, now: datetime) -> float:
    ended = parse_timestamp(pod.finished_at)
    return EARLY_EXIT_GRACE_S - (now - ended).total_seconds() if ended else 0.0


def _part(status: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = status.get(name)
    return part if isinstance(part, dict) else {}


def _whole(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
