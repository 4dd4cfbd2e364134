"""What does a TrainingJob's status say?

Takes the job as read, what is observed after acting, the plan and its outcomes, and gives the whole status; the
difference to the one read is the patch (D8). Besides what people read (phase, conditions, numbers per role, score, resize
history) it holds what must outlive a crash: which ended pods were counted, which trainers are done, since when the job
runs. Called by the controller once per pass; writes nothing itself (TJ §8, §3 row 22).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from raytide.api import training_names as names
from raytide.api.actions import Outcome
from raytide.api.conditions import find_condition, is_condition_true, timestamp
from raytide.api.index_ranges import ranges_text
from raytide.api.job_admission import gang_timeouts, is_forbidden
from raytide.api.job_pod import JobPod
from raytide.api.merge_patch import merge_difference
from raytide.api.sharing import MAX_RESIZES
from raytide.api.trainingjob import TrainingJob
from raytide.trainingjob.deciding.lifecycle import (
    REFUSED_FOR_GOOD,
    Verdict,
    deadline_left_s,
    gang_time_left_s,
    has_run,
    is_over,
    life_left_s,
    refused_roles,
)
from raytide.trainingjob.deciding.ranks import is_alive
from raytide.trainingjob.deciding.restarts import Tally
from raytide.trainingjob.deciding.situation import Situation, situation_of
from raytide.trainingjob.deciding.todo import SOON_S, Plan, sooner
from raytide.trainingjob.observed import Observed
from raytide.trainingjob.telling.conditions import conditions_after_the_end, conditions_of, invalid_conditions

Status = dict[str, Any]

_STEERING: Final = ("failures", "completionTime", "startTime", "admission")
"""Parts of a status by which the next plan goes: once they change, it is made without waiting for news."""


def status(job: TrainingJob, observed: Observed, todo: Plan, outcomes: Sequence[Outcome], now: datetime) -> Status:  # noqa: ARG001 - every room's door is the same
    """The whole status as it should read now; equal to the one read when nothing changed."""
    situation = situation_of(job, observed, todo.config)
    old = job.status
    new: Status = {**old, **_roles(situation), "failures": _failures(situation.counts)}
    if is_over(old):
        new["conditions"] = conditions_after_the_end(situation, now)
    elif todo.violations:
        new |= _of_invalid(situation, todo, now)
    else:
        new |= _of_valid(situation, todo, now)
    new = {key: value for key, value in new.items() if value not in (None, "", {}, [], ())}
    if merge_difference(old, new):
        new["lastUpdateTime"] = timestamp(now)
    return new


def status_patch(job: TrainingJob, computed: Mapping[str, Any]) -> Status | None:
    """The body of the status patch; None when there is nothing to write.

    Guarded by the version that was read, because a status endpoint takes no notice of a uid: a namesake, or a spec that
    changed meanwhile, is a Conflict.
    """
    difference = merge_difference(job.status, computed)
    if not difference:
        return None
    return {"metadata": {"resourceVersion": job.metadata.resource_version}, "status": difference}


def look_again_in(job: TrainingJob, observed: Observed, computed: Mapping[str, Any], now: datetime) -> float | None:  # noqa: ARG001 - every room's door is the same
    """Seconds until the status has to change, or be acted upon, though nothing happens; None when only news matter."""
    after = job.model_copy(update={"status": dict(computed)})
    deadlines = [deadline_left_s(after, observed), gang_time_left_s(after, observed), life_left_s(after, observed)]
    # What is due already is done by the next plan, which SOON_S brings about where the status had to come first.
    waits = [left_s for left_s in deadlines if left_s is not None and left_s > 0]
    steers = any(job.status.get(part) != computed.get(part) for part in _STEERING)
    is_new = _is_admitted(job.status) != _is_admitted(computed)
    return sooner(min(waits, default=None), SOON_S if steers or is_new else None)


def _is_admitted(status_json: Mapping[str, Any]) -> bool:
    return is_condition_true(status_json.get("conditions") or (), names.ADMITTED)


# --- parts -----------------------------------------------------------------------------------------------------------


def _of_invalid(now: Situation, todo: Plan, at: datetime) -> Status:
    """What an invalid job that has not ended says: what it said before, and that it is suspended if it is to be.

    The generation is not observed: nothing else was done about it (RM:I9). The pods of a suspended job go whatever the rest
    of the spec says, and so does all that a resume must not find: its admission and the beginning of its time.
    """
    old = now.job.status
    new: Status = {"phase": old.get("phase") or names.PHASE_PENDING, "waiting": names.INVALID_SPEC}
    conditions = old.get("conditions") or ()
    if now.job.spec.suspend:
        conditions = conditions_of(now, todo, None, at)
        new |= {"phase": names.PHASE_SUSPENDED, "startTime": None, "admission": _admission(now, todo, conditions)}
    return {**new, "conditions": invalid_conditions(conditions, todo.violations, at)}


def _of_valid(now: Situation, todo: Plan, at: datetime) -> Status:
    """Everything that a valid job that has not ended says besides its numbers."""
    job, end = now.job, now.verdict
    new: Status = {
        "observedGeneration": max(job.metadata.generation, int(job.status.get("observedGeneration") or 0)),
        "conditions": conditions_of(now, todo, end, at),
        "scaling": _scaling(now),
        "startTime": _start_time(now, todo, at),
        "reason": end.reason if end else None,
        "message": end.message if end else None,
        "restarts": now.counts.incidents.total,
    }
    waiting = find_condition(new["conditions"], names.WAITING)
    new["waiting"] = waiting["reason"] if waiting else None
    new["admission"] = _admission(now, todo, new["conditions"])
    new["phase"] = _phase(now, end, new["conditions"])
    if end is not None:
        new["completionTime"] = timestamp(at)
    return new


def _roles(now: Situation) -> Status:
    """How many of each role there are; only what depends on pods and bounds, so that it stays true whatever the spec."""
    job = now.job
    trainer, pserver = job.spec.trainer, job.spec.pserver
    has_pods = now.may_have_pods and not is_over(job.status)
    wanted = job.trainers_wanted() if has_pods else 0
    counts = now.counts
    roles: Status = {
        names.TRAINER: {
            **_numbers(now.observed.trainers, wanted, counts.failed_by_role.get(names.TRAINER, 0)),
            "succeeded": len(counts.completed),
            "min": trainer.min_instance,
            "max": trainer.ceiling,
            "fulfillment": _fulfillment(job, wanted),
            "completedIndexes": ranges_text(counts.completed),
            "failedIndexes": ranges_text(counts.dead),
        },
        "selector": f"{names.JOB_LABEL}={job.metadata.name},{names.ROLE_LABEL}={names.TRAINER}",
    }
    if pserver is not None:
        roles[names.PSERVER] = {
            **_numbers(
                now.observed.pservers,
                now.pservers if has_pods else 0,
                counts.failed_by_role.get(names.PSERVER, 0),
            ),
            "min": pserver.min_instance,
            "max": pserver.ceiling,
        }
    if job.has_master:
        failed = counts.failed_by_role.get(names.MASTER, 0)
        roles[names.MASTER] = _numbers(now.observed.masters, int(has_pods), failed)
    return roles


def _numbers(pods: Sequence[JobPod], desired: int, failed: int) -> Status:
    alive = [pod for pod in pods if is_alive(pod)]
    return {
        "desired": desired,
        "replicas": len(alive),
        "pending": sum(not pod.is_running for pod in alive),
        "running": sum(pod.is_running for pod in alive),
        "ready": sum(pod.is_running_and_ready for pod in alive),
        "failed": failed,
    }


def _fulfillment(job: TrainingJob, wanted: int) -> float:
    """The score: 0 at the minimum, 1 at the maximum and where both are one (TJ §3 row 13), 0 for whoever has nothing."""
    low, high = job.spec.trainer.min_instance, job.spec.trainer.ceiling
    if wanted <= 0:
        return 0.0
    return round((wanted - low) / (high - low), 3) if low < high else 1.0


def _scaling(now: Situation) -> Status:
    """The resize history, as the record tells it; a record that is lost takes no history with it."""
    if now.record is None or not now.record.resizes:
        return dict(now.job.status.get("scaling") or {})
    history: list[Status] = []
    for note in now.record.resizes[-MAX_RESIZES:]:
        entry = {"time": timestamp(note.at), "from": note.before, "to": note.after, "reason": note.reason}
        entry |= {"message": note.message} if note.message else {}
        history.append(entry | ({"forJob": note.for_job} if note.for_job else {}))
    return {"lastScaleTime": history[-1]["time"], "lastReason": history[-1]["reason"], "history": history}


def _failures(counts: Tally) -> Status | None:
    """What the next tally starts from."""
    counted = sorted({*counts.counted, *(ending.pod.uid for ending in counts.fresh)})
    incidents = counts.incidents
    if not counted and counts.last_at is None and incidents.disrupted_at is None:
        return None
    moments = {
        "lastTime": counts.last_at,
        "incidentTime": incidents.began_at,
        "disruptionTime": incidents.disrupted_at,
    }
    return {
        "counted": counted,
        "inARow": counts.in_a_row,
        **({"incidents": dict(incidents.by_role)} if incidents.by_role else {}),
        **({"resizeIncidentTimes": [timestamp(each) for each in incidents.by_resize]} if incidents.by_resize else {}),
        **{name: timestamp(moment) for name, moment in moments.items() if moment is not None},
    }


def _start_time(now: Situation, todo: Plan, at: datetime) -> str | None:
    """Since when it may have pods; a suspension, or room given back, starts it anew, as with Kubernetes' Job."""
    if not now.may_have_pods or todo.is_gang_late:
        return None
    return now.job.status.get("startTime") or timestamp(at)


