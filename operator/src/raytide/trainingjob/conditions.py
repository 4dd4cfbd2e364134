"""Status conditions of a TrainingJob.

Takes the situation after the writes, the plan and the time, and returns the new list of conditions: `Admitted` and
`Running` always, `Scaling` once the job has run, `Waiting`, `ReplicasContended`, `Suspended`, `Unsupported` and `Invalid` while they apply,
`Succeeded` and `Failed` once it has ended. lastTransitionTime changes only with a status; that of a False `Admitted` is
the time at which a gang released its capacity (api/gang_admission.py). Called by status.py; TJ §8.
"""

from collections.abc import Sequence
from datetime import datetime

from raytide.api import trainingjob_constants as constants
from raytide.api.conditions import (
    ConditionJson,
    Conditions,
    ConditionUpdate,
    apply_updates,
    find_condition,
    is_condition_true,
    remove_condition,
)
from raytide.api.gang_admission import REVOKED_REASONS, awaited_nodes
from raytide.api.trainingjob import TrainingJob
from raytide.api.violations import Violation
from raytide.diagnosis.render import holder_and_fix
from raytide.trainingjob import messages
from raytide.trainingjob.causes import contention, workload_of
from raytide.trainingjob.lifecycle import JobResult, has_minimum, has_run
from raytide.trainingjob.plan_context import PlanContext
from raytide.trainingjob.plan_types import TrainingJobPlan
from raytide.trainingjob.trainer_indices import is_alive
from raytide.trainingjob.validation import unsupported
from raytide.trainingjob.waiting_condition import late_text, waiting_condition


def conditions_of(
    ctx: PlanContext, planned: TrainingJobPlan, end: JobResult | None, at: datetime
) -> list[dict[str, object]]:
    """All conditions of a valid job that had not ended before."""
    old: Conditions = tuple(ctx.job.status.get("conditions") or ())
    admission = admitted(ctx, planned)
    if _is_new_stamp_due(admission, old):
        old = remove_condition(old, constants.ADMITTED)
    updates: dict[str, ConditionUpdate | None] = {constants.ADMITTED: admission, constants.RUNNING: running(ctx, end)}
    updates[constants.SCALING] = None if end else scaling(ctx)
    updates[constants.WAITING] = None if end else waiting_condition(ctx)
    updates[constants.REPLICAS_CONTENDED] = None if end else replicas_contended(ctx)
    updates[constants.SUSPENDED] = suspended(ctx.job, old)
    updates[constants.UNSUPPORTED] = unsupported_fields(ctx.job)
    updates[constants.INVALID] = None
    if end is not None:
        updates[end.kind] = ConditionUpdate(end.kind, status=True, reason=end.reason, message=end.message)
    return apply_updates(old, updates, at)


def conditions_after_the_end(ctx: PlanContext, at: datetime) -> list[dict[str, object]]:
    """The conditions of a job that had ended before: final, except that nothing runs or waits."""
    old: Conditions = tuple(ctx.job.status.get("conditions") or ())
    kind = next(kind for kind in (constants.SUCCEEDED, constants.FAILED) if is_condition_true(old, kind))
    over = messages.not_running_after_the_end(kind)
    gone = dict.fromkeys((constants.SCALING, constants.WAITING, constants.REPLICAS_CONTENDED, constants.INVALID), None)
    return apply_updates(old, {constants.RUNNING: over, **gone}, at)


def invalid_conditions(
    conditions: Sequence[ConditionJson], violations: Sequence[Violation], at: datetime
) -> list[dict[str, object]]:
    """The stored conditions of a TrainingJob, plus `Invalid` with every violation of its spec."""
    message = "; ".join(str(violation) for violation in violations)
    update = ConditionUpdate(constants.INVALID, status=True, reason=constants.INVALID_SPEC, message=message)
    return apply_updates(tuple(conditions), {constants.INVALID: update}, at)


# --- one condition each ----------------------------------------------------------------------------------------------


def admitted(ctx: PlanContext, planned: TrainingJobPlan) -> ConditionUpdate:
    """`Admitted`: whether the job may have pods; a gang that released its capacity keeps the reason."""
    if ctx.job.spec.suspend:
        return messages.not_admitted_while_suspended()
    if planned.is_gang_late:
        return messages.admission_timed_out(late_text(ctx))
    if not ctx.is_gang:
        return messages.admitted_without_gang()
    before = find_condition(ctx.job.status.get("conditions") or (), constants.ADMITTED)
    if ctx.admission_revoked and before is not None:
        return messages.admission_stays_revoked(before["reason"], before["message"])
    if not ctx.may_have_pods:
        return messages.waits_for_admission()
    is_ready = before is not None and (before.get("status"), before.get("reason")) == ("True", constants.GANG_READY)
    if is_ready or has_minimum(ctx.job, ctx.observed, ctx.counts):
        return messages.gang_is_ready()
    return messages.gang_is_starting(awaits_nodes=awaited_nodes(ctx.job))


