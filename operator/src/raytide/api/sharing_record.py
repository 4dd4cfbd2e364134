"""The sharing record: fair sharing's decision for one job and its reasons.

Fair sharing writes it as one annotation in the same patch as `spec.trainer.replicas`: whether the job is admitted, why
it waits, its last resizes, which trainers the last scale-down removes, and where the last scale-up is planned. The
TrainingJob controller follows it and copies its messages into conditions, events and status, so that neither controller
keeps state in memory (as D19). Parsing is lenient: unknown fields are skipped, and an unreadable text yields None.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from itertools import islice
from typing import Any, Final

import msgspec

from raytide.api.conditions import cut, timestamp
from raytide.api.record_fields import count_or_none, parameters_entry, parameters_of, timestamp_or_none
from raytide.api.trainingjob_constants import MASTER, PSERVER
from raytide.diagnosis.model import Diagnosis, Stage

VERSION: Final = 1
MAX_RESIZES: Final = 10
MAX_MESSAGE_LENGTH: Final = 1000
MAX_NAME_LENGTH: Final = 512
MAX_RECEIVERS: Final = 4
MAX_UID_LENGTH: Final = 64
"""Kubernetes' uids have 36 characters."""
MAX_RECORD_BYTES: Final = 64 * 1024
MAX_VICTIMS: Final = 1000
MAX_PLACEMENTS: Final = 100
MAX_NODE_NAME_LENGTH: Final = 253
MAX_WRITER_LENGTH: Final = 128
"""The API server's limit for names of field managers."""
MAX_TIMES: Final = 100
"""Requests in a row are counted up to here: the pause between answers has long been the longest."""
_NODE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
ADMITTED: Final = "Admitted"
"""A gang is admitted: its size goes from 0 to its minimum, and its pods are created."""
AWAITING_NODES: Final = "AwaitingNodes"
"""The same without capacity: its pods exist for a while, so that a node autoscaler adds nodes for them."""
REACHING_MINIMUM: Final = "ReachingMinimum"
GROWING: Final = "Growing"
ABOVE_MAXIMUM: Final = "AboveMaximum"
SIZE_NOT_ALLOWED: Final = "SizeNotAllowed"
"""Its size was not an allowed one, and there is no capacity for the next larger one now."""
RECLAIMED: Final = "Reclaimed"
"""Scaled down for another job, named in `for_job`, that needs the capacity to reach its floor."""
REBALANCED: Final = "Rebalanced"
INSUFFICIENT_CAPACITY: Final = "InsufficientCapacity"
"""Released: instances above the floor had no node for `NO_NODE_S`, or would wait behind pods of other workloads."""
UNSCHEDULABLE: Final = "Unschedulable"
"""Released: kube-scheduler finds no node for instances although nodes have enough capacity for their requests."""
CREATION_FORBIDDEN: Final = "CreationForbidden"
"""Released, or waiting, because the API server rejects the creation of instances."""
_OF_PODS_TOO: Final = frozenset({"QuotaExceeded", CREATION_FORBIDDEN, UNSCHEDULABLE})
RELEASED: Final = frozenset({INSUFFICIENT_CAPACITY, UNSCHEDULABLE, CREATION_FORBIDDEN})
"""The reasons of scale-downs by instances without a node only."""
YIELDED_TO_PODS: Final = "YieldedToPods"
"""Scaled down for unschedulable pods of other workloads with a higher priority."""
REQUESTED: Final = "Requested"
"""Reason of a resize that a user or another controller ordered by writing `replicas` (TJ §3 row 21)."""


@dataclass(frozen=True, slots=True)
class ResizeNote:
    """One resize that was ordered: TJ §8 `scaling.history`."""

    at: datetime
    before: int
    after: int
    reason: str
    """One of the reasons above; `Requested` where a user or another controller wrote `replicas`."""
    message: str = ""
    for_job: str = ""
    """namespace/name of the job that received the capacity."""
    for_uids: tuple[str, ...] = ()
    """uids of the jobs that received it, or of the owners of the pods, at most MAX_RECEIVERS. They may be of other namespaces:
    a uid becomes a name only for a reader who may read the object (FD:SEC-F7)."""


