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


class FailureCause(Enum):
    """Why a pod ended, as far as limits and retries depend on it."""

    TRANSIENT = "transient"
    """The pod failed, and may be retried."""
    PERMANENT = "permanent"
    """The pod failed, and the restart policy allows no retry."""
    DISRUPTION = "disruption"
    """The pod was disrupted: evicted, preempted, node lost."""
    PEER_FAILED = "peer"
    """It followed the disruption of a peer, or a resize; it is replaced, and counts against no limit."""


EXCUSED_CAUSES: Final = frozenset({FailureCause.DISRUPTION, FailureCause.PEER_FAILED})
"""Causes that count against no limit and do not extend the backoff."""


@dataclass(frozen=True, slots=True)
class PodTermination:
    """A pod that ended and is counted in this reconcile."""

    pod: JobPod
    cause: FailureCause

    def __str__(self) -> str:
        return why_it_ended(self.pod)


@dataclass(frozen=True, slots=True)
class TerminationCounts:
    """The pods that ended so far, and the backoff before a replacement."""

    failed_by_role: Mapping[str, int]
    """Total number of pods that failed without being disrupted, by role."""
    completed: frozenset[int]
    """Indices of trainers that succeeded."""
    permanently_failed: frozenset[int]
    """Indices of trainers that failed permanently and are not replaced."""
    counted_uids: frozenset[str]
    """uids of ended pods that still exist and are in the status already."""
    new_terminations: tuple[PodTermination, ...] = ()
    """Pods that ended and are not in the status yet."""
    incidents: Incidents = NO_INCIDENTS
    """The number that limits apply to: pods that end together count as one failure."""
    consecutive_failures: int = 0
    """Failures in a row, which the backoff depends on."""
    last_failure_at: datetime | None = None
    """When a pod last failed or was disrupted; the backoff begins then."""
    requeue_after_s: float | None = None
    """Seconds until a pod that exited 0 early counts as a failure."""

    @property
    def next_try_at(self) -> datetime | None:
        """When the backoff ends and replacements may be created; None when nothing failed recently."""
        if self.last_failure_at is None or self.consecutive_failures <= 0:
            return None
        wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(self.consecutive_failures - 1, 30))
        return self.last_failure_at + timedelta(seconds=wait_s)

    def wait_s(self, now: datetime) -> float:
        """Seconds of backoff left; 0 when replacements may be created."""
        return max(0.0, (self.next_try_at - now).total_seconds()) if self.next_try_at else 0.0


def count_terminations(job: TrainingJob, observed: Observed, record: SharingRecord | None = None) -> TerminationCounts:
    """The counts in the status, plus the pods that ended since; `record` has the resizes that excuse failures."""
    now, old = observed.seen_at, _counts_in_status(job)
    ended = [pod for pod in observed.pods if pod.is_finished and pod.uid]
    # A terminating pod may exit with code 0: that is neither a success nor a failure.
    uncounted = [pod for pod in ended if pod.uid not in old.counted_uids and not pod.is_terminating]
    completed = old.completed | {
        pod.index for pod in uncounted if pod.role == constants.TRAINER and pod.has_succeeded and pod.index is not None
    }
    exited_early = [pod for pod in uncounted if pod.has_succeeded and pod.role != constants.TRAINER and not completed]
    grace_left_s = {pod.uid: _early_exit_grace_left_s(pod, now) for pod in exited_early}
    failed_now = [
        pod for pod in uncounted if pod.has_failed or (pod.uid in grace_left_s and grace_left_s[pod.uid] <= 0)
    ]
    excused = old.incidents.with_disruption(observed, failed_now)
    excused = excused.with_resizes(record, _retried(job, failed_now, excused, now), now)
    new = tuple(PodTermination(pod, _cause_with_peers(job, pod, excused, record, now)) for pod in failed_now)
    own_failures = [termination.pod for termination in new if termination.cause not in EXCUSED_CAUSES]
    incidents = excused.with_failures(own_failures, now)
    return TerminationCounts(
        failed_by_role=Counter(old.failed_by_role)
        + Counter(termination.pod.role for termination in new if termination.cause is not FailureCause.DISRUPTION),
        completed=completed,
        permanently_failed=old.permanently_failed | _permanently_failed(new),
        counted_uids=frozenset(pod.uid for pod in ended if pod.uid in old.counted_uids),
        new_terminations=new,
        incidents=incidents,
        consecutive_failures=_consecutive_failures(old, new, now, is_new=incidents.total > excused.total),
        last_failure_at=now.replace(microsecond=0) if new else old.last_failure_at,
        requeue_after_s=min((left_s for left_s in grace_left_s.values() if left_s > 0), default=None),
    )


