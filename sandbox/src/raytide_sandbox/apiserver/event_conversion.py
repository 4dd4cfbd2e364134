"""Conversion of events between core/v1 and events.k8s.io/v1.

Both groups serve the same objects; the store keeps the core form. `to_new` and `to_core` rename the fields in place
without loss. Pure. Used by the registry as the view of events.k8s.io, so that `kubectl describe` shows events of both
groups.
"""

from typing import Any, Final

Json = dict[str, Any]

# core/v1 name -> events.k8s.io/v1 name
_NAMES: Final = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "reportingComponent": "reportingController",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}


def to_new(event: Json) -> None:
    """Convert a stored event to events.k8s.io/v1."""
    for core, new in _NAMES.items():
        if core in event:
            event[new] = event.pop(core)
    event["apiVersion"] = "events.k8s.io/v1"


def to_core(event: Json) -> None:
    """Convert an event of events.k8s.io/v1 to the stored form."""
    for core, new in _NAMES.items():
        if new in event:
            event[core] = event.pop(new)
    event["apiVersion"] = "v1"
