"""What is a controller of the sandbox, and what does it get to see?

A controller notes changes and, when asked, acts on what it noted; between the two it keeps its own small indices, so its
work follows what changed and not how big the cluster is. The two functions below write with the API's own rules and
shrug off the refusals that only mean "someone was faster". Pure like everything it is used by: time comes in as `now`.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from raytide.sandbox.apiserver.status import ApiStatus
from raytide.sandbox.apiserver.store import Change, ObjectKey, Store
from raytide.sandbox.podseen import PodSeen, read_pod

Json = dict[str, Any]

_PASSING: Final = frozenset({403, 404, 409})
"""Its namespace is going, it is gone, or it has changed: the change that caused it is noted already."""


class Noted:
    """A change with its object decoded at most once, however many controllers look."""

    __slots__ = ("_obj", "_pod", "change")

    def __init__(self, change: Change) -> None:
        self.change = change
        self._obj: Json | None = None
        self._pod: PodSeen | None = None

    @property
    def key(self) -> ObjectKey:
        """Where the object lives or lived."""
        return self.change.key

    @property
    def is_gone(self) -> bool:
        """True when the object has left the store."""
        return self.change.type == "DELETED"

    @property
    def obj(self) -> Json:
        """The object after the change (before it, when it is gone); shared, so read only."""
        if self._obj is None:
            self._obj = self.change.entry.obj()
        return self._obj

    @property
    def pod(self) -> PodSeen:
        """The same for a pod, as far as the controllers look."""
        if self._pod is None:
            self._pod = read_pod(self.change.entry.raw)
        return self._pod


class Controller(Protocol):
    """One loop of the control plane, without the loop."""

    def note(self, noted: Noted) -> None:
        """Remember what this change asks for; must not write."""
        ...

    def act(self, now: datetime) -> datetime | None:
        """Write what is to be done now; returns when to look again even if nothing changes."""
        ...


def attempt(write: Callable[[], object]) -> bool:
    """Write; False when the API refused because the world has moved on."""
    try:
        write()
    except ApiStatus as refusal:
        if refusal.code in _PASSING:
            return False
        raise
    return True


def rewrite(store: Store, key: ObjectKey, change: Callable[[Json], None], subresource: str | None = None) -> bool:
    """Read an object, change it, write it back; False when it is gone or the API refused."""
    entry = store.find(*key)
    if entry is None:
        return False
    obj = entry.obj()
    change(obj)
    return attempt(lambda: store.update(key.resource, obj, subresource=subresource))


def timestamp(now: datetime) -> str:
    """`2026-01-31T23:59:59Z`."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def set_condition(status: Json, condition: Json, now: datetime) -> bool:
    """Put a condition into a status; the transition time moves with the value only. False when nothing changed."""
    conditions: list[Json] = status.setdefault("conditions", [])
    found = next((c for c in conditions if c.get("type") == condition["type"]), None)
    if found is None:
        conditions.append({**condition, "lastTransitionTime": timestamp(now)})
        return True
    if all(found.get(field) == value for field, value in condition.items()):
        return False
    if found.get("status") != condition["status"]:
        found["lastTransitionTime"] = timestamp(now)
    for field in ("reason", "message"):
        found.pop(field, None)
    found.update(condition)
    return True


def record_event(
    store: Store, regarding: Json, *, kind: str, reason: str, message: str, now: datetime, component: str
) -> None:
    """Tell people what happened to an object, as a core/v1 Event; `kind` is Normal or Warning."""
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
        "firstTimestamp": timestamp(now),
        "lastTimestamp": timestamp(now),
        "count": 1,
    }
    attempt(lambda: store.create("events", event))
