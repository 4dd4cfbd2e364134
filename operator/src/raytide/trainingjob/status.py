"""Status of a TrainingJob.

Takes the job as read, its observed state after the writes, the plan and its outcomes, and returns the whole status; the
difference to the one read is the patch (D8). Besides the fields for users (phase, conditions, numbers per role, score,
resize history) it holds what must survive a crash: which ended pods were counted, which trainers are done, since when
the job runs. Called by the reconciler once per reconcile; it writes nothing itself (TJ §8, §3 row 22).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from raytide.api import trainingjob_constants as constants
from raytide.api.actions import Outcome
from raytide.api.conditions import find_condition, is_condition_true, timestamp, without_unreached
from raytide.api.gang_admission import gang_timeouts, is_forbidden
from raytide.api.index_ranges import ranges_text
from raytide.api.merge_patch import merge_difference
from raytide.api.plan import earliest
from raytide.api.printable import escaped
from raytide.api.record_fields import diagnoses_entry
from raytide.api.sharing_record import MAX_RESIZES
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_pod import JobPod
from raytide.trainingjob.conditions import conditions_after_the_end, conditions_of, invalid_conditions
from raytide.trainingjob.lifecycle import (
    REJECTIONS_UNTIL_TIMEOUT,
    JobResult,
    deadline_left_s,
    gang_start_left_s,
    has_run,
    is_over,
    rejected_roles,
    ttl_left_s,
)
from raytide.trainingjob.observed import Observed
from raytide.trainingjob.plan_context import PlanContext, build_context
from raytide.trainingjob.plan_types import SOON_S, TrainingJobPlan
from raytide.trainingjob.restart_policy import TerminationCounts
from raytide.trainingjob.trainer_indices import is_alive
from raytide.trainingjob.waiting_condition import why_waiting

Status = dict[str, Any]

_STEERING: Final = ("failures", "completionTime", "startTime", "admission")
"""Fields that the next plan depends on: when they change, it is made without waiting for a watch event."""


def status(
    job: TrainingJob,
    observed: Observed,
    planned: TrainingJobPlan,
    outcomes: Sequence[Outcome],  # noqa: ARG001 - the signature is the same for both kinds
    now: datetime,
) -> Status:
    """The whole status for `now`; equal to the one read when nothing changed."""
    ctx = build_context(job, observed, planned.config)
    old = job.status
    new: Status = without_unreached(old, job.metadata.generation)
    new |= {**_roles(ctx), "failures": _failures(ctx.counts)}
    if is_over(old):
        new |= {"conditions": conditions_after_the_end(ctx, now), "diagnoses": []}
    elif planned.violations:
        new |= _of_invalid(ctx, planned, now)
    else:
        new |= _of_valid(ctx, planned, now)
    new = {key: value for key, value in new.items() if value not in (None, "", {}, [], ())}
    if merge_difference(old, new):
        new["lastUpdateTime"] = timestamp(now)
    return new


def requeue_after_s(job: TrainingJob, observed: Observed, computed: Mapping[str, Any], now: datetime) -> float | None:  # noqa: ARG001 - every room's door is the same
    """Seconds until time alone changes the status or the next plan; None when only a watch event can."""
    after = job.model_copy(update={"status": dict(computed)})
    deadlines = [deadline_left_s(after, observed), gang_start_left_s(after, observed), ttl_left_s(after, observed)]
    # A deadline that is due already is acted upon by the next plan; SOON_S requeues where the status comes first.
    waits = [left_s for left_s in deadlines if left_s is not None and left_s > 0]
    steers = any(job.status.get(part) != computed.get(part) for part in _STEERING)
    is_new = _is_admitted(job.status) != _is_admitted(computed)
    return earliest(min(waits, default=None), SOON_S if steers or is_new else None)


def _is_admitted(status_json: Mapping[str, Any]) -> bool:
    return is_condition_true(status_json.get("conditions") or (), constants.ADMITTED)


# --- parts -----------------------------------------------------------------------------------------------------------


def _of_invalid(ctx: PlanContext, planned: TrainingJobPlan, at: datetime) -> Status:
    """Status of an invalid job that has not ended: the previous one, and the suspension if `spec.suspend` is true.

    The generation is not observed: nothing else was done for it (RM:I9). The pods of a suspended job are deleted even
    if the rest of the spec is invalid; `Admitted` becomes False and the start time is reset.
    """
    old = ctx.job.status
    new: Status = {"phase": old.get("phase") or constants.PHASE_PENDING, "waiting": constants.INVALID_SPEC}
    conditions = old.get("conditions") or ()
    if ctx.job.spec.suspend:
        invalid = find_condition(conditions, constants.INVALID)
        conditions = conditions_of(ctx, planned, None, at)
        new |= {
            "phase": constants.PHASE_SUSPENDED,
            "startTime": None,
            "admission": _admission(ctx, planned, conditions),
        }
        conditions = (
            [*conditions, invalid] if invalid else conditions
        )  # else its transition time would be that of each pass
    return {**new, "conditions": invalid_conditions(conditions, planned.violations, at)}


def _of_valid(ctx: PlanContext, planned: TrainingJobPlan, at: datetime) -> Status:
    """All fields of a valid job that has not ended, except its numbers."""
    job, end = ctx.job, ctx.result
    new: Status = {
        "observedGeneration": job.metadata.generation,
        "conditions": conditions_of(ctx, planned, end, at),
        "scaling": _scaling(ctx),
        "startTime": _start_time(ctx, planned, at),
        "reason": end.reason if end else None,
        "message": escaped(end.message) if end else None,
        "restarts": ctx.counts.incidents.total,
    }
    waiting = find_condition(new["conditions"], constants.WAITING)
    new["waiting"] = waiting["reason"] if waiting else None
    lack = None if end else why_waiting(ctx)[0]
    new["diagnoses"] = diagnoses_entry([] if lack is None else [lack])
    new["admission"] = _admission(ctx, planned, new["conditions"])
    new["phase"] = _phase(ctx, end, new["conditions"])
    if end is not None:
        new["completionTime"] = timestamp(at)
    return new


def _roles(ctx: PlanContext) -> Status:
    """Numbers of pods per role; they depend on pods and bounds only, and are correct for an invalid spec too."""
    job = ctx.job
    trainer, pserver = job.spec.trainer, job.spec.pserver
    has_pods = ctx.may_have_pods and not is_over(job.status)
    wanted = job.desired_replicas() if has_pods else 0
    counts = ctx.counts
    roles: Status = {
        constants.TRAINER: {
            **_numbers(ctx.observed.trainers, wanted, counts.failed_by_role.get(constants.TRAINER, 0)),
            "succeeded": len(counts.completed),
            "min": trainer.min_instance,
            "max": trainer.ceiling,
            "fulfillment": _fulfillment(job, wanted),
            "completedIndexes": ranges_text(counts.completed),
            "failedIndexes": ranges_text(counts.permanently_failed),
        },
        "selector": f"{constants.JOB_LABEL}={job.metadata.name},{constants.ROLE_LABEL}={constants.TRAINER}",
    }
    if pserver is not None:
        roles[constants.PSERVER] = {
            **_numbers(
                ctx.observed.pservers,
                ctx.pservers if has_pods else 0,
                counts.failed_by_role.get(constants.PSERVER, 0),
            ),
            "min": pserver.min_instance,
            "max": pserver.ceiling,
        }
    if job.has_master:
        failed = counts.failed_by_role.get(constants.MASTER, 0)
        roles[constants.MASTER] = _numbers(ctx.observed.masters, int(has_pods), failed)
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
    """The score: 0 at the minimum, 1 at the maximum and where both are equal (TJ §3 row 13), 0 without trainers."""
    low, high = job.spec.trainer.min_instance, job.spec.trainer.ceiling
    if wanted <= 0:
        return 0.0
    return round((wanted - low) / (high - low), 3) if low < high else 1.0


def _scaling(ctx: PlanContext) -> Status:
    """The resize history of the record; if the record is lost, the stored history is kept."""
    if ctx.record is None or not ctx.record.resizes:
        return dict(ctx.job.status.get("scaling") or {})
    history: list[Status] = []
    for note in ctx.record.resizes[-MAX_RESIZES:]:
        entry = {"time": timestamp(note.at), "from": note.before, "to": note.after, "reason": escaped(note.reason)}
        entry |= {"message": escaped(note.message)} if note.message else {}
        history.append(entry | ({"forJob": escaped(note.for_job)} if note.for_job else {}))
    return {"lastScaleTime": history[-1]["time"], "lastReason": history[-1]["reason"], "history": history}


def _failures(counts: TerminationCounts) -> Status | None:
    """The input of the next tally."""
    counted = sorted({*counts.counted_uids, *(termination.pod.uid for termination in counts.new_terminations)})
    incidents = counts.incidents
    if not counted and counts.last_failure_at is None and incidents.disrupted_at is None:
        return None
    moments = {
        "lastTime": counts.last_failure_at,
        "incidentTime": incidents.began_at,
        "disruptionTime": incidents.disrupted_at,
    }
    return {
        "counted": counted,
        "inARow": counts.consecutive_failures,
        **({"incidents": dict(incidents.by_role)} if incidents.by_role else {}),
        **({"resizeIncidentTimes": [timestamp(each) for each in incidents.by_resize]} if incidents.by_resize else {}),
        **{name: timestamp(moment) for name, moment in moments.items() if moment is not None},
    }


def _start_time(ctx: PlanContext, planned: TrainingJobPlan, at: datetime) -> str | None:
    """Since when it may have pods; reset by a suspension or a release of capacity, as in Kubernetes' Job."""
    if not ctx.may_have_pods or planned.is_gang_late:
        return None
    return ctx.job.status.get("startTime") or timestamp(at)


