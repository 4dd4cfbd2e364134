"""Messages of TrainingJobs: conditions, events, results, causes of deletes and log lines.

One function or constant per reason, with the plain values that its text shows; the same situation gives the same text,
without ages. Violations and warnings of the spec are in validation.py and validation_pods.py, fields without effect in
unsupported.py, and messages of resizes in the sharing pass. Called by the modules that compute conditions, events and
the plan; decides nothing.
"""

from collections.abc import Sequence
from typing import Final

from raytide.api import trainingjob_constants as constants
from raytide.api.conditions import ConditionUpdate, cut
from raytide.diagnosis.render import counted

OPTIMISTIC: Final = "Optimistic"
MINIMUM_RUNS: Final = "MinimumRuns"
BELOW_MINIMUM: Final = "BelowMinimum"
SETTLED: Final = "Settled"
NOT_ADMITTED: Final = "NotAdmitted"
"""The sharing pass has not decided about the job yet."""
BACKING_OFF: Final = "BackingOff"
"""Pods that failed are replaced after a back-off of 10 to 360 s."""
WAITING_FOR_MASTER: Final = "WaitingForMaster"
"""The other pods are created when the master is ready."""
WAITING_FOR_PSERVERS: Final = "WaitingForPservers"
"""Trainers are created when all parameter servers are ready."""
POD_TERMINATING: Final = "PodTerminating"
"""Pods whose names are needed again are still terminating."""
POD_FAILED: Final = "PodFailed"
"""A pod that the job needs has failed permanently, and is not replaced."""
BACKOFF_LIMIT_EXCEEDED: Final = "BackoffLimitExceeded"
"""More failures than `backoffLimit` allows; pods that fail together count once."""
TOO_MANY_FAILED: Final = "MaxFailedPercentExceeded"
"""More trainer failures than `maxFailedPercent` of `max-instance` allows; pods that fail together count once."""
ALL_FAILED: Final = "AllTrainersFailed"
"""All trainers have failed permanently."""
DEADLINE_EXCEEDED: Final = "DeadlineExceeded"
"""The job was active for longer than its deadline."""

MAX_NAMED: Final = 5
"""Maximum number of pods named in one message."""
LONGEST_CAUSE: Final = 500
"""Maximum length of a cause inside another message, in characters."""

CANNOT_BE_PARSED: Final = "TrainingJob %s cannot be parsed: %s"
"""Log line with the key and the violations."""


# --- condition Admitted ----------------------------------------------------------------------------------------------


def _admitted(*, status: bool, reason: str, message: str) -> ConditionUpdate:
    return ConditionUpdate(constants.ADMITTED, status=status, reason=reason, message=message)


def not_admitted_while_suspended() -> ConditionUpdate:
    """`Suspended`: the spec asks for no pods."""
    return _admitted(status=False, reason=constants.SUSPENDED, message="spec.suspend is true")


def admission_timed_out(cause: str) -> ConditionUpdate:
    """`GangTimeout`: the minimum did not start in time, and the job releases its capacity.

    `cause` is that of `start_timed_out`.
    """
    return _admitted(status=False, reason=constants.GANG_TIMEOUT, message=cause)


def admitted_without_gang() -> ConditionUpdate:
    """`Optimistic`: the job needs no gang admission."""
    return _admitted(
        status=True, reason=OPTIMISTIC, message="the job is not a gang: its pods are created before there is capacity"
    )


def admission_stays_revoked(reason: str, message: str) -> ConditionUpdate:
    """`GangTimeout`, `Suspended`: the reason for which a gang released its capacity, until it is admitted again."""
    return _admitted(status=False, reason=reason, message=message)


def waits_for_admission() -> ConditionUpdate:
    """`Waiting`: there is no capacity for the minimum of the gang; the condition `Waiting` has the reason."""
    return _admitted(
        status=False,
        reason=constants.WAITING,
        message="the job is admitted when there is capacity for all pods of its minimum",
    )


