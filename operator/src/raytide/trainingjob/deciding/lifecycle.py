"""Where is a job in its life: held back, running, over?

Takes a job and what is observed of it, and answers the questions on which plan and status have to agree: may it have pods
now, has its gang come together in time, has it succeeded or failed, and when does a deadline change the answer. What a
status says about the end of a job is final. A deadline that destroys something asks both the stamp in the status and how
long this process has known the job (architecture §9). Rules TJ §2.3 (GetStatus), §3 row 11, §7.6, §7.12.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from raytide.api import training_names as names
from raytide.api.conditions import find_condition, is_condition_true, moment_of
from raytide.api.pod_trouble import Cause, trouble_of_refusal
from raytide.api.trainingjob import TrainingJob
from raytide.trainingjob.deciding.ranks import Roster, is_alive
from raytide.trainingjob.deciding.restarts import Ending, Fault, Tally
from raytide.trainingjob.observed import Observed

CLOCK_DOUBT_S: Final = 60.0
"""So long, at most, this process must have known a job before a stamp of long ago counts."""
POD_FAILED: Final = "PodFailed"
BACKOFF_LIMIT_EXCEEDED: Final = "BackoffLimitExceeded"
TOO_MANY_FAILED: Final = "MaxFailedPercentExceeded"
ALL_FAILED: Final = "AllTrainersFailed"
DEADLINE_EXCEEDED: Final = "DeadlineExceeded"
FORBIDDEN_TIMEOUT_S: Final = 60
"""So long an admitted gang whose pods the API server refuses keeps its room."""
REFUSED_FOR_GOOD: Final = 3
"""So often in a row, which are 60 s for trainers: one refusal must not end pods whose images have been pulled for an hour."""
_PHASES_SINCE: Final = frozenset({names.PHASE_RUNNING, names.PHASE_SCALING})
"""Phases of a job all of whose minimum has run since it began."""
MOST_NAMED: Final = 5
"""Pods named in one message."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the job ended: `kind` is `Succeeded` or `Failed`."""

    kind: str
    reason: str
    message: str


# --- may it have pods? -----------------------------------------------------------------------------------------------


def is_over(status: Mapping[str, Any]) -> bool:
    """Whether the status says that the job has ended."""
    conditions = status.get("conditions") or ()
    return any(is_condition_true(conditions, kind) for kind in (names.SUCCEEDED, names.FAILED))


def has_minimum(job: TrainingJob, observed: Observed, counts: Tally) -> bool:
    """Whether master, the minimum of trainers and the parameter servers that go with it run.

    Upstream's "all pods are running"; what comes with growth does not count, so that growing is no outage.
    """
    trainer, pserver = job.spec.trainer, job.spec.pserver
    pservers = 0 if pserver is None else pserver.count_for(trainer.min_instance)
    masters = sum(pod.is_running_and_ready for pod in observed.masters if is_alive(pod))
    ready = sum(pod.is_running_and_ready for pod in observed.pservers if is_alive(pod))
    running = sum(pod.is_running for pod in observed.trainers if is_alive(pod))
    has_others = masters >= int(job.has_master) and ready >= pservers
    return has_others and running + len(counts.completed) >= trainer.min_instance


def has_run(job: TrainingJob) -> bool:
    """Whether all of its minimum has run since it began: `Scaling` is there from then on."""
    return job.status.get("phase") in _PHASES_SINCE or bool(
        find_condition(job.status.get("conditions") or (), names.SCALING)
    )


def start_limit_s(job: TrainingJob, observed: Observed) -> float:
    """How long its minimum may take to start; not long where the API server refuses its pods (FD:SEC-F3)."""
    is_refused = bool(refused_roles(observed, at_least=REFUSED_FOR_GOOD))
    return min(job.pending_timeout_s, FORBIDDEN_TIMEOUT_S) if is_refused else job.pending_timeout_s


def gang_time_left_s(job: TrainingJob, observed: Observed) -> float | None:
    """Seconds until an admitted gang that has not come together gives its room back; None where none has to hurry."""
    admitted = find_condition(job.status.get("conditions") or (), names.ADMITTED)
    if admitted is None or admitted.get("status") != "True" or admitted.get("reason") != names.ADMITTED:
        return None
    since = moment_of(str(admitted.get("lastTransitionTime")))
    return _left_s(since, start_limit_s(job, observed), observed) if since else None


def chance_left_s(job: TrainingJob, observed: Observed) -> float | None:
    """Seconds until a job that began on the chance of room gives its pods back; None where nothing has to hurry.

    Only where pods of its minimum find no node, or are refused: images may take as long as they do. A job whose minimum
    has run once keeps what it has (FD:SH-B14).
    """
    began = moment_of(str(job.status.get("startTime")))
    if began is None or has_run(job) or _has_places(job, observed):
        return None
    nowhere = [pod for pod in observed.pods if is_alive(pod) and not pod.node_name]
    created = [moment for pod in nowhere if (moment := moment_of(pod.creation_timestamp)) is not None]
    if not created and not observed.refusals:
        return None
    since = max(began, min(created)) if created else began
    return _left_s(since, job.pending_timeout_s, observed)


def refused_roles(observed: Observed, at_least: int = 1) -> frozenset[str]:
    """Roles whose pods the API server refuses for another reason than a quota, which only time or a person can change.

    `at_least` is how many passes in a row it has refused them.
    """
    roles = (each for each in observed.refusals if each.group in names.ROLES and each.times >= at_least)
    return frozenset(each.group for each in roles if trouble_of_refusal("", each.message).cause is not Cause.QUOTA)