@dataclass(frozen=True, slots=True)
class WaitingNote:
    """Why the job is below its minimum, or not larger."""

    reason: str
    message: str
    is_below_minimum: bool = True
    reserved_since: datetime | None = None
    """When capacity was first reserved for it while it waits for its minimum; None: never."""
    reserved_nodes: tuple[str, ...] = ()
    """Nodes with that capacity, at most MAX_PLACEMENTS; the next pass keeps them. Empty: nothing is reserved now."""
    promised_since: datetime | None = None
    """Since when it waits for the capacity of a scale-up that is planned; None: it does not."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """What the texts of the reason name (diagnosis/catalogue.py)."""

    @property
    def diagnosis(self) -> Diagnosis:
        """The reason as a diagnosis of the whole job; fair sharing decides before there are pods, which can have the same reason."""
        stage = Stage.DECISION if self.reason in _OF_PODS_TOO else None
        return Diagnosis(self.reason, message=self.message, parameters=self.parameters, stage=stage)


@dataclass(frozen=True, slots=True)
class RequestNote:
    """The last size that another client wrote and that did not last: it was not granted, or sharing ordered another one since."""

    at: datetime
    """When it was answered."""
    replicas: int
    """As written."""
    times: int = 1
    """How many in a row were not granted in full, or undid what sharing had grown (fairshare/size_requests.py)."""
    writer: str = ""
    """The field manager that wrote it; empty if it is not known."""


@dataclass(frozen=True, slots=True)
class SharingRecord:
    """The whole record; `uid` is the job's, so that a record copied with a manifest has no effect."""

    uid: str
    replicas: int
    """The size ordered last; a different number in the spec is another client's request (TJ §3 row 21)."""
    pservers: int | None = None
    """Number of parameter servers for that size under `Ratio`; None: the spec's minimum."""
    is_admitted: bool = False
    """Whether a gang may start; other jobs need no admission."""
    admitted_at: datetime | None = None
    """When `is_admitted` was last set. A gang that released its capacity later is no longer admitted and needs a new
    admission (gang_admission.py)."""
    waiting: WaitingNote | None = None
    resizes: tuple[ResizeNote, ...] = ()
    """The last ten, oldest first."""
    victims: tuple[str, ...] = ()
    """Names of the trainer pods that the last scale-down removes; the job's controller chooses those not named here."""
    placements: Mapping[str, int] = field(default_factory=dict)
    """Node -> how many trainers of the last scale-up are planned there; the job's controller has them prefer it."""
    core_nodes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Role -> node -> how many pods of the master or of the parameter servers are planned there when a job starts. On other
    nodes they might take the capacity that the plan has for trainers."""
    request: RequestNote | None = None
    """None: no other client has written a size for a while."""
    at: datetime | None = None
    """When the record last changed (whole seconds)."""


def victims_of(record: SharingRecord | None, replicas: int | None) -> frozenset[str]:
    """The named victims; none if `replicas`, the size in the spec, is not the record's: another client wrote it."""
    return frozenset(record.victims) if record is not None and record.replicas == replicas else frozenset()


def placements_of(record: SharingRecord | None, replicas: int | None) -> Mapping[str, int]:
    """The planned nodes of new trainers; none if `replicas` is not the record's size, as for `victims_of`."""
    return record.placements if record is not None and record.replicas == replicas else {}


def core_nodes_of(record: SharingRecord | None, replicas: int | None, role: str) -> Mapping[str, int]:
    """The planned nodes of the master or of new parameter servers; none where `placements_of` has none."""
    return record.core_nodes.get(role, {}) if record is not None and record.replicas == replicas else {}


