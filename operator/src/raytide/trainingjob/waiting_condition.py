"""Condition `Waiting` of a TrainingJob: why it does not run, or is not larger.

Takes a job's situation, and returns the condition from the first cause that applies: the sharing pass's reason, a
rejection by the API server, a pod that cannot start, the backoff after a failure, the start order of the roles. Holder and
fix follow it, in the words of `raytide why` (SC:S21). It is True while the job lacks something it should have, False with a reason while it runs and could be larger, and None when
nothing is lacking. Called by plan for events and by status (TJ §6, §7.8, §8).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from raytide.api import trainingjob_constants as constants
from raytide.api.conditions import ConditionUpdate, find_condition, timestamp
from raytide.api.gang_admission import gang_timeouts, is_forbidden, may_be_admitted_at
from raytide.api.pod_failure import Cause, failure_of, failure_of_rejection
from raytide.api.trainingjob_pod import JobPod
from raytide.diagnosis.model import Diagnosis, Stage
from raytide.diagnosis.render import holder_and_fix
from raytide.trainingjob import messages
from raytide.trainingjob.causes import live_pods, located, workload_of
from raytide.trainingjob.lifecycle import has_minimum, rejected_roles, start_limit_s
from raytide.trainingjob.manifests.addresses import membership_name, pod_name, service_name
from raytide.trainingjob.plan_context import PlanContext
from raytide.trainingjob.trainer_indices import is_alive

MAX_LOOKED_AT: Final = 1000
"""How many names of one role are compared with names in use by other owners."""
WITHOUT_EVENT: Final = frozenset(
    {messages.BACKING_OFF, messages.WAITING_FOR_MASTER, messages.WAITING_FOR_PSERVERS, messages.POD_TERMINATING}
)
"""Transient reasons: shown in the condition while they last, but not emitted as events."""


def waiting_condition(ctx: PlanContext) -> ConditionUpdate | None:
    """`Waiting`: True below the minimum, False with a reason if only more trainers are wanted; None if nothing is missing.

    Also None for a job that is suspended or has ended.
    """
    lack, is_below_minimum = why_waiting(ctx)
    if lack is None:
        return None
    message = lack.message + holder_and_fix(lack, workload_of(ctx.job))
    return ConditionUpdate(constants.WAITING, status=is_below_minimum, reason=lack.reason, message=message)


def why_waiting(ctx: PlanContext) -> tuple[Diagnosis | None, bool]:
    """The diagnosis of `Waiting`, which `status.diagnoses` has too, and whether the job is below its minimum."""
    if ctx.job.spec.suspend:
        return None, False
    lack, is_below_minimum = _pods_not_ready(ctx) if ctx.may_have_pods else (_not_admitted(ctx), True)
    return None if lack is None else located(lack, live_pods(ctx.observed.pods)), is_below_minimum


def late_text(ctx: PlanContext) -> str:
    """Why a job releases its capacity, with what kept its pods from starting, which is lost once they are deleted."""
    lack = _create_rejected(ctx) or _name_conflict(ctx) or _failing_pods(ctx) or _start_order(ctx)
    return messages.start_timed_out(int(start_limit_s(ctx.job, ctx.observed)), lack.message if lack else "")


def _not_admitted(ctx: PlanContext) -> Diagnosis:
    """What a gang without pods waits for."""
    waiting = ctx.record.waiting if ctx.record is not None else None
    before = find_condition(ctx.job.status.get("conditions") or (), constants.ADMITTED) or {}
    revoked = str(before.get("message", ""))
    until = may_be_admitted_at(ctx.job) if ctx.admission_revoked and gang_timeouts(ctx.job) > 0 else None
    if until is not None and (until > ctx.observed.seen_at or waiting is None):
        return Diagnosis(constants.GANG_TIMEOUT, message=messages.not_admitted_before(revoked, timestamp(until)))
    if ctx.admission_revoked and is_forbidden(ctx.job):
        text = messages.not_admitted_after_rejection(revoked)
        return Diagnosis(Cause.FORBIDDEN.value, message=text, stage=Stage.DECISION)
    if waiting is not None:
        return waiting.diagnosis
    return Diagnosis(messages.NOT_ADMITTED, message=messages.not_admitted_yet())


def _pods_not_ready(ctx: PlanContext) -> tuple[Diagnosis | None, bool]:
    """What keeps pods from running, and whether the job is below its minimum, or only could be larger."""
    waiting = ctx.record.waiting if ctx.record is not None else None
    is_below_minimum = not has_minimum(ctx.job, ctx.observed, ctx.counts)
    if rejected_roles(ctx.observed) and is_below_minimum:
        return _create_rejected(ctx), True  # the API server's message is more specific than the sharing pass's reason
    if waiting is not None and waiting.is_below_minimum and is_below_minimum:
        return waiting.diagnosis, True
    found = _create_rejected(ctx) or _name_conflict(ctx) or _failing_pods(ctx) or _backing_off(ctx) or _start_order(ctx)
    if found is None and waiting is not None and not waiting.is_below_minimum:
        return waiting.diagnosis, False
    return found, True


def _create_rejected(ctx: PlanContext) -> Diagnosis | None:
    """The first rejection by the API server."""
    if not ctx.observed.pending_retries:
        return None
    retry = ctx.observed.pending_retries[0]
    failure = failure_of_rejection(retry.message)
    return Diagnosis(failure.reason, message=messages.create_rejected(retry.group.strip("()"), failure.message))


def _name_conflict(ctx: PlanContext) -> Diagnosis | None:
    """Names in use by children of an earlier job of this name, or by another owner's objects with our label."""
    job, roster = ctx.job, ctx.wanted.active
    needed = [service_name(job), membership_name(job), *([pod_name(job, constants.MASTER)] if job.has_master else ())]
    needed += [pod_name(job, constants.PSERVER, index) for index in range(min(ctx.pservers, MAX_LOOKED_AT))]
    needed += [pod_name(job, constants.TRAINER, index) for index in roster[:MAX_LOOKED_AT]]
    conflicting = [name for name in needed if name in ctx.observed.foreign_names] if ctx.observed.foreign_names else []
    return Diagnosis(Cause.NAME_TAKEN.value, message=messages.names_taken(conflicting)) if conflicting else None