def _has_places(job: TrainingJob, observed: Observed) -> bool:
    """Whether every pod of the minimum has, or had, a node."""
    trainer, pserver = job.spec.trainer, job.spec.pserver
    wanted = {
        names.MASTER: int(job.has_master),
        names.PSERVER: 0 if pserver is None else pserver.count_for(trainer.min_instance),
        names.TRAINER: trainer.min_instance,
    }
    placed = Counter(pod.role for pod in observed.pods if pod.node_name and not pod.is_terminating)
    return all(placed[role] >= count for role, count in wanted.items())


# --- how did it end? -------------------------------------------------------------------------------------------------


def verdict(job: TrainingJob, observed: Observed, counts: Tally, wanted: Roster) -> Verdict | None:
    """How the job ends now; None while it goes on. Success is asked for first: nothing may fail any more then."""
    return _success(job, counts, wanted) or _failure(job, observed, counts, wanted)


def _success(job: TrainingJob, counts: Tally, wanted: Roster) -> Verdict | None:
    policy, completed = job.spec.success_policy, counts.completed
    if not completed:
        return None
    if policy == "RankZero":
        return Verdict(names.SUCCEEDED, "RankZeroSucceeded", "trainer 0 has succeeded") if 0 in completed else None
    if policy == "AnyTrainer":
        return Verdict(names.SUCCEEDED, "TrainerSucceeded", f"trainer {min(completed)} has succeeded")
    if not wanted.is_over:
        return None
    lost = f", {len(counts.dead)} failed for good" if counts.dead else ""
    return Verdict(names.SUCCEEDED, "TrainersSucceeded", f"{len(completed)} trainers have succeeded{lost}")


def _failure(job: TrainingJob, observed: Observed, counts: Tally, wanted: Roster) -> Verdict | None:
    fatal = [ending for ending in counts.fresh if _is_fatal(job, ending)]
    if fatal:
        return Verdict(names.FAILED, POD_FAILED, _listed(fatal))
    left_s = deadline_left_s(job, observed)
    if left_s is not None and left_s <= 0:
        return Verdict(names.FAILED, DEADLINE_EXCEEDED, f"it was active for more than {job.deadline_s} s")
    return _beyond_limits(job, counts) or _lost(job, counts, wanted)


def _beyond_limits(job: TrainingJob, counts: Tally) -> Verdict | None:
    """Incidents against the user's own numbers, never against the size that the sharing pass chose (FD:SH-B1)."""
    incidents, percent, most = counts.incidents, job.spec.max_failed_percent, job.spec.trainer.ceiling
    trainers = incidents.by_role.get(names.TRAINER, 0)
    if percent is not None and trainers * 100 > percent * most:
        message = f"{trainers} failures of trainers, more than {percent} % of max-instance {most}"
        return Verdict(names.FAILED, TOO_MANY_FAILED, _with(message, counts))
    failures = incidents.total - (trainers if percent is not None else 0)
    if failures > job.spec.backoff_limit:
        message = f"{failures} failures, more than backoffLimit {job.spec.backoff_limit}"
        return Verdict(names.FAILED, BACKOFF_LIMIT_EXCEEDED, _with(message, counts))
    return None


def _lost(job: TrainingJob, counts: Tally, wanted: Roster) -> Verdict | None:
    """What trainers that failed for good mean, also those counted while nobody could judge (suspended, invalid)."""
    needs_zero = job.spec.success_policy == "RankZero" and 0 in counts.dead
    if counts.dead and (needs_zero or not job.is_fault_tolerant):
        return Verdict(names.FAILED, POD_FAILED, f"trainer {min(counts.dead)} has failed for good")
    if counts.dead and wanted.is_over:
        return Verdict(names.FAILED, ALL_FAILED, "all trainer instances have failed")
    return None


def _is_fatal(job: TrainingJob, ending: Ending) -> bool:
    """A job that tolerates no faults ends with its first permanent one; nobody does without master and parameters."""
    is_trainer = ending.pod.role == names.TRAINER
    return ending.fault is Fault.PERMANENT and not (is_trainer and job.is_fault_tolerant)


def _listed(endings: list[Ending]) -> str:
    named = "; ".join(str(ending) for ending in endings[:MOST_NAMED])
    return named + (f"; and {len(endings) - MOST_NAMED} more" if len(endings) > MOST_NAMED else "")


def _with(message: str, counts: Tally) -> str:
    return f"{message}; last: {_listed(list(counts.fresh))}" if counts.fresh else message


# --- deadlines -------------------------------------------------------------------------------------------------------


def deadline_left_s(job: TrainingJob, observed: Observed) -> float | None:
    """Seconds that the job may still be active; None without a limit, or before it began."""
    began = moment_of(str(job.status.get("startTime")))
    return _left_s(began, job.deadline_s, observed) if began and job.deadline_s is not None else None


def life_left_s(job: TrainingJob, observed: Observed) -> float | None:
    """Seconds until a job that has ended goes; None for one that stays."""
    ended, ttl_s = moment_of(str(job.status.get("completionTime"))), job.spec.ttl_seconds_after_finished
    return _left_s(ended, ttl_s, observed) if ended and ttl_s is not None and is_over(job.status) else None


def _left_s(since: datetime, limit_s: float, observed: Observed) -> float:
    """What is left by the stamp, and by what this process has seen of it itself."""
    by_stamp = limit_s - (observed.seen_at - since).total_seconds()
    return max(0.0, by_stamp, min(limit_s, CLOCK_DOUBT_S) - observed.known_for_s)