def _admission(now: Situation, todo: Plan, conditions: Sequence[Mapping[str, Any]]) -> Status | None:
    """How often in a row its minimum did not start in time, forgotten once it has; and whether its pods are refused.

    While it has no pods nobody asks for any: then the last answer counts.
    """
    admitted = find_condition(conditions, names.ADMITTED) or {}
    is_over_it = admitted.get("reason") == names.GANG_READY or not (now.is_gang or todo.is_gang_late)
    times = 0 if is_over_it else gang_timeouts(now.job) + int(todo.is_gang_late)
    refused = bool(refused_roles(now.observed)) or (not now.may_have_pods and is_forbidden(now.job))
    repeatedly = bool(refused_roles(now.observed, at_least=REFUSED_FOR_GOOD))
    return {
        **({"timeouts": times} if times else {}),
        **({"forbidden": True} if refused else {}),
        **({"repeatedlyForbidden": True} if repeatedly else {}),
    } or None


def _phase(now: Situation, end: Verdict | None, conditions: Sequence[Mapping[str, Any]]) -> str:
    """One word for all of it (TJ §3 row 22); a job that has run, and of whose trainers none does now, waits again."""
    if end is not None:
        return end.kind
    if now.job.spec.suspend:
        return names.PHASE_SUSPENDED
    if not now.may_have_pods:
        return names.PHASE_PENDING
    runs = is_condition_true(conditions, names.RUNNING)
    if not runs and not has_run(now.job):
        return names.PHASE_CREATING
    if not runs and not any(pod.is_running and is_alive(pod) for pod in now.observed.trainers):
        return names.PHASE_PENDING
    return names.PHASE_SCALING if is_condition_true(conditions, names.SCALING) else names.PHASE_RUNNING