def gang_is_ready() -> ConditionUpdate:
    """`GangReady`: the whole minimum has run at least once since the admission."""
    return _admitted(status=True, reason=constants.GANG_READY, message="all pods of the minimum have run")


def gang_is_starting(*, awaits_nodes: bool) -> ConditionUpdate:
    """`Admitted`: the gang has the capacity for its minimum, which is starting; or its pods exist so that nodes are added for them."""
    why = (
        "there is no capacity for the minimum: its pods exist so that a node autoscaler adds nodes"
        if awaits_nodes
        else "there is capacity for the minimum, and its pods are starting"
    )
    return _admitted(status=True, reason=constants.ADMITTED, message=why)


# --- conditions Running, Scaling, Suspended --------------------------------------------------------------------------


def not_running_after_the_end(reason: str) -> ConditionUpdate:
    """`Succeeded`, `Failed`: the job has ended."""
    return ConditionUpdate(constants.RUNNING, status=False, reason=reason, message="the job has ended")


def not_running_while_suspended() -> ConditionUpdate:
    """`Suspended`: the job is suspended."""
    return ConditionUpdate(constants.RUNNING, status=False, reason=constants.SUSPENDED, message="the job is suspended")


def running(numbers: str, *, has_minimum: bool) -> ConditionUpdate:
    """`MinimumRuns`, `BelowMinimum`: `MinimumRuns` if master, parameter servers and minimum of trainers run, else `BelowMinimum`.

    `numbers` are those of `pod_numbers`.
    """
    reason = MINIMUM_RUNS if has_minimum else BELOW_MINIMUM
    return ConditionUpdate(constants.RUNNING, status=has_minimum, reason=reason, message=numbers)


def pod_numbers(
    pservers: tuple[int, int], trainers: tuple[int, int, int], minimum: int, *, is_master_ready: bool | None
) -> str:
    """`master ready, 1 of 1 parameter servers ready, 2 of 3 trainers running, 1 succeeded (minimum 2)`.

    `pservers` are (ready, wanted), `trainers` (running, wanted, succeeded); `is_master_ready` is None without a master.
    """
    parts = [] if is_master_ready is None else ["master ready" if is_master_ready else "master not ready"]
    if pservers[1]:
        parts.append(f"{pservers[0]} of {pservers[1]} parameter servers ready")
    succeeded = f", {trainers[2]} succeeded" if trainers[2] else ""
    parts.append(f"{trainers[0]} of {trainers[1]} trainers running{succeeded} (minimum {minimum})")
    return ", ".join(parts)


def scaling(reason: str, here: int, wanted: int) -> ConditionUpdate:
    """`ScalingUp`, `ScalingDown`: the size has changed, and not exactly the wanted trainers run yet."""
    message = f"{here} of {wanted} trainers running"
    return ConditionUpdate(constants.SCALING, status=True, reason=reason, message=message)


def settled() -> ConditionUpdate:
    """`Settled`: the pods match the size."""
    return ConditionUpdate(constants.SCALING, status=False, reason=SETTLED, message="")


def is_suspended() -> ConditionUpdate:
    """`JobSuspended`: `spec.suspend` is set, and the pods are deleted."""
    return ConditionUpdate(constants.SUSPENDED, status=True, reason="JobSuspended", message="spec.suspend is true")


def is_resumed() -> ConditionUpdate:
    """`JobResumed`: the job was suspended and is resumed."""
    return ConditionUpdate(constants.SUSPENDED, status=False, reason="JobResumed", message="")


# --- condition Waiting -----------------------------------------------------------------------------------------------


def start_timed_out(limit_s: int, cause: str) -> str:
    """`GangTimeout`: the job releases its capacity; `cause` is what kept its pods from starting, or empty."""
    why = f" ({cut(cause, LONGEST_CAUSE)})" if cause else ""
    return f"the minimum did not start within {limit_s} s{why}; its pods are deleted to release their capacity"


