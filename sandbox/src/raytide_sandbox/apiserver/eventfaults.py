"""Validation of events of events.k8s.io/v1.

Takes an event as it is stored (core/v1 field names) and, for an update, the previous event; returns causes in a real
API server's words. This group is stricter than core/v1: reporter, action, time and reason are required, and only the
series may change. Pure; called by `write_handlers.py` for writes through that group.
"""

import re
from typing import Any, Final

from raytide_sandbox.apiserver.api_status import Cause

Json = dict[str, Any]

_LONGEST: Final = {"reportingInstance": 128, "action": 128, "reason": 128}
_LONGEST_NOTE: Final = 1024
_TYPES: Final = ("Normal", "Warning")
_FIXED: Final = ("involvedObject", "reason", "action", "message", "type", "eventTime", "related")
_OLD: Final = ("firstTimestamp", "lastTimestamp", "count", "source")
"""Fields of core/v1 that must be unset in the newer group."""
_NAME: Final = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_NAME_TEXT: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def faults(event: Json, old: Json | None) -> list[Cause]:
    """Causes for which a real server rejects this event."""
    return _changes(old, event) if old is not None else _omissions(event)


def _omissions(event: Json) -> list[Cause]:
    found: list[Cause] = []
    if not (event.get("involvedObject") or {}).get("namespace") and event["metadata"]["namespace"] != "default":
        found.append(_wrong("involvedObject.namespace", "does not match event.namespace"))
    if not event.get("eventTime"):
        found.append(_required("eventTime"))
    kind = event.get("type")
    if kind not in _TYPES:
        found.append(_wrong("type", f"has invalid value: {kind or ''}"))
    found += [_wrong(field, "needs to be unset") for field in _OLD if event.get(field)]
    found += _controller(event.get("reportingComponent") or "")
    for field, longest in _LONGEST.items():
        text = event.get(field) or ""
        if not text:
            found.append(_required(field))
        if len(text) > longest:
            found.append(_wrong(field, f"can have at most {longest} characters"))
    if len(event.get("message") or "") > _LONGEST_NOTE:
        found.append(_wrong("message", f"can have at most {_LONGEST_NOTE} characters"))
    series = event.get("series")
    if series and series.get("count", 0) < 2:
        found.append(_wrong("series.count", "should be at least 2"))
    return found


def _controller(name: str) -> list[Cause]:
    field = "reportingController"
    if not name:
        return [_required(field), _wrong(field, "name part must be non-empty"), _wrong(field, _NAME_TEXT)]
    return [] if _NAME.fullmatch(name) else [Cause(field, f'Invalid value: "{name}": {_NAME_TEXT}')]


def _changes(old: Json, new: Json) -> list[Cause]:
    return [
        Cause(field, f'Invalid value: "{new.get(field)}": field is immutable')
        for field in _FIXED
        if old.get(field) != new.get(field)
    ]


def _required(field: str) -> Cause:
    return Cause(field, "Required value", "FieldValueRequired")


def _wrong(field: str, text: str) -> Cause:
    return Cause(field, f'Invalid value: "": {text}')
