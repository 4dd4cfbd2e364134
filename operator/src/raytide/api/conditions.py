"""Reading and updating lists of metav1 conditions.

Takes the conditions of a status as plain JSON and returns new lists; nothing is changed in place. Semantics are those
of Kubernetes' SetStatusCondition: a type occurs once and keeps its position, and `lastTransitionTime` changes only when
`status` does (RC §1.6; RC:K-6). Used by the status code of all controllers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from raytide.api.printable import escaped_within

ConditionJson: TypeAlias = Mapping[str, Any]
Conditions: TypeAlias = tuple[ConditionJson, ...]

MAX_MESSAGE_BYTES = 32768
EARLIEST: Final = datetime(1000, 1, 1, tzinfo=UTC)
"""Earlier years may not be formatted with four digits, which the API server requires."""
LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)
"""Leaves a margin below datetime.max for durations added to a time. Tenants write times into annotations; an overflow
would fail the pass over all objects."""


@dataclass(frozen=True, slots=True)
class ConditionUpdate:
    """A condition to set."""

    kind: str
    status: bool | str
    reason: str
    message: str = ""


def timestamp(moment: datetime) -> str:
    """RFC 3339 in whole seconds and UTC, as metav1.Time is written."""
    return moment.astimezone(UTC).isoformat(timespec="seconds")[:19] + "Z"  # a third of the time of strftime


def parse_timestamp(text: str) -> datetime | None:
    """Parse an RFC 3339 timestamp as UTC; None when it is invalid or outside `EARLIEST` to `LATEST`."""
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return moment if EARLIEST <= moment < LATEST else None


def find_condition(conditions: Sequence[ConditionJson], kind: str) -> ConditionJson | None:
    """The condition of that type, or None."""
    return next((c for c in conditions if c.get("type") == kind), None)


def is_condition_true(conditions: Sequence[ConditionJson], kind: str) -> bool:
    """Whether the condition exists and is True."""
    found = find_condition(conditions, kind)
    return found is not None and found.get("status") == "True"


def set_condition(
    conditions: Sequence[ConditionJson], kind: str, *, status: bool | str, reason: str, message: str, now: datetime
) -> Conditions:
    """The list with that condition set; the message is escaped and truncated to the API server's limit (FD:SEC3-7)."""
    word = status if isinstance(status, str) else str(status)
    old = find_condition(conditions, kind)
    keeps_time = old is not None and old.get("status") == word and bool(old.get("lastTransitionTime"))
    new = {
        **(old or {}),
        "type": kind,
        "status": word,
        "reason": reason,
        "message": escaped_within(message, MAX_MESSAGE_BYTES),
        "lastTransitionTime": old["lastTransitionTime"] if old is not None and keeps_time else timestamp(now),
    }
    if old is None:
        return (*conditions, new)
    return tuple(new if c is old else c for c in conditions)


def remove_condition(conditions: Sequence[ConditionJson], kind: str) -> Conditions:
    """The list without that condition."""
    return tuple(c for c in conditions if c.get("type") != kind)


def apply_updates(
    conditions: Conditions, updates: Mapping[str, ConditionUpdate | None], now: datetime
) -> list[dict[str, Any]]:
    """Copies of the conditions with every update applied, in the order of `updates`; None removes the condition."""
    for kind, update in updates.items():
        if update is None:
            conditions = remove_condition(conditions, kind)
        else:
            status, reason, message = update.status, update.reason, update.message
            conditions = set_condition(conditions, kind, status=status, reason=reason, message=message, now=now)
    return [dict(condition) for condition in conditions]


def without_unreached(status: Mapping[str, Any], generation: Any) -> dict[str, Any]:
    """The status without an `observedGeneration` above the object's generation: only another writer can have set it."""
    seen, key = status.get("observedGeneration"), "observedGeneration"
    is_reached = isinstance(seen, int) and isinstance(generation, int) and seen <= generation
    return dict(status) if is_reached else {name: value for name, value in status.items() if name != key}


def cut(text: str, maximum: int) -> str:
    """The text cut to at most `maximum` characters, with an ellipsis; the limit of a condition's message is in bytes."""
    return text if len(text) <= maximum else text[: max(0, maximum - 1)] + "…"[:maximum]