def not_admitted_before(revoked: str, until: str) -> str:
    """`GangTimeout`: the wait after a time-out; `revoked` is the message of the time-out, or empty."""
    return _after(revoked, f"the job is not admitted again before {until}")


def not_admitted_after_rejection(revoked: str) -> str:
    """`CreationForbidden`: a gang whose pods the API server rejected is admitted into free capacity only."""
    return _after(
        revoked,
        "the job is admitted again when its minimum fits into free capacity; no other job is scaled down for it",
    )


def _after(first: str, second: str) -> str:
    return f"{first}; {second}" if first else second


def not_admitted_yet() -> str:
    """`NotAdmitted`: the sharing pass has not recorded a decision."""
    return "the sharing pass has not admitted the job yet; it does when there is capacity for all pods of its minimum"


def create_rejected(group: str, detail: str) -> str:
    """Rejection of a create; `group` is a role, `service` or `membership`, `detail` the API server's message."""
    return f"create of {group} rejected: {detail}"


def names_taken(names: Sequence[str]) -> str:
    """`NameTaken`: names of children that other objects have."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"another object, perhaps of an earlier job, has the name {names[0]}{more}; the job continues when it is deleted"


def pods_cannot_start(role: str, number: int, wanted: int, detail: str) -> str:
    """The most frequent cause for which pods of a role do not start, with Kubernetes' message."""
    return f"{number} of {wanted} {role} pods cannot start: {detail}"


def backing_off(failures: int, last: str, until: str) -> str:
    """`BackingOff`: the backoff after failures; `last` is the last one, or empty."""
    times = "a failure" if failures == 1 else f"{failures} failures in a row"
    return f"after {times}{f' ({last})' if last else ''}, pods are replaced at {until}"


def waiting_for_master() -> str:
    """`WaitingForMaster`."""
    return "the other pods are created when the master is ready"


def waiting_for_pservers(ready: int, wanted: int) -> str:
    """`WaitingForPservers`."""
    return f"trainers are created when all parameter servers are ready ({ready} of {wanted} ready)"


def pods_terminating(names: Sequence[str]) -> str:
    """`PodTerminating`: pods whose names are needed again."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"terminating pod {names[0]}{more}: replaced when it is gone"


# --- results ---------------------------------------------------------------------------------------------------------


def rank_zero_succeeded() -> str:
    """`RankZeroSucceeded`."""
    return "trainer 0 has succeeded"


def trainer_succeeded(index: int) -> str:
    """`TrainerSucceeded`."""
    return f"trainer {index} has succeeded"


def trainers_succeeded(succeeded: int, failed: int) -> str:
    """`TrainersSucceeded`; `failed` trainers failed permanently."""
    verb = "has" if succeeded == 1 else "have"
    return f"{counted(succeeded, 'trainer')} {verb} succeeded{f', {failed} failed permanently' if failed else ''}"


def deadline_exceeded(deadline_s: int) -> str:
    """`DeadlineExceeded`."""
    return f"the job was active for more than {deadline_s} s"


def too_many_failed(failures: int, percent: int, maximum: int, last: Sequence[object]) -> str:
    """`MaxFailedPercentExceeded`."""
    return _with_last(
        f"{failures} trainer failures, more than maxFailedPercent {percent} of max-instance {maximum}", last
    )


def backoff_limit_exceeded(failures: int, limit: int, last: Sequence[object]) -> str:
    """`BackoffLimitExceeded`."""
    return _with_last(f"{counted(failures, 'failure')}, more than backoffLimit {limit}", last)


def trainer_failed(index: int) -> str:
    """`PodFailed`: a trainer that the job needs and that is not replaced."""
    return f"trainer {index} has failed permanently"


def all_trainers_failed() -> str:
    """`AllTrainersFailed`."""
    return "all trainer instances have failed"


def pods_ended(terminations: Sequence[object]) -> str:
    """The endings, each as `pod_…` below; at most `MAX_NAMED` of them."""
    named = "; ".join(map(str, terminations[:MAX_NAMED]))
    return named + (f"; and {len(terminations) - MAX_NAMED} more" if len(terminations) > MAX_NAMED else "")


def _with_last(message: str, last: Sequence[object]) -> str:
    return f"{message}; last: {pods_ended(last)}" if last else message


# --- ends of pods ----------------------------------------------------------------------------------------------------


def _pod(name: str, node: str) -> str:
    return f"pod {name} on node {node}" if node else f"pod {name}"


def pod_disrupted(name: str, node: str, reason: str) -> str:
    """A pod that was evicted or preempted, or whose node was lost."""
    return f"{_pod(name, node)} was disrupted ({reason})"


def pod_ended(termination: str, counted: str) -> str:
    """Event `PodFailed`: how a pod ended, and how that counts against the job's limits."""
    return f"{termination}; {counted}"


