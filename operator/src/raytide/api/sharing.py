"""What did the sharing pass decide for one job, and why?

The record it writes beside `spec.trainer.replicas`, in the same patch, as one annotation: whether the job may begin, why
it waits, and its last resizes. The job's own passes obey it and put its words into conditions, events and status, so that
neither side needs a memory (as D19). Reading forgives everything: unknown fields are skipped, nonsense is no record.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from raytide.api.conditions import moment_of, timestamp
from raytide.api.quantity import MAX_INT32
from raytide.api.wording import cut

VERSION: Final = 1
MAX_RESIZES: Final = 10
MAX_MESSAGE_LENGTH: Final = 1000
MAX_NAME_LENGTH: Final = 512
MAX_RECORD_BYTES: Final = 64 * 1024
REQUESTED: Final = "Requested"
"""Reason of a resize that somebody else ordered by writing `replicas` (TJ §3 row 21)."""


@dataclass(frozen=True, slots=True)
class ResizeNote:
    """One resize that was ordered: TJ §8 `scaling.history`."""

    at: datetime
    before: int
    after: int
    reason: str
    """A reason of elastic/model.py, or `Requested` where somebody else wrote `replicas`."""
    message: str = ""
    for_job: str = ""
    """namespace/name of the job for which it was taken."""


@dataclass(frozen=True, slots=True)
class WaitingNote:
    """Why the job is below its minimum, or not larger."""

    reason: str
    message: str
    is_below_minimum: bool = True


@dataclass(frozen=True, slots=True)
class SharingRecord:
    """The whole record; `uid` is the job's, so that a record copied with a manifest means nothing."""

    uid: str
    replicas: int
    """What was ordered last; another number in the spec is somebody else's request (TJ §3 row 21)."""
    pservers: int | None = None
    """How many go with them under `Ratio`; None: the spec's minimum."""
    is_admitted: bool = False
    """Whether a gang may begin; others begin without."""
    admitted_at: datetime | None = None
    """When `is_admitted` was ordered last. A gang that gave its room back later than that is not admitted any more, and
    needs a new order (api/job_admission.py)."""
    waiting: WaitingNote | None = None
    resizes: tuple[ResizeNote, ...] = ()
    """The last ten, oldest first."""
    at: datetime | None = None
    """When something in it changed last (whole seconds)."""


# --- read ------------------------------------------------------------------------------------------------------------


def parse_record(text: str | None) -> SharingRecord | None:
    """The record in the annotation; None when there is none, or none that can be read."""
    if not text or len(text) > MAX_RECORD_BYTES:
        return None
    try:
        document = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
    if not isinstance(document, dict):
        return None
    uid, replicas = document.get("uid"), _count(document.get("replicas"))
    if not isinstance(uid, str) or not uid or replicas is None:
        return None
    return SharingRecord(
        uid=uid,
        replicas=replicas,
        pservers=_count(document.get("pservers")),
        is_admitted=document.get("admitted") is True,
        admitted_at=_moment(document.get("admittedAt")),
        waiting=_waiting(document.get("waiting")),
        resizes=_resizes(document.get("resizes")),
        at=_moment(document.get("at")),
    )


def _waiting(entry: Any) -> WaitingNote | None:
    if not isinstance(entry, dict) or not _text(entry.get("reason")):
        return None
    return WaitingNote(_text(entry["reason"]), _text(entry.get("message")), entry.get("belowMinimum") is not False)


def _resizes(entries: Any) -> tuple[ResizeNote, ...]:
    found = [_resize(entry) for entry in entries] if isinstance(entries, list) else []
    return tuple(note for note in found if note is not None)[-MAX_RESIZES:]


def _resize(entry: Any) -> ResizeNote | None:
    if not isinstance(entry, dict):
        return None
    at, before, after = _moment(entry.get("at")), _count(entry.get("from")), _count(entry.get("to"))
    if at is None or before is None or after is None or not _text(entry.get("reason")):
        return None
    return ResizeNote(
        at, before, after, _text(entry["reason"]), _text(entry.get("message")), _text(entry.get("forJob"))
    )


def _text(found: Any) -> str:
    return found if isinstance(found, str) else ""


def _count(found: Any) -> int | None:
    """A whole number that a count of replicas can be; `true` is none."""
    is_count = isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= MAX_INT32
    return found if is_count else None


def _moment(found: Any) -> datetime | None:
    return moment_of(found) if isinstance(found, str) else None


# --- write -----------------------------------------------------------------------------------------------------------


def encode_record(record: SharingRecord) -> str:
    """The annotation's text: the last ten resizes, no message longer than 1,000 characters."""
    document: dict[str, Any] = {"v": VERSION, "uid": record.uid, "replicas": record.replicas}
    if record.pservers is not None:
        document["pservers"] = record.pservers
    document["admitted"] = record.is_admitted
    if record.admitted_at is not None:
        document["admittedAt"] = timestamp(record.admitted_at)
    if record.at is not None:
        document["at"] = timestamp(record.at)
    if record.waiting is not None:
        document["waiting"] = {
            "reason": record.waiting.reason[:MAX_NAME_LENGTH],
            "message": cut(record.waiting.message, MAX_MESSAGE_LENGTH),
            "belowMinimum": record.waiting.is_below_minimum,
        }
    if record.resizes:
        document["resizes"] = [_entry(note) for note in record.resizes[-MAX_RESIZES:]]
    return msgspec.json.encode(document).decode()


def _entry(note: ResizeNote) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "at": timestamp(note.at),
        "from": note.before,
        "to": note.after,
        "reason": note.reason[:MAX_NAME_LENGTH],
        "message": cut(note.message, MAX_MESSAGE_LENGTH),
    }
    if note.for_job:
        entry["forJob"] = note.for_job[:MAX_NAME_LENGTH]
    return entry
