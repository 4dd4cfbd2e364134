"""How is a list of metav1 conditions changed?

Takes the conditions as they stand in a status (plain JSON) and gives new lists; nothing is changed in place. It keeps
the semantics of Kubernetes' SetStatusCondition: a type occurs once, keeps its place, and `lastTransitionTime` moves only
when `status` does (RC §1.6; RC:K-6). Called by the status decisions of every room.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

ConditionJson: TypeAlias = Mapping[str, Any]
Conditions: TypeAlias = tuple[ConditionJson, ...]

MAX_MESSAGE_BYTES = 32768


@dataclass(frozen=True, slots=True)
class Saying:
    """A condition to set."""

    kind: str
    status: bool | str
    reason: str
    message: str = ""


def timestamp(moment: datetime) -> str:
    """RFC 3339 in whole seconds and UTC, as metav1.Time is written."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment_of(text: str) -> datetime | None:
    """The moment an RFC 3339 timestamp names; None when it is not one."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def find_condition(conditions: Sequence[ConditionJson], kind: str) -> ConditionJson | None:
    """The condition of that type."""
    return next((c for c in conditions if c.get("type") == kind), None)


def is_condition_true(conditions: Sequence[ConditionJson], kind: str) -> bool:
    """Whether the condition is there and True."""
    found = find_condition(conditions, kind)
    return found is not None and found.get("status") == "True"


def set_condition(
    conditions: Sequence[ConditionJson], kind: str, *, status: bool | str, reason: str, message: str, now: datetime
) -> Conditions:
    """The list with that condition set; the message is cut where the API server would refuse it."""
    word = status if isinstance(status, str) else str(status)
    old = find_condition(conditions, kind)
    keeps_time = old is not None and old.get("status") == word and bool(old.get("lastTransitionTime"))
    new = {
        **(old or {}),
        "type": kind,
        "status": word,
        "reason": reason,
        "message": _cut(message),
        "lastTransitionTime": old["lastTransitionTime"] if old is not None and keeps_time else timestamp(now),
    }
    if old is None:
        return (*conditions, new)
    return tuple(new if c is old else c for c in conditions)


def remove_condition(conditions: Sequence[ConditionJson], kind: str) -> Conditions:
    """The list without that condition."""
    return tuple(c for c in conditions if c.get("type") != kind)


def _cut(message: str) -> str:
    encoded = message.encode()
    if len(encoded) <= MAX_MESSAGE_BYTES:
        return message
    return encoded[: MAX_MESSAGE_BYTES - 3].decode(errors="ignore") + "…"
