"""Events of a TrainingJob that belong to no write.

Takes a job's situation and returns the events that follow from comparing it with the status as read: resizes that are
in the record and not in the history, a new reason to wait, contention for the size, pods that ended, the verdict. What is in the status has been
emitted already, so each event is emitted once even across restarts. Called by plan (TJ §7.8, §8 Events).
"""

from collections.abc import Iterator
from typing import Final

from raytide.api import trainingjob_constants as constants
from raytide.api.actions import EventSpec
from raytide.api.conditions import find_condition, parse_timestamp, timestamp
from raytide.api.pod_failure import Cause
from raytide.api.sharing_record import ADMITTED, AWAITING_NODES, ResizeNote
from raytide.diagnosis.render import note_with_fix
from raytide.trainingjob import messages
from raytide.trainingjob.conditions import replicas_contended
from raytide.trainingjob.plan_context import PlanContext
from raytide.trainingjob.restart_policy import FailureCause, PodTermination
from raytide.trainingjob.waiting_condition import WITHOUT_EVENT, waiting_condition

SCALE: Final = "Scale"
"""The action of events about resizes."""
_ADMISSIONS: Final = frozenset({ADMITTED, AWAITING_NODES})
NOT_CAPACITY: Final = frozenset(Cause) - {Cause.UNSCHEDULABLE, Cause.QUOTA}
"""Reasons to wait that are event reasons themselves: more capacity would not help."""


def events_of(ctx: PlanContext) -> tuple[EventSpec, ...]:
    """All events, in the order in which their causes happened."""
    return (*_resizes(ctx), *_endings(ctx), *_result(ctx), *_waiting(ctx), *_contention(ctx))


def resize_text(note: ResizeNote) -> str:
    """`ScaledDown 8→6 for ns/other, which needs 2 to reach its minimum`: the record's message with the sizes."""
    sizes = f"{note.before}→{note.after}"
    has_sizes = sizes in note.message or (note.reason in _ADMISSIONS and note.message)
    return note.message if has_sizes else f"{sizes} {note.message}".strip()


def unreported(ctx: PlanContext) -> tuple[ResizeNote, ...]:
    """Resizes in the record that are not in the status yet."""
    last = parse_timestamp(str((ctx.job.status.get("scaling") or {}).get("lastScaleTime")))
    reported = {
        (entry.get("time"), entry.get("from"), entry.get("to"))
        for entry in (ctx.job.status.get("scaling") or {}).get("history") or ()
    }
    notes = ctx.record.resizes if ctx.record is not None else ()
    return tuple(
        note
        for note in notes
        if (last is None or note.at >= last) and (_stamp(note), note.before, note.after) not in reported
    )


def _stamp(note: ResizeNote) -> str:
    return timestamp(note.at)


def _resizes(ctx: PlanContext) -> Iterator[EventSpec]:
    for note in unreported(ctx):
        text = resize_text(note)
        if note.reason in _ADMISSIONS:
            yield EventSpec(constants.ADMITTED, text, constants.TRAINER, "Normal", SCALE)
            continue
        reason = constants.SCALED_UP if note.after > note.before else constants.SCALED_DOWN
        yield EventSpec(reason, text, constants.TRAINER, "Normal", SCALE)


def _endings(ctx: PlanContext) -> Iterator[EventSpec]:
    for termination in ctx.counts.new_terminations[: messages.MAX_NAMED]:
        yield EventSpec(
            constants.POD_FAILED,
            messages.pod_ended(str(termination), _counting_message(ctx, termination)),
            termination.pod.role,
            action="Restart",
        )


def _counting_message(ctx: PlanContext, termination: PodTermination) -> str:
    """Whether a pod's termination counts, and against which limit; pods that fail together are one incident."""
    if termination.cause is FailureCause.DISRUPTION:
        return messages.uncounted_disruption()
    if termination.cause is FailureCause.PEER_FAILED:
        return messages.uncounted_peer()
    percent, counts = ctx.job.spec.max_failed_percent, ctx.counts.incidents
    if percent is not None and termination.pod.role == constants.TRAINER:
        failures = counts.by_role.get(constants.TRAINER, 0)
        return messages.counted_for_percent(failures, percent, ctx.job.spec.trainer.ceiling)
    others = counts.total - (counts.by_role.get(constants.TRAINER, 0) if percent is not None else 0)
    return messages.counted_for_backoff(others, ctx.job.spec.backoff_limit)


def _result(ctx: PlanContext) -> Iterator[EventSpec]:
    if ctx.result is not None:
        is_good = ctx.result.kind == constants.SUCCEEDED
        yield EventSpec(
            ctx.result.kind, ctx.result.message, event_type="Normal" if is_good else "Warning", action="End"
        )


def _waiting(ctx: PlanContext) -> Iterator[EventSpec]:
    """One event per change of the reason; none for transient reasons, nor where the job only could be larger."""
    waiting = waiting_condition(ctx)
    if waiting is None or waiting.status is False or waiting.reason in WITHOUT_EVENT or ctx.result is not None:
        return
    before = find_condition(ctx.job.status.get("conditions") or (), constants.WAITING)
    if before is None or before.get("reason") != waiting.reason:
        is_about_capacity = waiting.reason not in NOT_CAPACITY
        reason = constants.WAITING_FOR_RESOURCES if is_about_capacity else waiting.reason
        note = f"{waiting.reason}: {waiting.message}" if is_about_capacity else waiting.message
        yield EventSpec(reason, note_with_fix(note), action="Wait")


def _contention(ctx: PlanContext) -> Iterator[EventSpec]:
    """One event when `ReplicasContended` becomes True, and none when the numbers in its message change."""
    contended = replicas_contended(ctx)
    before = find_condition(ctx.job.status.get("conditions") or (), constants.REPLICAS_CONTENDED) or {}
    if contended is not None and contended.status is True and before.get("status") != "True" and ctx.result is None:
        yield EventSpec(constants.REPLICAS_CONTENDED, note_with_fix(contended.message), action=SCALE)
