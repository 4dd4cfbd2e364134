"""Size requests: what becomes of a size that another client writes to `spec.trainer.replicas`.

A smaller size counts at once. A larger one is a request: sharing grants free capacity for it, also in a growth cooldown, and the
granted size replaces the one in the spec. Clients that write again and again (an HPA, GitOps, a loop) are answered after pauses
that double, as are those that undo what sharing has grown. Input: a job, its record and the time. Output: the request, when
it is answered, and the note about it. Pure; called by eligibility.py and patch_plan.py (TJ §3 row 21; FD:TJ3-2).
"""

from datetime import datetime, timedelta
from typing import Final

from raytide.api.conditions import cut
from raytide.api.field_managers import last_entry
from raytide.api.meta import Manifest
from raytide.api.sharing_record import MAX_TIMES, MAX_WRITER_LENGTH, REQUESTED, RequestNote, SharingRecord
from raytide.api.trainingjob import TrainingJob

FIRST_PAUSE_S: Final = 30.0
LONGEST_PAUSE_S: Final = 300.0
REMEMBERED: Final = timedelta(seconds=LONGEST_PAUSE_S)
"""How long a request counts for the next one after it was answered: GitOps tools compare every 3 to 5 minutes."""
CLOCK_TOLERANCE: Final = timedelta(minutes=1)
"""What is further in the future than this is ignored: a clock that was set back since then recorded it (RM:F9)."""
_PATH: Final = ("spec", "trainer", "replicas")


def requested_size(job: TrainingJob) -> int | None:
    """The size in the spec if it is larger than the ordered one; None: no client requests more."""
    written = job.spec.trainer.replicas
    return written if written is not None and written > job.ordered_replicas() else None


def last_request(job: TrainingJob, now: datetime) -> RequestNote | None:
    """The last request, unless it was so long ago that it does not count any more; it counts while another one is not answered."""
    record = job.record
    note = record.request if record is not None else None
    if record is None or note is None or note.at > now + CLOCK_TOLERANCE:
        return None
    return note if requested_size(job) is not None or now < _forgotten_at(note, record) else None


def pause_until(note: RequestNote) -> datetime:
    """Until when the next request is not answered: the first two are, because a user may correct a number."""
    pause_s = 0.0 if note.times < 2 else min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (note.times - 2))
    return note.at + timedelta(seconds=pause_s)


def changes_at(note: RequestNote, record: SharingRecord, now: datetime) -> datetime | None:
    """When time alone changes what becomes of requests: the pause ends, or the note is removed."""
    moments = pause_until(note), _forgotten_at(note, record)
    return min((moment for moment in moments if moment > now), default=None)


def next_note(job: TrainingJob, size: int, answered: int | None, now: datetime) -> RequestNote | None:
    """The note after a pass in which the job has that size; `answered` is a request that this pass answers.

    A size below the ordered one has come into effect already; it counts only if sharing has grown the job since the last one.
    """
    record, ordered = job.record, job.ordered_replicas()
    if record is None or not record.is_admitted:
        return None
    last = last_request(job, now)
    times = 0 if last is None else last.times
    if answered is not None and answered > size:
        return RequestNote(now, answered, min(MAX_TIMES, times + 1), writer_of(job))
    if ordered < record.replicas:
        is_undone = last is not None and not is_for_more(last, record) and not _was_requested(record)
        return RequestNote(now, ordered, min(MAX_TIMES, times + is_undone), writer_of(job))
    if last is not None and is_for_more(last, record) and last.replicas <= size:
        return None  # sharing has reached it
    return last


def is_for_more(note: RequestNote, record: SharingRecord) -> bool:
    """Whether it was for more than was granted; otherwise it was for less, which sharing grows again."""
    return note.replicas > record.replicas


def writer_of(job: TrainingJob) -> str:
    """The field manager, other than the operator, that wrote the size; empty if it is not known."""
    entry = last_entry(job.raw, *_PATH)
    return cut(str((entry or {}).get("manager") or ""), MAX_WRITER_LENGTH)


def writer_part(obj: Manifest) -> Manifest:
    """The part of the raw object that `writer_of` reads."""
    entry = last_entry(obj, *_PATH)
    if entry is None:
        return {}
    kept = {"manager": str(entry.get("manager") or "")[: MAX_WRITER_LENGTH + 1], "time": str(entry.get("time"))[:64]}
    fields: Manifest = {"f:spec": {"f:trainer": {"f:replicas": {}}}}
    return {"metadata": {"managedFields": [{**kept, "fieldsV1": fields}]}}


def _was_requested(record: SharingRecord) -> bool:
    return bool(record.resizes) and record.resizes[-1].reason == REQUESTED


def _forgotten_at(note: RequestNote, record: SharingRecord) -> datetime:
    """A size that is too small is written again only after the growth that waits for the pause."""
    return (note.at if is_for_more(note, record) else pause_until(note)) + REMEMBERED
