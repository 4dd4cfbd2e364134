"""The autoscaler's decision record.

The record (D19) is one JSON text in an annotation on the RayCluster, which the sidecar writes in the same patch as
`replicas` and which the operator follows. Parsing is lenient, because sidecars run for months and the format only
grows: unknown fields are skipped, unreadable groups are left out, and an unreadable text yields None. Encoding keeps to
64 KiB and 500 names per group and drops messages before names. Used by the operator and the sidecar.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import msgspec

from raytide.api.conditions import timestamp
from raytide.api.pod_failure import Cause
from raytide.api.record_fields import count_or_none, diagnosis_entry, diagnosis_or_none, timestamp_or_none
from raytide.diagnosis.model import Diagnosis

VERSION: Final = 1
MAX_RECORD_BYTES: Final = 64 * 1024
MAX_NAMES_PER_GROUP: Final = 500
MAX_MESSAGE_LENGTH: Final = 1000

PERMANENT_REASONS: Final = frozenset({"NoFittingGroup", "ConstraintUnmet", "InvalidGroup"})
"""Reasons that last until the spec or the demand changes: waiting does not help."""
LIMIT_REASONS: Final = PERMANENT_REASONS | frozenset(
    {
        *Cause,
        "MaxReached",
        "NodeBusy",
        "TopologyUnmet",
        "HeadDown",
        "Draining",
        "UpscalingLimited",
        "Backoff",
        "NoPodCreated",
        "ScaleGated",
        "NotScheduled",
        "NotInitialized",
        "ContainersNotStarted",
        "NeverRegistered",
    }
)
"""All reasons that the sidecar gives; a record that another client wrote may have others."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Backoff of a blocked group: the number of the attempt, and when it ends (whole seconds)."""

    n: int
    until: datetime
    newest: datetime | None = field(default=None, compare=False)
    """Creation time, by the API server, of the newest pod seen when the backoff began; a younger pod came after it."""


def clamp_between(replicas: int, minimum: int, maximum: int) -> int:
    """Clamp replicas to minimum and maximum, checking the minimum first as KubeRay does (RC:WG-2).

    Shared by operator and sidecar, so that both get the same number even where the maximum is below the minimum.
    """
    return minimum if replicas < minimum else min(replicas, maximum)


@dataclass(frozen=True, slots=True)
class GroupDecision:
    """The decision for one worker group; `replicas` is not clamped and counts replicas, not hosts."""

    replicas: int
    delete: tuple[str, ...] = ()
    """Names of pods to delete, most urgent first: the last ones are dropped when the record grows too large."""
    adopted_replicas: int | None = None
    """The `replicas` of another writer that was adopted last, `foreign` in the record; it is not adopted again."""
    backoff: Backoff | None = None
    why: tuple[Diagnosis, ...] = ()
    deadline: datetime | None = None
    """For a group removed from the spec: when its last workers are deleted; before that, only those in `delete`."""

    def replicas_to_adopt(self, replicas: int | None) -> int | None:
        """The spec's replicas if another writer raised them and that raise has not been adopted yet, else None.

        A pure function of spec and record, used by operator and sidecar: neither keeps state, so a restart between the
        write of the other writer and the sidecar's next patch has no effect.
        """
        if replicas is None or replicas <= self.replicas or replicas == self.adopted_replicas:
            return None
        return replicas


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """The whole record: `cluster` and `head` are the uids it is valid for, `at` is its time (whole seconds)."""

    cluster: str
    head: str
    at: datetime | None = None
    groups: Mapping[str, GroupDecision] = field(default_factory=dict)
    why: tuple[Diagnosis, ...] = ()
    """Reasons that concern no single group: infeasible demand, a GCS that does not respond."""


# --- read ------------------------------------------------------------------------------------------------------------


def parse_record(text: str | None) -> DecisionRecord | None:
    """The record in the annotation; None when it is missing or unreadable."""
    if not text:
        return None
    try:
        document = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
    if not isinstance(document, dict) or not _is_text(document.get("cluster")) or not _is_text(document.get("head")):
        return None
    entries = document.get("groups")
    decisions = {name: _decision(entry) for name, entry in entries.items()} if isinstance(entries, dict) else {}
    return DecisionRecord(
        cluster=document["cluster"],
        head=document["head"],
        at=timestamp_or_none(document.get("at")),
        groups={name: decision for name, decision in decisions.items() if decision is not None},
        why=_reasons(document.get("why")),
    )


