"""What happened to a job that nobody wrote anything for?

Takes a job's situation and gives the events that follow from comparing it with the status as read: resizes that the
record tells and the history does not, a new reason to wait, pods that ended, faults of the spec. What the status says
already was told already, so each is told once even across restarts. Called by plan (TJ §7.8, §8 Events).
"""

from collections.abc import Iterator
from typing import Final

from raytide.api import training_names as names
from raytide.api.actions import Remark
from raytide.api.conditions import find_condition, moment_of
from raytide.api.pod_trouble import Cause
from raytide.api.sharing import ResizeNote
from raytide.elastic.model import ADMITTED, RECLAIMED
from raytide.trainingjob.deciding.lifecycle import MOST_NAMED
from raytide.trainingjob.deciding.restarts import Ending, Fault
from raytide.trainingjob.deciding.situation import Situation
from raytide.trainingjob.telling.waiting import IN_PASSING, waiting_of

SCALE: Final = "Scale"
"""The verb of events about resizes."""
NOT_ABOUT_ROOM: Final = frozenset(Cause) - {Cause.UNSCHEDULABLE, Cause.QUOTA}
"""Reasons to wait whose events are called as they are: more room would not help."""


def remarks_of(now: Situation) -> tuple[Remark, ...]:
    """Everything there is to tell, in the order in which it happened."""
    return (*_resizes(now), *_endings(now), *_verdict(now), *_waiting(now))


def resize_text(note: ResizeNote) -> str:
    """`ScaledDown 8→6 for ns/other, which needs 2 to reach its minimum`: the record's words, with numbers in any case."""
    sizes = f"{note.before}→{note.after}"
    says_sizes = sizes in note.message or (note.reason == ADMITTED and note.message)
    return note.message if says_sizes else f"{sizes} {note.message}".strip()


def untold(now: Situation) -> tuple[ResizeNote, ...]:
    """Resizes later than the last one in the status."""
    last = moment_of(str((now.job.status.get("scaling") or {}).get("lastScaleTime")))
    told = {
        (entry.get("time"), entry.get("from"), entry.get("to"))
        for entry in (now.job.status.get("scaling") or {}).get("history") or ()
    }
    notes = now.record.resizes if now.record is not None else ()
    return tuple(
        note
        for note in notes
        if (last is None or note.at >= last) and (_stamp(note), note.before, note.after) not in told
    )


def _stamp(note: ResizeNote) -> str:
    return note.at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _resizes(now: Situation) -> Iterator[Remark]:
    for note in untold(now):
        text = resize_text(note)
        if note.reason == ADMITTED:
            yield Remark(names.ADMITTED, text, names.TRAINER, "Normal", SCALE)
            continue
        reason = names.SCALED_UP if note.after > note.before else names.SCALED_DOWN
        yield Remark(reason, text, names.TRAINER, "Normal", SCALE)
        if note.reason == RECLAIMED and note.for_job:
            given = note.before - note.after
            yield Remark(
                names.RECLAIMED_FOR, f"{note.for_job} gets the room of {given}", names.TRAINER, "Normal", SCALE
            )


def _endings(now: Situation) -> Iterator[Remark]:
    for ending in now.counts.fresh[:MOST_NAMED]:
        yield Remark(names.POD_FAILED, f"{ending}; {_counted(now, ending)}", ending.pod.role, action="Restart")


def _counted(now: Situation, ending: Ending) -> str:
    """What its end does to the limits of the job; pods that end together are one failure."""
    if ending.fault is Fault.CLUSTER:
        return "counts against no limit"
    if ending.fault is Fault.PEER:
        return "counts against no limit, because a peer of it was taken, or the job was resized, a short while before"
    percent, counts = now.job.spec.max_failed_percent, now.counts.incidents
    if percent is not None and ending.pod.role == names.TRAINER:
        most = now.job.spec.trainer.ceiling
        return f"failure {counts.by_role.get(names.TRAINER, 0)}; up to {percent} % of {most} trainers may fail"
    others = counts.total - (counts.by_role.get(names.TRAINER, 0) if percent is not None else 0)
    return f"failure {others} of {now.job.spec.backoff_limit} that may be"


def _verdict(now: Situation) -> Iterator[Remark]:
    if now.verdict is not None:
        is_good = now.verdict.kind == names.SUCCEEDED
        yield Remark(now.verdict.kind, now.verdict.message, event_type="Normal" if is_good else "Warning", action="End")


def _waiting(now: Situation) -> Iterator[Remark]:
    """Once per change of reason; not for what ends by itself, nor where the job only could be larger."""
    waiting = waiting_of(now)
    if waiting is None or waiting.status is False or waiting.reason in IN_PASSING or now.verdict is not None:
        return
    before = find_condition(now.job.status.get("conditions") or (), names.WAITING)
    if before is None or before.get("reason") != waiting.reason:
        is_about_room = waiting.reason not in NOT_ABOUT_ROOM
        reason = names.WAITING_FOR_RESOURCES if is_about_room else waiting.reason
        note = f"{waiting.reason}: {waiting.message}" if is_about_room else waiting.message
        yield Remark(reason, note, action="Wait")