# --- read ------------------------------------------------------------------------------------------------------------


def parse_record(text: str | None) -> SharingRecord | None:
    """The record in the annotation; None when it is missing or unreadable. Tenants may write long ones: only usual ones are cached."""
    if not text or len(text) > MAX_RECORD_BYTES:
        return None
    return _parsed(text) if len(text) > _LONGEST_CACHED else _parsed_once(text)


_LONGEST_CACHED: Final = 4096


@lru_cache(maxsize=2048)
def _parsed_once(text: str) -> SharingRecord | None:
    return _parsed(text)


def _parsed(text: str) -> SharingRecord | None:
    try:
        document = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
    if not isinstance(document, dict):
        return None
    uid, replicas = document.get("uid"), count_or_none(document.get("replicas"))
    if not isinstance(uid, str) or not uid or replicas is None:
        return None
    return SharingRecord(
        uid=uid,
        replicas=replicas,
        pservers=count_or_none(document.get("pservers")),
        is_admitted=document.get("admitted") is True,
        admitted_at=timestamp_or_none(document.get("admittedAt")),
        waiting=_waiting(document.get("waiting")),
        resizes=_resizes(document.get("resizes")),
        victims=_victims(document.get("victims")),
        placements=_placements(document.get("placements")),
        core_nodes=_core_nodes(document.get("coreNodes")),
        request=_request(document.get("request")),
        at=timestamp_or_none(document.get("at")),
    )


def _waiting(entry: Any) -> WaitingNote | None:
    if not isinstance(entry, dict) or not _text(entry.get("reason")):
        return None
    return WaitingNote(
        _text(entry.get("reason")),
        _text(entry.get("message")),
        entry.get("belowMinimum") is not False,
        timestamp_or_none(entry.get("reservedSince")),
        _reserved_nodes(entry.get("reservedNodes")),
        timestamp_or_none(entry.get("promisedSince")),
        parameters_of(entry.get("parameters")),
    )


def _reserved_nodes(entries: Any) -> tuple[str, ...]:
    found = [_text(entry) for entry in entries] if isinstance(entries, list) else []
    return tuple(name for name in found if _is_node_name(name))[:MAX_PLACEMENTS]


def _resizes(entries: Any) -> tuple[ResizeNote, ...]:
    found = [_resize(entry) for entry in entries] if isinstance(entries, list) else []
    return tuple(note for note in found if note is not None)[-MAX_RESIZES:]


def _victims(entries: Any) -> tuple[str, ...]:
    found = [_text(entry) for entry in entries] if isinstance(entries, list) else []
    return tuple(name for name in found if name)[:MAX_VICTIMS]


def _placements(entries: Any) -> dict[str, int]:
    found = entries.items() if isinstance(entries, dict) else ()
    counts = {name: count for name, entry in found if _is_node_name(name) and (count := count_or_none(entry))}
    return dict(islice(counts.items(), MAX_PLACEMENTS))


def _core_nodes(entries: Any) -> dict[str, dict[str, int]]:
    found = entries if isinstance(entries, dict) else {}
    return {role: nodes for role in (MASTER, PSERVER) if (nodes := _placements(found.get(role)))}


def _is_node_name(name: str) -> bool:
    """Whether the API server accepts it in a node affinity; with another name it would reject the pod."""
    return len(name) <= MAX_NODE_NAME_LENGTH and _NODE_NAME.match(name) is not None


def _resize(entry: Any) -> ResizeNote | None:
    if not isinstance(entry, dict):
        return None
    at, before, after = (
        timestamp_or_none(entry.get("at")),
        count_or_none(entry.get("from")),
        count_or_none(entry.get("to")),
    )
    if at is None or before is None or after is None or not _text(entry.get("reason")):
        return None
    receiver, uids = _text(entry.get("forJob")), _uids(entry.get("forUids"))
    return ResizeNote(at, before, after, _text(entry.get("reason")), _text(entry.get("message")), receiver, uids)


