"""What has to be written on each job so that the division comes true?

Takes the jobs, the pool they were in and the division, gives one `Order` per job whose size or record changes: shrinks
first, then growth, then words alone. Growth that is not released is not written; words that only got older are written
again when the last ones are 30 s old; a size that somebody else wrote is noted as `Requested`. Pure; carried out by
controller.py (TJ §3 rows 19 and 21, §4 step 4).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Final

from raytide.api import training_names
from raytide.api.conditions import timestamp
from raytide.api.job_admission import gang_timeouts, is_admitted
from raytide.api.meta import Key, Manifest
from raytide.api.sharing import MAX_RESIZES, REQUESTED, ResizeNote, SharingRecord, WaitingNote, encode_record
from raytide.api.trainingjob import TrainingJob
from raytide.elastic.model import Division, Participant, ParticipantId, Pool, Resize, Waiting
from raytide.sharing.claims import admission_waits_until, given_up, ordered_size, record_of, takes_part
from raytide.sharing.participants import id_of

WORDS_LAST_S: Final = 30.0
"""A message that says the same in other numbers is written again after so long."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is written on one job, in one patch."""

    job: TrainingJob
    """As it was when this was decided."""
    replicas: int | None
    """None: the spec stays as it is."""
    record: SharingRecord
    grows_by: int = 0
    """Negative for a shrink, 0 for words alone."""
    in_full: str = ""
    """What the resize is about, with the names of other namespaces: for the operator's log alone (FD:SEC-F7)."""

    def patch(self, version: str) -> Manifest:
        """The body of a merge patch that the API refuses unless the job still has this resourceVersion."""
        annotations = {training_names.SHARING_ANNOTATION: encode_record(self.record)}
        body: Manifest = {"metadata": {"resourceVersion": version, "annotations": annotations}}
        if self.replicas is not None:
            body["spec"] = {"trainer": {"replicas": self.replicas}}
        return body

    def still_holds_for(self, job: TrainingJob) -> bool:
        """Whether a newer state of the job differs in nothing that the decision was made from."""
        old = self.job
        return (
            job.metadata.uid == old.metadata.uid
            and job.metadata.generation == old.metadata.generation
            and _text(job) == _text(old)
            and takes_part(job) == takes_part(old)
        )


@dataclass(frozen=True, slots=True)
class Orders:
    """Everything that has to be written, in order."""

    given: tuple[Order, ...] = ()
    has_older_words: bool = False
    """Whether a message somewhere says something a little out of date, and is to be written when it is older."""


class _Later(Enum):
    LATER = "only words that may still wait"


_LATER: Final = _Later.LATER


def orders_of(jobs: Iterable[TrainingJob], pool: Pool, division: Division, now: datetime) -> Orders:
    """What the division means for each job."""
    now = now.replace(microsecond=0)
    participants = {each.id: each for each in pool.participants}
    resizes: dict[ParticipantId, list[Resize]] = {}
    for resize in division.resizes:
        resizes.setdefault(resize.id, []).append(resize)
    waiting = {each.id: each for each in division.waiting}
    found = [
        _order(job, participants.get(id_of(job.key)), resizes.get(id_of(job.key), []), waiting, now) for job in jobs
    ]
    places = {id_: place for place, id_ in enumerate(resizes)}

    def place(order: Order) -> tuple[int, int, Key]:
        return _phase(order), places.get(id_of(order.job.key), len(places)), order.job.key

    given = sorted((order for order in found if isinstance(order, Order)), key=place)
    return Orders(tuple(given), has_older_words=any(order is _LATER for order in found))


def _phase(order: Order) -> int:
    return 0 if order.grows_by < 0 else 1 if order.grows_by > 0 else 2


def _order(
    job: TrainingJob,
    participant: Participant | None,
    resizes: list[Resize],
    waiting: Mapping[ParticipantId, Waiting],
    now: datetime,
) -> Order | _Later | None:
    if participant is None:
        return _held_back(job, now)
    record, ordered = record_of(job), _ordered(job, participant)
    lost = given_up(job)
    resizes = [replace(each, before=each.before + lost, after=each.after + lost) for each in resizes]
    released = _released(resizes)
    after = released[-1].after if released else ordered
    if after > 0 or participant.current > 0 or not participant.is_gang:
        changed = _begun(job, record, participant, ordered, released=released, now=now)
    else:
        changed = SharingRecord(uid=job.metadata.uid, replicas=0, resizes=record.resizes if record else ())
    note = _note(waiting.get(participant.id), resizes[len(released) :], participant)
    is_written = changed.replicas != job.spec.trainer.replicas and (after > 0 or not participant.is_gang)
    in_full = released[-1].full_message if released else ""
    order = Order(job, changed.replicas if is_written else None, changed, after - ordered, in_full)
    return _if_changed(order, record, note, now)


