"""Lifecycle of a TrainingJob: admission, start time-outs, success and failure, deadlines.

Takes a job and its observed state, and answers the questions on which plan and status have to agree: may it have pods
now, has its gang started in time, has it succeeded or failed, and when does a deadline change the answer. The end of a
job in its status is final. A deadline with destructive effect needs both the timestamp in the status and the time for
which this process has known the job (architecture §9). Rules TJ §2.3 (GetStatus), §3 row 11, §7.6, §7.12.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from raytide.api import trainingjob_constants as constants
from raytide.api.conditions import find_condition, is_condition_true, parse_timestamp
from raytide.api.pod_failure import Cause, failure_of_rejection
from raytide.api.trainingjob import TrainingJob
from raytide.trainingjob import messages
from raytide.trainingjob.observed import Observed
from raytide.trainingjob.restart_policy import FailureCause, PodTermination, TerminationCounts
from raytide.trainingjob.trainer_indices import TrainerAssignment, is_alive

CLOCK_SKEW_S: Final = 60.0
"""Upper limit of the time for which this process must have known a job before an old timestamp takes effect."""
FORBIDDEN_TIMEOUT_S: Final = 60
"""How long an admitted gang whose pods the API server rejects keeps its capacity."""
REJECTIONS_UNTIL_TIMEOUT: Final = 3
"""Rejections in a row until that limit applies: 60 s for trainers. One must not end pods with long image pulls."""
_PHASES_SINCE: Final = frozenset({constants.PHASE_RUNNING, constants.PHASE_SCALING})
"""Phases of a job whose whole minimum has run at least once."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """How the job ended: `kind` is `Succeeded` or `Failed`."""

    kind: str
    reason: str
    message: str


# --- admission and start ---------------------------------------------------------------------------------------------


def is_over(status: Mapping[str, Any]) -> bool:
    """Whether the status of a TrainingJob has the condition Succeeded or Failed."""
    conditions = status.get("conditions") or ()
    return any(is_condition_true(conditions, kind) for kind in (constants.SUCCEEDED, constants.FAILED))


def has_minimum(job: TrainingJob, observed: Observed, counts: TerminationCounts) -> bool:
    """Whether master, the minimum of trainers and the parameter servers for them run.

    Upstream requires that all pods run; here pods beyond the minimum do not count, so that growth is no outage.
    """
    trainer, pserver = job.spec.trainer, job.spec.pserver
    pservers = 0 if pserver is None else pserver.count_for(trainer.min_instance)
    masters = sum(pod.is_running_and_ready for pod in observed.masters if is_alive(pod))
    ready = sum(pod.is_running_and_ready for pod in observed.pservers if is_alive(pod))
    running = sum(pod.is_running for pod in observed.trainers if is_alive(pod))
    has_others = masters >= int(job.has_master) and ready >= pservers
    return has_others and running + len(counts.completed) >= trainer.min_instance


def has_run(job: TrainingJob) -> bool:
    """Whether its whole minimum has run at least once: `Scaling` is present from then on."""
    return job.status.get("phase") in _PHASES_SINCE or bool(
        find_condition(job.status.get("conditions") or (), constants.SCALING)
    )


def start_limit_s(job: TrainingJob, observed: Observed) -> float:
    """Seconds that its minimum may take to start; fewer where the API server rejects its pods (FD:SEC-F3)."""
    is_rejected = bool(rejected_roles(observed, at_least=REJECTIONS_UNTIL_TIMEOUT))
    return min(job.pending_timeout_s, FORBIDDEN_TIMEOUT_S) if is_rejected else job.pending_timeout_s


def gang_start_left_s(job: TrainingJob, observed: Observed) -> float | None:
    """Seconds until an admitted gang that has not started releases its capacity; None when no limit applies."""
    admitted = find_condition(job.status.get("conditions") or (), constants.ADMITTED)
    if admitted is None or admitted.get("status") != "True" or admitted.get("reason") != constants.ADMITTED:
        return None
    since = parse_timestamp(str(admitted.get("lastTransitionTime")))
    return _left_s(since, start_limit_s(job, observed), observed) if since else None


def pending_time_left_s(job: TrainingJob, observed: Observed) -> float | None:
    """Seconds until a job without gang admission releases its pods because it has not started; None without a limit.

    The limit applies only while pods needed for its minimum cannot be scheduled or created: image pulls may take any time. A job
    whose minimum has run once keeps its pods (FD:SH-B14).
    """
    began = parse_timestamp(str(job.status.get("startTime")))
    if began is None or has_run(job) or _minimum_has_nodes(job, observed):
        return None
    unassigned = [pod for pod in observed.pods if is_alive(pod) and not pod.node_name]
    created = [moment for pod in unassigned if (moment := parse_timestamp(pod.creation_timestamp)) is not None]
    if not created and not observed.pending_retries:
        return None
    since = max(began, min(created)) if created else began
    return _left_s(since, job.pending_timeout_s, observed)


def rejected_roles(observed: Observed, at_least: int = 1) -> frozenset[str]:
    """Roles whose pods the API server rejects for other reasons than a quota, such as an admission policy.

    `at_least` is the number of reconciles in a row in which they were rejected.
    """
    roles = (each for each in observed.pending_retries if each.group in constants.ROLES and each.times >= at_least)
    return frozenset(each.group for each in roles if failure_of_rejection(each.message).reason != Cause.QUOTA)


def _minimum_has_nodes(job: TrainingJob, observed: Observed) -> bool:
    """Whether every pod of the minimum is, or was, scheduled to a node."""
    trainer, pserver = job.spec.trainer, job.spec.pserver
    wanted = {
        constants.MASTER: int(job.has_master),
        constants.PSERVER: 0 if pserver is None else pserver.count_for(trainer.min_instance),
        constants.TRAINER: trainer.min_instance,
    }
    placed = Counter(pod.role for pod in observed.pods if pod.node_name and not pod.is_terminating)
    return all(placed[role] >= count for role, count in wanted.items())


# --- verdict ---------------------------------------------------------------------------------------------------------


def job_result(
    job: TrainingJob, observed: Observed, counts: TerminationCounts, wanted: TrainerAssignment
) -> JobResult | None:
    """How the job ends now; None while it continues. Success is checked first, so that no failure can override it."""
    return _success(job, counts, wanted) or _failure(job, observed, counts, wanted)


def _success(job: TrainingJob, counts: TerminationCounts, wanted: TrainerAssignment) -> JobResult | None:
    policy, completed = job.spec.success_policy, counts.completed
    if not completed:
        return None
    if policy == "RankZero":
        is_done = 0 in completed
        return (
            JobResult(constants.SUCCEEDED, constants.RANK_ZERO_SUCCEEDED, messages.rank_zero_succeeded())
            if is_done
            else None
        )
    if policy == "AnyTrainer":
        return JobResult(constants.SUCCEEDED, constants.TRAINER_SUCCEEDED, messages.trainer_succeeded(min(completed)))
    if not wanted.is_over:
        return None
    message = messages.trainers_succeeded(len(completed), len(counts.permanently_failed))
    return JobResult(constants.SUCCEEDED, constants.TRAINERS_SUCCEEDED, message)


def _failure(
    job: TrainingJob, observed: Observed, counts: TerminationCounts, wanted: TrainerAssignment
) -> JobResult | None:
    fatal = [termination for termination in counts.new_terminations if _is_fatal(job, termination)]
    if fatal:
        return JobResult(constants.FAILED, messages.POD_FAILED, messages.pods_ended(fatal))
    left_s = deadline_left_s(job, observed)
    if job.deadline_s is not None and left_s is not None and left_s <= 0:
        return JobResult(constants.FAILED, messages.DEADLINE_EXCEEDED, messages.deadline_exceeded(job.deadline_s))
    return _beyond_limits(job, counts) or _lost(job, counts, wanted)


def _beyond_limits(job: TrainingJob, counts: TerminationCounts) -> JobResult | None:
    """Incidents against the limits in the spec, never against the size that the sharing pass chose (FD:SH-B1)."""
    incidents, percent, maximum = counts.incidents, job.spec.max_failed_percent, job.spec.trainer.ceiling
    trainers = incidents.by_role.get(constants.TRAINER, 0)
    if percent is not None and trainers * 100 > percent * maximum:
        message = messages.too_many_failed(trainers, percent, maximum, counts.new_terminations)
        return JobResult(constants.FAILED, messages.TOO_MANY_FAILED, message)
    failures = incidents.total - (trainers if percent is not None else 0)
    if failures > job.spec.backoff_limit:
        message = messages.backoff_limit_exceeded(failures, job.spec.backoff_limit, counts.new_terminations)
        return JobResult(constants.FAILED, messages.BACKOFF_LIMIT_EXCEEDED, message)
    return None


def _lost(job: TrainingJob, counts: TerminationCounts, wanted: TrainerAssignment) -> JobResult | None:
    """The verdict on trainers that failed permanently, also those counted while the job was suspended or invalid."""
    needs_zero = job.spec.success_policy == "RankZero" and 0 in counts.permanently_failed
    if counts.permanently_failed and (needs_zero or not job.is_fault_tolerant):
        return JobResult(constants.FAILED, messages.POD_FAILED, messages.trainer_failed(min(counts.permanently_failed)))
    if counts.permanently_failed and wanted.is_over:
        return JobResult(constants.FAILED, messages.ALL_FAILED, messages.all_trainers_failed())
    return None


def _is_fatal(job: TrainingJob, termination: PodTermination) -> bool:
    """Whether the failure ends the job: a permanent one, unless it is a trainer's and the job is fault tolerant."""
    is_trainer = termination.pod.role == constants.TRAINER
    return termination.cause is FailureCause.PERMANENT and not (is_trainer and job.is_fault_tolerant)


# --- deadlines -------------------------------------------------------------------------------------------------------


def deadline_left_s(job: TrainingJob, observed: Observed) -> float | None:
    """Seconds that the job may still be active; None without a limit, or before it began."""
    began = parse_timestamp(str(job.status.get("startTime")))
    return _left_s(began, job.deadline_s, observed) if began and job.deadline_s is not None else None


def ttl_left_s(job: TrainingJob, observed: Observed) -> float | None:
    """Seconds until a job that has ended is deleted; None without a TTL."""
    ended, ttl_s = parse_timestamp(str(job.status.get("completionTime"))), job.spec.ttl_seconds_after_finished
    return _left_s(ended, ttl_s, observed) if ended and ttl_s is not None and is_over(job.status) else None


def _left_s(since: datetime, limit_s: float, observed: Observed) -> float:
    """Seconds left by the timestamp in the status and by the time for which this process has known the job."""
    by_stamp = limit_s - (observed.seen_at - since).total_seconds()
    return max(0.0, by_stamp, min(limit_s, CLOCK_SKEW_S) - observed.known_for_s)