def _request(entry: Any) -> RequestNote | None:
    if not isinstance(entry, dict):
        return None
    at, replicas = timestamp_or_none(entry.get("at")), count_or_none(entry.get("replicas"))
    if at is None or replicas is None:
        return None
    times = min(MAX_TIMES, count_or_none(entry.get("times")) or 0)
    return RequestNote(at, replicas, times, _text(entry.get("writer"))[:MAX_WRITER_LENGTH])


def _uids(entries: Any) -> tuple[str, ...]:
    found = [_text(entry)[:MAX_UID_LENGTH] for entry in entries[:MAX_RECEIVERS]] if isinstance(entries, list) else []
    return tuple(filter(None, found))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


# --- write -----------------------------------------------------------------------------------------------------------


def encode_record(record: SharingRecord) -> str:
    """The annotation's text: the last ten resizes, messages cut to 1,000 characters, 1,000 victims, 100 nodes per list.

    Without victims and nodes, if it would be too long with them: the job's controller and kube-scheduler then choose, and
    a reservation may move to other nodes.
    """
    text = _encoded(record)
    return text if len(text) <= MAX_RECORD_BYTES else _encoded(_shortened(record))


def _shortened(record: SharingRecord) -> SharingRecord:
    waiting = None if record.waiting is None else replace(record.waiting, reserved_nodes=())
    return replace(record, waiting=waiting, victims=(), placements={}, core_nodes={})


def _encoded(record: SharingRecord) -> str:
    document: dict[str, Any] = {"v": VERSION, "uid": record.uid, "replicas": record.replicas}
    if record.pservers is not None:
        document["pservers"] = record.pservers
    document["admitted"] = record.is_admitted
    if record.admitted_at is not None:
        document["admittedAt"] = timestamp(record.admitted_at)
    if record.at is not None:
        document["at"] = timestamp(record.at)
    if record.waiting is not None:
        document["waiting"] = _waiting_entry(record.waiting)
    if record.resizes:
        document["resizes"] = [_entry(note) for note in record.resizes[-MAX_RESIZES:]]
    if record.victims:
        document["victims"] = record.victims[:MAX_VICTIMS]
    if record.request is not None:
        document["request"] = _request_entry(record.request)
    if record.placements:
        document["placements"] = dict(islice(sorted(record.placements.items()), MAX_PLACEMENTS))
    if record.core_nodes:
        document["coreNodes"] = {
            role: dict(islice(sorted(nodes.items()), MAX_PLACEMENTS))
            for role, nodes in sorted(record.core_nodes.items())
        }
    return msgspec.json.encode(document).decode()


def _waiting_entry(note: WaitingNote) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "reason": note.reason[:MAX_NAME_LENGTH],
        "message": cut(note.message, MAX_MESSAGE_LENGTH),
        "belowMinimum": note.is_below_minimum,
    }
    if parameters := parameters_entry(note.parameters, MAX_NAME_LENGTH):
        entry["parameters"] = parameters
    if note.reserved_since is not None:
        entry["reservedSince"] = timestamp(note.reserved_since)
    if note.promised_since is not None:
        entry["promisedSince"] = timestamp(note.promised_since)
    if note.reserved_nodes:
        entry["reservedNodes"] = note.reserved_nodes[:MAX_PLACEMENTS]
    return entry


def _request_entry(note: RequestNote) -> dict[str, Any]:
    entry = {"at": timestamp(note.at), "replicas": note.replicas, "times": min(note.times, MAX_TIMES)}
    return entry | ({"writer": note.writer[:MAX_WRITER_LENGTH]} if note.writer else {})


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
    if note.for_uids:
        entry["forUids"] = [uid[:MAX_UID_LENGTH] for uid in note.for_uids[:MAX_RECEIVERS]]
    return entry