def _admission(ctx: PlanContext, planned: TrainingJobPlan, conditions: Sequence[Mapping[str, Any]]) -> Status | None:
    """How often in a row its minimum did not start in time, reset once it has; and whether its pods are rejected.

    A job without pods creates none, so the last result is kept.
    """
    admitted = find_condition(conditions, constants.ADMITTED) or {}
    is_over_it = admitted.get("reason") == constants.GANG_READY or not (ctx.is_gang or planned.is_gang_late)
    times = 0 if is_over_it else gang_timeouts(ctx.job) + int(planned.is_gang_late)
    is_pod_forbidden = bool(rejected_roles(ctx.observed)) or (not ctx.may_have_pods and is_forbidden(ctx.job))
    repeatedly = bool(rejected_roles(ctx.observed, at_least=REJECTIONS_UNTIL_TIMEOUT))
    return {
        **({"timeouts": times} if times else {}),
        **({"forbidden": True} if is_pod_forbidden else {}),
        **({"repeatedlyForbidden": True} if repeatedly else {}),
    } or None


def _phase(ctx: PlanContext, end: JobResult | None, conditions: Sequence[Mapping[str, Any]]) -> str:
    """The phase (TJ §3 row 22); a job that has run and has no running trainer now is Pending again."""
    if end is not None:
        return end.kind
    if ctx.job.spec.suspend:
        return constants.PHASE_SUSPENDED
    if not ctx.may_have_pods:
        return constants.PHASE_PENDING
    runs = is_condition_true(conditions, constants.RUNNING)
    if not runs and not has_run(ctx.job):
        return constants.PHASE_CREATING
    if not runs and not any(pod.is_running and is_alive(pod) for pod in ctx.observed.trainers):
        return constants.PHASE_PENDING
    return constants.PHASE_SCALING if is_condition_true(conditions, constants.SCALING) else constants.PHASE_RUNNING
