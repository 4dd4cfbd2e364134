"""Lenient reading, and bounded writing, of fields of the records in annotations.

Takes a value of decoded JSON and returns it with its type, or None when it has another one: a record may come from an
earlier version or have been edited. Used by `autoscaler_decision.py` and `sharing_record.py`.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from raytide.api.conditions import cut, parse_timestamp
from raytide.api.quantity import MAX_INT32
from raytide.diagnosis.model import PARAMETERS, Diagnosis


def count_or_none(value: Any) -> int | None:
    """A number of a decision or sharing record: an integer from 0 to `MAX_INT32`, else None; booleans are not counts."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INT32
    return value if is_count else None


def timestamp_or_none(value: Any) -> datetime | None:
    """A timestamp that `parse_timestamp` accepts, else None."""
    return parse_timestamp(value) if isinstance(value, str) else None


def parameters_of(value: Any) -> dict[str, str]:
    """The texts of an object as the parameters of a diagnosis, without those of other names."""
    if not isinstance(value, dict):
        return {}
    return {name: text for name, text in value.items() if name in PARAMETERS and isinstance(text, str)}


def parameters_entry(parameters: Mapping[str, str], length: int) -> dict[str, str]:
    """Those parameters for a record, each cut to that many characters."""
    return {name: cut(text, length) for name, text in parameters.items()} if length else {}


def diagnosis_or_none(entry: Any) -> Diagnosis | None:
    """A diagnosis of a decision record; None without a reason."""
    reason, message = (entry.get("reason"), entry.get("message")) if isinstance(entry, dict) else (None, None)
    if not isinstance(reason, str) or not reason:
        return None
    message = message if isinstance(message, str) else ""
    return Diagnosis(
        reason, count_or_none(entry.get("count")) or 0, message, parameters=parameters_of(entry.get("parameters"))
    )


def diagnosis_entry(found: Diagnosis, length: int) -> dict[str, Any]:
    """The same for a record; its message and each parameter are cut to that many characters."""
    entry: dict[str, Any] = {"reason": found.reason, "count": found.count}
    if message := cut(found.message, length):
        entry["message"] = message
    if parameters := parameters_entry(found.parameters, length):
        entry["parameters"] = parameters
    return entry