def running(ctx: PlanContext, end: JobResult | None) -> ConditionUpdate:
    """`Running`: whether master, parameter servers and the minimum of trainers run, with the numbers."""
    if end is not None:
        return messages.not_running_after_the_end(end.kind)
    if ctx.job.spec.suspend:
        return messages.not_running_while_suspended()
    return messages.running(_numbers(ctx), has_minimum=has_minimum(ctx.job, ctx.observed, ctx.counts))


def scaling(ctx: PlanContext) -> ConditionUpdate | None:
    """`Scaling`: True from a change of the size until exactly the wanted trainers run."""
    status, wanted = ctx.job.status, ctx.job.desired_replicas()
    if ctx.job.spec.suspend or not ctx.may_have_pods:
        return None
    if not has_run(ctx.job):
        # Set together with the first `Running`, so that another reconcile of the same pods changes nothing (RM:I19).
        return messages.settled() if has_minimum(ctx.job, ctx.observed, ctx.counts) else None
    last_wanted = (status.get(constants.TRAINER) or {}).get("desired", wanted)
    old = find_condition(status.get("conditions") or (), constants.SCALING)
    was_scaling = old is not None and old.get("status") == "True"
    if is_settled(ctx) or (last_wanted == wanted and not was_scaling):
        return messages.settled()
    reason = constants.SCALING_DOWN if wanted < last_wanted else constants.SCALING_UP
    if last_wanted == wanted and old is not None:
        reason = str(old.get("reason"))
    return messages.scaling(reason, _running(ctx), wanted)


def replicas_contended(ctx: PlanContext) -> ConditionUpdate | None:
    """`ReplicasContended`: a size that another client wrote and sharing did not keep; True from the second one in a row on.

    A size below the ordered one counts at once, so that the first one is no contention.
    """
    record, note = ctx.record, ctx.record.request if ctx.record is not None else None
    if record is None or note is None or not ctx.may_have_pods:
        return None
    is_repeated = note.times > 1
    if note.replicas <= record.replicas and not is_repeated:
        return None
    found = contention(note, record.replicas)
    message = found.message + holder_and_fix(found, workload_of(ctx.job))
    return ConditionUpdate(constants.REPLICAS_CONTENDED, status=is_repeated, reason=found.reason, message=message)


def is_settled(ctx: PlanContext) -> bool:
    """Whether the pods match the size."""
    trainers = [pod for pod in ctx.observed.trainers if not pod.is_finished]
    here = sorted(pod.index for pod in trainers if pod.is_running and is_alive(pod) and pod.index is not None)
    servers = [pod for pod in ctx.observed.pservers if not pod.is_finished]
    are_settled = len(trainers) == len(here) and tuple(here) == ctx.wanted.active
    return are_settled and len(servers) == ctx.pservers


def suspended(job: TrainingJob, old: Conditions) -> ConditionUpdate | None:
    """`Suspended`: True while suspended; False after a resume; None for a job that was never suspended."""
    if job.spec.suspend:
        return messages.is_suspended()
    if find_condition(old, constants.SUSPENDED) is None:
        return None
    return messages.is_resumed()


def unsupported_fields(job: TrainingJob) -> ConditionUpdate | None:
    """`Unsupported`: the fields of the spec that have no effect, so that none is ignored silently."""
    fields = unsupported(job)
    if not fields:
        return None
    message = "; ".join(str(field) for field in fields)
    return ConditionUpdate(constants.UNSUPPORTED, status=True, reason=constants.FEATURE_NOT_BUILT, message=message)


def _is_new_stamp_due(admission: ConditionUpdate, old: Conditions) -> bool:
    """Whether lastTransitionTime has to change although the status stays.

    It does when an admission ends that was never stored in the status, because api/gang_admission.py compares the
    times; and when a job becomes a gang, whose start time-out begins now.
    """
    before = find_condition(old, constants.ADMITTED)
    if before is None or before.get("reason") == admission.reason:
        return False
    becomes_gang = admission.reason == constants.ADMITTED and before.get("reason") == messages.OPTIMISTIC
    return becomes_gang or admission.reason in REVOKED_REASONS


# --- parts -----------------------------------------------------------------------------------------------------------


def _numbers(ctx: PlanContext) -> str:
    masters = [pod.is_running_and_ready for pod in ctx.observed.masters if is_alive(pod)]
    ready = sum(pod.is_running_and_ready for pod in ctx.observed.pservers if is_alive(pod))
    trainers = (_running(ctx), ctx.job.desired_replicas(), len(ctx.counts.completed))
    return messages.pod_numbers(
        (ready, ctx.pservers),
        trainers,
        ctx.job.spec.trainer.min_instance,
        is_master_ready=any(masters) if ctx.job.has_master else None,
    )


def _running(ctx: PlanContext) -> int:
    return sum(pod.is_running for pod in ctx.observed.trainers if is_alive(pod))
