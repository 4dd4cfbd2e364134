"""What do the conditions of a TrainingJob say?

Takes the situation after acting, the plan and the time, gives the new list of conditions: `Admitted` and `Running` always,
`Scaling` once the job has run, `Waiting`, `Suspended`, `Unsupported` and `Invalid` while there is something to say,
`Succeeded` and `Failed` from the end on. Times move only when a status does. The stamp of a False `Admitted` is what both
rooms go by when a gang gave its room back (api/job_admission.py). Called by status.py; TJ §8.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import reduce
from typing import Final

from raytide.api import training_names as names
from raytide.api.conditions import (
    ConditionJson,
    Conditions,
    Saying,
    find_condition,
    is_condition_true,
    remove_condition,
    set_condition,
)
from raytide.api.faults import Violation
from raytide.api.job_admission import GIVES_BACK
from raytide.api.trainingjob import TrainingJob
from raytide.trainingjob.deciding.lifecycle import Verdict, has_minimum, has_run
from raytide.trainingjob.deciding.ranks import is_alive
from raytide.trainingjob.deciding.situation import Situation
from raytide.trainingjob.deciding.todo import Plan
from raytide.trainingjob.telling.waiting import late_text, waiting_of
from raytide.trainingjob.validation import unsupported

OPTIMISTIC: Final = "Optimistic"
MINIMUM_RUNS: Final = "MinimumRuns"
BELOW_MINIMUM: Final = "BelowMinimum"
SETTLED: Final = "Settled"


def conditions_of(now: Situation, todo: Plan, end: Verdict | None, at: datetime) -> list[dict[str, object]]:
    """All conditions of a valid job that has not ended before."""
    old: Conditions = tuple(now.job.status.get("conditions") or ())
    about_room = admitted(now, todo)
    if _is_new_stamp_due(about_room, old):
        old = remove_condition(old, names.ADMITTED)
    sayings: dict[str, Saying | None] = {names.ADMITTED: about_room, names.RUNNING: running(now, end)}
    sayings[names.SCALING] = None if end else scaling(now)
    sayings[names.WAITING] = None if end else waiting_of(now)
    sayings[names.SUSPENDED] = suspended(now.job, old)
    sayings[names.UNSUPPORTED] = unsupported_fields(now.job)
    sayings[names.INVALID] = None
    if end is not None:
        sayings[end.kind] = Saying(end.kind, status=True, reason=end.reason, message=end.message)
    return _told(old, sayings, at)


def conditions_after_the_end(now: Situation, at: datetime) -> list[dict[str, object]]:
    """Nothing changes any more, except that nothing runs or waits."""
    old: Conditions = tuple(now.job.status.get("conditions") or ())
    kind = next(kind for kind in (names.SUCCEEDED, names.FAILED) if is_condition_true(old, kind))
    over = Saying(names.RUNNING, status=False, reason=kind, message="the job has ended")
    gone = dict.fromkeys((names.SCALING, names.WAITING, names.INVALID), None)
    return _told(old, {names.RUNNING: over, **gone}, at)


def invalid_conditions(
    conditions: Sequence[ConditionJson], faults: Sequence[Violation], at: datetime
) -> list[dict[str, object]]:
    """The conditions as they were, plus every fault of the spec."""
    message = "; ".join(str(fault) for fault in faults)
    saying = Saying(names.INVALID, status=True, reason=names.INVALID_SPEC, message=message)
    return _told(tuple(conditions), {names.INVALID: saying}, at)


# --- one condition each ----------------------------------------------------------------------------------------------


def admitted(now: Situation, todo: Plan) -> Saying:
    """Whether the job may have pods; a gang keeps saying why it gave its room back until it is admitted again."""
    if now.job.spec.suspend:
        return Saying(names.ADMITTED, status=False, reason=names.SUSPENDED, message="spec.suspend is true")
    if todo.is_gang_late:
        return Saying(names.ADMITTED, status=False, reason=names.GANG_TIMEOUT, message=late_text(now))
    if not now.is_gang:
        message = "its pods are made at once, on the chance of room"
        return Saying(names.ADMITTED, status=True, reason=OPTIMISTIC, message=message)
    before = find_condition(now.job.status.get("conditions") or (), names.ADMITTED)
    if now.has_given_back and before is not None:
        return Saying(names.ADMITTED, status=False, reason=before["reason"], message=before["message"])
    if not now.may_have_pods:
        message = "it begins when all of its minimum has room"
        return Saying(names.ADMITTED, status=False, reason=names.WAITING, message=message)
    is_ready = before is not None and (before.get("status"), before.get("reason")) == ("True", names.GANG_READY)
    if is_ready or has_minimum(now.job, now.observed, now.counts):
        return Saying(names.ADMITTED, status=True, reason=names.GANG_READY, message="all of its minimum has run")
    return Saying(names.ADMITTED, status=True, reason=names.ADMITTED, message="its minimum has room and starts")


def running(now: Situation, end: Verdict | None) -> Saying:
    """Whether master, parameter servers and the minimum of trainers run, with the numbers."""
    if end is not None:
        return Saying(names.RUNNING, status=False, reason=end.kind, message="the job has ended")
    if now.job.spec.suspend:
        return Saying(names.RUNNING, status=False, reason=names.SUSPENDED, message="the job is suspended")
    runs = has_minimum(now.job, now.observed, now.counts)
    return Saying(names.RUNNING, status=runs, reason=MINIMUM_RUNS if runs else BELOW_MINIMUM, message=_numbers(now))


def scaling(now: Situation) -> Saying | None:
    """True from a change of the size until exactly the trainers wanted run, and nobody else any more."""
    status, wanted = now.job.status, now.job.trainers_wanted()
    if now.job.spec.suspend or not now.may_have_pods:
        return None
    if not has_run(now.job):
        # Said together with the first `Running`, so that the next look at the same pods has nothing to add (RM:I19).
        begins = now.may_have_pods and has_minimum(now.job, now.observed, now.counts)
        return Saying(names.SCALING, status=False, reason=SETTLED, message="") if begins else None
    before = (status.get(names.TRAINER) or {}).get("desired", wanted)
    old = find_condition(status.get("conditions") or (), names.SCALING)
    was_scaling = old is not None and old.get("status") == "True"
    if is_settled(now) or (before == wanted and not was_scaling):
        return Saying(names.SCALING, status=False, reason=SETTLED, message="")
    reason = names.SCALED_DOWN if wanted < before else names.SCALED_UP
    if before == wanted and old is not None:
        reason = str(old.get("reason"))
    message = f"{_running(now)} of {wanted} trainers run"
    return Saying(names.SCALING, status=True, reason=reason.replace("Scaled", "Scaling"), message=message)


def is_settled(now: Situation) -> bool:
    """Whether the pods are what the size asks for."""
    trainers = [pod for pod in now.observed.trainers if not pod.is_finished]
    here = sorted(pod.index for pod in trainers if pod.is_running and is_alive(pod) and pod.index is not None)
    servers = [pod for pod in now.observed.pservers if not pod.is_finished]
    are_settled = len(trainers) == len(here) and tuple(here) == now.wanted.active
    return are_settled and len(servers) == now.pservers


def suspended(job: TrainingJob, old: Conditions) -> Saying | None:
    """True while it is; False once it goes on; absent for a job that never was."""
    if job.spec.suspend:
        return Saying(names.SUSPENDED, status=True, reason="JobSuspended", message="spec.suspend is true")
    if find_condition(old, names.SUSPENDED) is None:
        return None
    return Saying(names.SUSPENDED, status=False, reason="JobResumed", message="")


def unsupported_fields(job: TrainingJob) -> Saying | None:
    """The fields of the spec that nothing here acts on; none is ignored silently."""
    fields = unsupported(job)
    if not fields:
        return None
    message = "; ".join(str(field) for field in fields)
    return Saying(names.UNSUPPORTED, status=True, reason="FeatureNotBuilt", message=message)


def _is_new_stamp_due(about_room: Saying, old: Conditions) -> bool:
    """Whether the stamp has to move although the status stays.

    When an admission ends that no status told of, because job_admission.py goes by the stamp; and when a job becomes a
    gang, whose time to come together begins now.
    """
    before = find_condition(old, names.ADMITTED)
    if before is None or before.get("reason") == about_room.reason:
        return False
    becomes_gang = about_room.reason == names.ADMITTED and before.get("reason") == OPTIMISTIC
    return becomes_gang or about_room.reason in GIVES_BACK


# --- parts -----------------------------------------------------------------------------------------------------------


def _numbers(now: Situation) -> str:
    parts = []
    if now.job.has_master:
        is_ready = any(pod.is_running_and_ready for pod in now.observed.masters if is_alive(pod))
        parts.append("master ready" if is_ready else "master not ready")
    if now.pservers:
        ready = sum(pod.is_running_and_ready for pod in now.observed.pservers if is_alive(pod))
        parts.append(f"{ready} of {now.pservers} parameter servers ready")
    done = f", {len(now.counts.completed)} done" if now.counts.completed else ""
    wanted, least = now.job.trainers_wanted(), now.job.spec.trainer.min_instance
    parts.append(f"{_running(now)} of {wanted} trainers run{done} (minimum {least})")
    return ", ".join(parts)


def _running(now: Situation) -> int:
    return sum(pod.is_running for pod in now.observed.trainers if is_alive(pod))


def _told(old: Conditions, sayings: dict[str, Saying | None], at: datetime) -> list[dict[str, object]]:
    def tell(so_far: Conditions, entry: tuple[str, Saying | None]) -> Conditions:
        kind, saying = entry
        if saying is None:
            return remove_condition(so_far, kind)
        return set_condition(so_far, kind, status=saying.status, reason=saying.reason, message=saying.message, now=at)

    return [dict(condition) for condition in reduce(tell, sayings.items(), old)]
