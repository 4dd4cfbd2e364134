"""Lenient reading, and bounded writing, of fields of the records in annotations and of `status.diagnoses`.

Takes a value of decoded JSON and returns it with its type, or None when it has another one: a record may come from an
earlier version or have been edited. Used by `autoscaler_decision.py`, `sharing_record.py`, the status of both kinds, and those who
read it.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, Final

from raytide.api.conditions import cut, parse_timestamp
from raytide.api.printable import escaped_within
from raytide.api.quantity import MAX_INT32
from raytide.diagnosis.model import PARAMETERS, Diagnosis, Stage

MAX_DIAGNOSES: Final = 20
"""In a status; a spec may have thousands of groups."""
MAX_DIAGNOSIS_BYTES: Final = 1000
"""Of a message there; the condition has more of it."""
MAX_PARAMETER_BYTES: Final = 253
"""Of each parameter there: the longest name that Kubernetes allows."""


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
    """A diagnosis of a decision record or a status; None without a reason."""
    if not isinstance(entry, dict):
        return None
    reason, message, group = (
        text if isinstance(text := entry.get(key), str) else "" for key in ("reason", "message", "group")
    )
    if not reason:
        return None
    stage = next((each for each in Stage if each == entry.get("stage")), None)
    count, parameters = count_or_none(entry.get("count")) or 0, parameters_of(entry.get("parameters"))
    return Diagnosis(reason, count, message, group, parameters, stage)


def diagnosis_entry(found: Diagnosis, length: int) -> dict[str, Any]:
    """The same for a record; its message and each parameter are cut to that many characters."""
    entry: dict[str, Any] = {"reason": found.reason, "count": found.count}
    if message := cut(found.message, length):
        entry["message"] = message
    if parameters := parameters_entry(found.parameters, length):
        entry["parameters"] = parameters
    return entry


def stored_diagnoses(status: Mapping[str, Any]) -> tuple[Diagnosis, ...]:
    """`status.diagnoses`; empty where nothing is missing, and where another operator or an older CRD has none."""
    entries = status.get("diagnoses")
    found = map(diagnosis_or_none, entries[:MAX_DIAGNOSES] if isinstance(entries, list) else ())
    return tuple(each for each in found if each is not None)


def diagnoses_entry(found: Iterable[Diagnosis]) -> list[dict[str, Any]]:
    """Those diagnoses for a status: the first MAX_DIAGNOSES, escaped and cut (FD:SEC3-7)."""
    return [_status_entry(each) for each in islice(found, MAX_DIAGNOSES)]


def _status_entry(found: Diagnosis) -> dict[str, Any]:
    parameters = {name: escaped_within(text, MAX_PARAMETER_BYTES) for name, text in found.parameters.items()}
    entry = {
        "reason": found.reason,
        "group": found.group,
        "stage": found.stage or "",
        "count": found.count,
        "message": escaped_within(found.message, MAX_DIAGNOSIS_BYTES),
        "parameters": parameters,
    }
    return {key: value for key, value in entry.items() if value}