def pod_ended_early(name: str, node: str) -> str:
    """A parameter server or master that exited with code 0 before the trainers."""
    return f"{_pod(name, node)} ended with exit code 0 although trainers need it"


def pod_failed(name: str, node: str, reason: str) -> str:
    """A failed pod without a failed container; `reason` is the pod's, or empty."""
    return f"{_pod(name, node)} failed{f' ({reason})' if reason else ''}"


def container_failed(name: str, node: str, exit_code: int | None, reason: str) -> str:
    """A failed container; `Error` adds nothing to the exit code."""
    suffix = f" ({reason})" if reason and reason != "Error" else ""
    return f"{_pod(name, node)} failed with exit code {exit_code}{suffix}"


# --- condition ReplicasContended ---------------------------------------------------------------------------------------


def replicas_not_granted(replicas: int, writer: str, decided: int) -> str:
    """A size that another client wrote, its field manager, and the size that fair sharing decided instead."""
    return f"replicas was set to {replicas}{_by(writer)}, fair sharing decided {decided}"


def replicas_lowered_again(replicas: int, writer: str) -> str:
    """A size below the one to which fair sharing had scaled the job up."""
    return f"replicas was set to {replicas} again{_by(writer)} after fair sharing had scaled the job up"


def _by(writer: str) -> str:
    return f" (written by {writer})" if writer else ""


# --- events ----------------------------------------------------------------------------------------------------------


def uncounted_disruption() -> str:
    """A pod that was disrupted."""
    return "not counted as a failure of the job"


def uncounted_peer() -> str:
    """A pod that ended with a disrupted one, or because of a resize."""
    return (
        "not counted as a failure of the job, because another pod was disrupted or the job was resized shortly before"
    )


def counted_for_percent(failures: int, percent: int, maximum: int) -> str:
    """A trainer's failure under maxFailedPercent."""
    return f"trainer failure {failures}; maxFailedPercent allows {percent} % of max-instance {maximum}"


def counted_for_backoff(failures: int, limit: int) -> str:
    """Any other failure."""
    return f"failure {failures}; backoffLimit allows {limit}"


# --- causes of deletes -----------------------------------------------------------------------------------------------

JOB_ENDED: Final = "the job has ended"
JOB_SUSPENDED: Final = "the job is suspended"
GANG_RELEASES_CAPACITY: Final = "the gang releases its capacity"
NO_MASTER: Final = "the job has no master"
POD_REPLACED: Final = "it has ended and is replaced"


def surplus_trainers(needed: int, alive: int) -> str:
    """A trainer beyond the size."""
    return f"the job needs {needed} of {alive} trainers"


def surplus_pservers(needed: int) -> str:
    """A parameter server that the trainers do not need."""
    return f"the job needs {needed} parameter servers"


def job_expired(ttl_s: int | None) -> str:
    """A job whose TTL after the end is over."""
    return f"it ended more than ttlSecondsAfterFinished {ttl_s} s ago"