def _decision(entry: Any) -> GroupDecision | None:
    """The sidecar's decision for one group, from the JSON of its record; None if it cannot be read."""
    if not isinstance(entry, dict):
        return None
    replicas = count_or_none(entry.get("replicas"))
    if replicas is None:
        return None
    return GroupDecision(
        replicas=replicas,
        delete=tuple(name for name in _list(entry.get("delete")) if _is_text(name)),
        adopted_replicas=count_or_none(entry.get("foreign")),
        backoff=_backoff(entry.get("backoff")),
        why=_reasons(entry.get("why")),
        deadline=timestamp_or_none(entry.get("deadline")),
    )


def _reasons(entries: Any) -> tuple[Diagnosis, ...]:
    return tuple(why for entry in _list(entries) if (why := diagnosis_or_none(entry)) is not None)


def _backoff(entry: Any) -> Backoff | None:
    if not isinstance(entry, dict):
        return None
    n, until = count_or_none(entry.get("n")), timestamp_or_none(entry.get("until"))
    return None if n is None or until is None else Backoff(n, until, timestamp_or_none(entry.get("newest")))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


# --- write -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _SizeLimits:
    """Maximum sizes of the parts of an encoded record. The spec applies to groups that are left out."""

    message_length: int = MAX_MESSAGE_LENGTH
    """Of the message, and of each parameter, of a reason; 0: without both."""
    reasons: int = MAX_RECORD_BYTES
    has_backoff: bool = True
    names: int = MAX_NAMES_PER_GROUP
    groups: int = MAX_RECORD_BYTES


_WITHOUT_NAMES: Final = _SizeLimits(message_length=50, names=0)
_LIMITS_BY_SIZE: Final = (
    _SizeLimits(),
    _SizeLimits(message_length=200),
    *(_SizeLimits(message_length=200, names=names) for names in (250, 125, 60, 30, 15, 7, 3, 1, 0)),
    _WITHOUT_NAMES,
    replace(_WITHOUT_NAMES, message_length=0),
    replace(_WITHOUT_NAMES, message_length=0, reasons=1),
    replace(_WITHOUT_NAMES, message_length=0, reasons=0),
    *(
        replace(_WITHOUT_NAMES, message_length=0, reasons=0, has_backoff=False, groups=2**power)
        for power in range(12, -1, -1)
    ),
)
"""From the complete record to the smallest one; `encode_record` uses the first that fits."""


def encode_record(record: DecisionRecord) -> str:
    """The annotation's text: at most 64 KiB, at most 500 names per group, always valid JSON.

    Messages and parameters of reasons are cut to 1,000 characters each. If the record is still too large, it drops in this
    order: long messages and parameters, names (which are in the spec too), all messages and parameters, all but one reason, all
    reasons, the backoff (stored nowhere else) together with groups at the end of the alphabet.
    """
    text = b""
    for limits in _LIMITS_BY_SIZE:
        text = msgspec.json.encode(_encode_document(record, limits))
        if len(text) <= MAX_RECORD_BYTES:
            break
    return text.decode()


def _encode_document(record: DecisionRecord, limits: _SizeLimits) -> dict[str, Any]:
    groups = sorted(record.groups)[: limits.groups]
    document: dict[str, Any] = {"v": VERSION, "cluster": record.cluster, "head": record.head}
    if record.at is not None:
        document["at"] = timestamp(record.at)
    document["groups"] = {name: _encode_group(record.groups[name], limits) for name in groups}
    if reasons := _encoded_reasons(record.why, limits):
        document["why"] = reasons
    return document


def _encode_group(decision: GroupDecision, limits: _SizeLimits) -> dict[str, Any]:
    entry: dict[str, Any] = {"replicas": decision.replicas}
    if names := list(decision.delete[: limits.names]):
        entry["delete"] = names
    if decision.adopted_replicas is not None:
        entry["foreign"] = decision.adopted_replicas
    if decision.backoff is not None and limits.has_backoff:
        entry["backoff"] = {"n": decision.backoff.n, "until": timestamp(decision.backoff.until)}
        if decision.backoff.newest is not None:
            entry["backoff"]["newest"] = timestamp(decision.backoff.newest)
    if decision.deadline is not None:
        entry["deadline"] = timestamp(decision.deadline)
    if reasons := _encoded_reasons(decision.why, limits):
        entry["why"] = reasons
    return entry


def _encoded_reasons(reasons: Sequence[Diagnosis], limits: _SizeLimits) -> list[dict[str, Any]]:
    return [diagnosis_entry(why, limits.message_length) for why in reasons[: limits.reasons]]