def failure_cause(job: TrainingJob, pod: JobPod) -> FailureCause:
    """The cause by exit code and restart policy (TJ §5.2: 1-127 permanent, 128-255 not)."""
    if pod.is_disrupted:
        return FailureCause.DISRUPTION
    policy = job.spec.restart_policy
    if policy == "OnFailure" or pod.has_succeeded:
        return FailureCause.TRANSIENT
    if policy == "ExitCode":
        return FailureCause.PERMANENT if pod.exit_code in PERMANENT_CODES else FailureCause.TRANSIENT
    return FailureCause.PERMANENT


def _cause_with_peers(
    job: TrainingJob, pod: JobPod, incidents: Incidents, record: SharingRecord | None, now: datetime
) -> FailureCause:
    """The cause, with what happened to the pod's peers taken into account.

    A disruption overrides a restart policy that forbids a retry, as it does for the disrupted pod itself; a resize does
    not, because elastic training has to survive resizes.
    """
    cause = failure_cause(job, pod)
    if cause is FailureCause.DISRUPTION:
        return cause
    if incidents.follows_disruption(pod, now) or (
        cause is FailureCause.TRANSIENT and incidents.follows_resize(pod, record, now)
    ):
        return FailureCause.PEER_FAILED
    return cause


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


def _counts_in_status(job: TrainingJob) -> TerminationCounts:
    """The counts in the status; invalid values are ignored."""
    failures, trainer = _part(job.status, "failures"), _part(job.status, constants.TRAINER)
    counted = failures.get("counted")
    return TerminationCounts(
        failed_by_role={role: _whole(_part(job.status, role).get("failed")) for role in constants.ROLES},
        completed=indices_in(trainer.get("completedIndexes")),
        permanently_failed=indices_in(trainer.get("failedIndexes")),
        counted_uids=frozenset(counted) if isinstance(counted, list) else frozenset(),
        incidents=incidents_in(failures),
        consecutive_failures=_whole(failures.get("inARow")),
        last_failure_at=parse_timestamp(str(failures.get("lastTime"))),
    )


def _retried(job: TrainingJob, failed_now: list[JobPod], incidents: Incidents, now: datetime) -> list[JobPod]:
    """Pods that failed by themselves and may be retried."""
    return [
        pod
        for pod in failed_now
        if failure_cause(job, pod) is FailureCause.TRANSIENT and not incidents.follows_disruption(pod, now)
    ]


def _permanently_failed(new_terminations: tuple[PodTermination, ...]) -> set[int]:
    return {
        termination.pod.index
        for termination in new_terminations
        if termination.pod.role == constants.TRAINER
        and termination.cause is FailureCause.PERMANENT
        and termination.pod.index is not None
    }


def _consecutive_failures(
    old: TerminationCounts, new_terminations: tuple[PodTermination, ...], now: datetime, *, is_new: bool
) -> int:
    """Failures in a row; pods that end together count once, disruptions do not. `is_new`: an incident began now."""
    if not new_terminations:
        return old.consecutive_failures
    own = [termination.pod for termination in new_terminations if termination.cause not in EXCUSED_CAUSES]
    is_long_ago = old.last_failure_at is not None and (now - old.last_failure_at).total_seconds() >= LONG_RUN_S
    before = (
        0 if is_long_ago or (is_new and any(_ran_s(pod) >= LONG_RUN_S for pod in own)) else old.consecutive_failures
    )
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