def _failing_pods(ctx: PlanContext) -> Diagnosis | None:
    """What keeps pods from starting: the most frequent cause, with Kubernetes' message."""
    wanted = {
        constants.MASTER: int(ctx.job.has_master),
        constants.PSERVER: ctx.pservers,
        constants.TRAINER: len(ctx.wanted.active),
    }
    for role in constants.ROLES:
        pods = [pod for pod in ctx.observed.of(role) if is_alive(pod) and pod not in ctx.wanted.victims]
        if lack := _most_frequent_failure(role, pods, wanted[role]):
            return lack
    return None


def _most_frequent_failure(role: str, pods: Sequence[JobPod], wanted: int) -> Diagnosis | None:
    failures = [failure for pod in pods if (failure := failure_of(pod))]
    if not failures:
        return None
    most_frequent, number = Counter(failure.reason for failure in failures).most_common(1)[0]
    first = next(failure for failure in failures if failure.reason == most_frequent)
    text = messages.pods_cannot_start(role, number, wanted, first.message)
    return replace(first, message=text)


def _backing_off(ctx: PlanContext) -> Diagnosis | None:
    """The backoff after a failure; with its end as a time, because a number of seconds would change constantly."""
    until = ctx.counts.next_try_at
    if until is None or until <= ctx.observed.seen_at or not _lacks_pods(ctx):
        return None
    last = str(ctx.counts.new_terminations[-1]) if ctx.counts.new_terminations else ""
    return Diagnosis(
        messages.BACKING_OFF, message=messages.backing_off(ctx.counts.consecutive_failures, last, timestamp(until))
    )


def _lacks_pods(ctx: PlanContext) -> bool:
    alive = [pod for pod in ctx.observed.pods if is_alive(pod)]
    return len(alive) < int(ctx.job.has_master) + ctx.pservers + len(ctx.wanted.active)


def _start_order(ctx: PlanContext) -> Diagnosis | None:
    """What the next role waits for (TJ §6, #399)."""
    observed = ctx.observed
    has_trainers = any(map(is_alive, observed.trainers))
    if ctx.job.has_master and not any(pod.is_running_and_ready for pod in observed.masters if is_alive(pod)):
        return None if has_trainers else Diagnosis(messages.WAITING_FOR_MASTER, message=messages.waiting_for_master())
    ready = sum(pod.is_running_and_ready for pod in observed.pservers if is_alive(pod))
    if ready < ctx.pservers and not has_trainers:
        return Diagnosis(messages.WAITING_FOR_PSERVERS, message=messages.waiting_for_pservers(ready, ctx.pservers))
    there = {pod.index for pod in observed.trainers if is_alive(pod)}
    going = sorted(
        pod.name for pod in observed.trainers if pod.is_terminating and pod.index in set(ctx.wanted.active) - there
    )
    return Diagnosis(messages.POD_TERMINATING, message=messages.pods_terminating(going)) if going else None