def _ordered(job: TrainingJob, participant: Participant) -> int:
    """What the spec wants, as written; 0 for a gang that has not begun."""
    is_waiting = participant.is_gang and participant.current == 0 and participant.ceiling > 0
    return 0 if is_waiting else ordered_size(job)


def _released(resizes: list[Resize]) -> list[Resize]:
    """Up to the first that has to wait."""
    count = next((i for i, resize in enumerate(resizes) if not resize.is_released), len(resizes))
    return resizes[:count]


def _begun(
    job: TrainingJob,
    record: SharingRecord | None,
    participant: Participant,
    ordered: int,
    *,
    released: list[Resize],
    now: datetime,
) -> SharingRecord:
    notes = list(record.resizes) if record else []
    if record is not None and record.replicas != ordered and participant.current > 0 and not _begins(job, record):
        notes.append(ResizeNote(now, record.replicas, ordered, REQUESTED, f"{record.replicas}→{ordered} in the spec"))
    notes += [_resize_note(resize, now) for resize in released]
    after = released[-1].after if released else ordered
    is_new = participant.is_gang and not is_admitted(job, record)
    return SharingRecord(
        uid=job.metadata.uid,
        replicas=after,
        pservers=_pservers(job, after),
        is_admitted=True,
        admitted_at=now if is_new or record is None else record.admitted_at,
        resizes=tuple(notes[-MAX_RESIZES:]),
    )


def _begins(job: TrainingJob, record: SharingRecord) -> bool:
    """Whether the record is from before the job could have pods: nobody asked for another size then."""
    return record.replicas == 0 and job.spec.trainer.min_instance > 0


def _resize_note(resize: Resize, now: datetime) -> ResizeNote:
    is_readable = resize.for_id is not None and resize.for_id.namespace == resize.id.namespace
    for_job = str(resize.for_id) if is_readable else ""
    return ResizeNote(now, resize.before, resize.after, resize.reason, resize.message, for_job)


def _pservers(job: TrainingJob, trainers: int) -> int | None:
    pserver = job.spec.pserver
    return pserver.count_for(trainers) if pserver is not None and pserver.is_by_ratio else None


def _note(waiting: Waiting | None, promised: list[Resize], participant: Participant) -> WaitingNote | None:
    if promised:  # what comes after the promise is of no interest before it is kept
        first = promised[0]
        words = f"{first.message}; waits until the pods that leave are gone"
        return WaitingNote(training_names.AWAITING_ROOM, words, first.before < participant.floor)
    if waiting is not None:
        return WaitingNote(waiting.reason, waiting.message, waiting.is_below_floor)
    return None


def _held_back(job: TrainingJob, now: datetime) -> Order | _Later | None:
    """A gang that did not come together keeps a distance before it is admitted again."""
    until = admission_waits_until(job, now)
    if until is None or not takes_part(job) or gang_timeouts(job) == 0:
        return None
    record = record_of(job)
    kept = SharingRecord(job.metadata.uid, 0, resizes=record.resizes if record else ())
    words = f"its pods did not all run in time; it may be admitted again at {timestamp(until)}"
    return _if_changed(Order(job, None, kept), record, WaitingNote(training_names.GANG_TIMEOUT, words), now)


def _if_changed(
    order: Order, old: SharingRecord | None, note: WaitingNote | None, now: datetime
) -> Order | _Later | None:
    """The order with its words, or None where everything is written already."""
    record = order.record
    is_same = old is not None and order.replicas is None and replace(record, waiting=old.waiting, at=old.at) == old
    if old is not None and is_same and old.waiting == note:
        return None
    if old is not None and is_same and _may_wait(old, note, now):
        return _LATER
    return replace(order, record=replace(record, waiting=note, at=now))


def _may_wait(old: SharingRecord, note: WaitingNote | None, now: datetime) -> bool:
    """Whether the reason is the same, and its words are fresh enough."""
    known = old.waiting
    if known is None or note is None or (known.reason, known.is_below_minimum) != (note.reason, note.is_below_minimum):
        return False
    return old.at is not None and (now - old.at).total_seconds() < WORDS_LAST_S


def _text(job: TrainingJob) -> str | None:
    return job.metadata.annotations.get(training_names.SHARING_ANNOTATION)
