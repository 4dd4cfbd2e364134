"""Interface of the sandbox's controllers, and helpers for their writes.

A controller records changes in `on_change` and writes in `act`; between the two it keeps its own indices, so its cost
follows the number of changes and not the size of the cluster. `attempt` and `rewrite` write under the API's rules and
ignore rejections that only mean that another client wrote first. Pure: time is passed in as `now`.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Protocol

from raytide_sandbox.apiserver.api_status import ApiStatusError
from raytide_sandbox.apiserver.store import Change, ObjectKey, Store
from raytide_sandbox.controllers.pod_view import PodSeen, read_pod
from raytide_sandbox.rfc3339 import format_time

Json = dict[str, Any]

_PASSING: Final = frozenset({403, 404, 409})
"""Namespace terminating, object gone, or conflict: the change that caused the rejection is already queued."""


class Noted:
    """A change whose object is decoded at most once for all controllers."""

    __slots__ = ("_obj", "_pod", "change")

    def __init__(self, change: Change) -> None:
        self.change = change
        self._obj: Json | None = None
        self._pod: PodSeen | None = None

    @property
    def key(self) -> ObjectKey:
        """The key of the object, also after its deletion."""
        return self.change.key

    @property
    def is_gone(self) -> bool:
        """True when the object was removed from the store."""
        return self.change.type == "DELETED"

    @property
    def obj(self) -> Json:
        """The object after the change (before it, if it is gone); shared, so read only."""
        if self._obj is None:
            self._obj = self.change.entry.shared()
        return self._obj

    @property
    def pod(self) -> PodSeen:
        """The fields of a pod that the controllers read."""
        if self._pod is None:
            self._pod = read_pod(self.change.entry.raw)
        return self._pod


class Controller(Protocol):
    """One control loop without the loop; driven by `Controllers.step`."""

    def on_change(self, noted: Noted) -> None:
        """Record what this change requires; must not write."""
        ...

    def act(self, now: datetime) -> datetime | None:
        """Write what is due; returns when to call it again even without a change, or None."""
        ...


def attempt(write: Callable[[], object]) -> bool:
    """Run a write; False when the API rejected it because the state has changed meanwhile."""
    try:
        write()
    except ApiStatusError as error:
        if error.code in _PASSING:
            return False
        raise
    return True


def rewrite(store: Store, key: ObjectKey, change: Callable[[Json], None], subresource: str | None = None) -> bool:
    """Read an object, change it, write it back; False when it is gone or the API rejected the write."""
    entry = store.find(*key)
    if entry is None:
        return False
    obj = entry.obj()
    change(obj)
    return attempt(lambda: store.update(key.resource, obj, subresource=subresource))


def set_condition(status: Json, condition: Json, now: datetime) -> bool:
    """Set a condition; `lastTransitionTime` changes only with the status value. False when nothing changed."""
    conditions: list[Json] = status.setdefault("conditions", [])
    found = next((c for c in conditions if c.get("type") == condition["type"]), None)
    if found is None:
        conditions.append({**condition, "lastTransitionTime": format_time(now)})
        return True
    if all(found.get(field) == value for field, value in condition.items()):
        return False
    if found.get("status") != condition["status"]:
        found["lastTransitionTime"] = format_time(now)
    for field in ("reason", "message"):
        found.pop(field, None)
    found.update(condition)
    return True


def record_event(
    store: Store, regarding: Json, *, kind: str, reason: str, message: str, now: datetime, component: str
) -> None:
    """Record a core/v1 Event about an object; `kind` is Normal or Warning."""
    metadata = regarding["metadata"]
    involved = {
        "apiVersion": regarding["apiVersion"],
        "kind": regarding["kind"],
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        "uid": metadata["uid"],
    }
    event = {
        "metadata": {
            "name": f"{metadata['name']}.{store.version:016x}",
            "namespace": metadata.get("namespace") or "default",
        },
        "involvedObject": {name: value for name, value in involved.items() if value},
        "type": kind,
        "reason": reason,
        "message": message,
        "source": {"component": component},
        "reportingComponent": component,
        "firstTimestamp": format_time(now),
        "lastTimestamp": format_time(now),
        "count": 1,
    }
    attempt(lambda: store.create("events", event))
