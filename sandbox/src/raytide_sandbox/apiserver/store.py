"""In-memory object store of the API server.

Keeps objects as JSON bytes under one global resourceVersion; returns entries, lists, changes since a version (a ring of
10,000 per kind; older is 410) and dependents by owner uid. It applies the rules of every write: uid, generation,
optimistic locking, finalizers, graceful deletion, the status subresource. It has no HTTP and no schemas and reads no
clock (`now` and `new_uid` are passed in). Used by the routes and by the sandbox's controllers (D17).
"""

from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

import msgspec

from raytide_sandbox.apiserver import object_meta
from raytide_sandbox.apiserver.api_status import (
    ApiStatusError,
    already_exists,
    expired,
    modified,
    not_found,
    unknown_path,
)
from raytide_sandbox.apiserver.builtin_resources import BUILT_IN, Resource

Json = dict[str, Any]
Objects = list[Json]
ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]

RING_SIZE: Final = 10_000
SHARED: Final = 512
"""How many decoded objects are kept for readers."""
FIRST_VERSION: Final = 100
"""The initial version: a client that asks for an older one gets 410, as from a newly started server."""

encode = msgspec.json.encode
decode = msgspec.json.decode


class ObjectKey(NamedTuple):
    """The kind's table (`pods`, `rayclusters.ray.io`), the namespace ("" if none) and the name of an object."""

    resource: str
    namespace: str
    name: str


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One stored object: its JSON, and fields that are read too often to decode it each time."""

    raw: bytes
    version: int
    uid: str
    labels: dict[str, str]
    owners: tuple[str, ...]
    """The uids in metadata.ownerReferences."""
    is_terminating: bool

    def obj(self) -> Json:
        """A fresh dict that the caller may change."""
        found: Json = decode(self.raw)
        return found

    def shared(self) -> Json:
        """The object for reading: the same dict for every caller; callers must not change it."""
        return _shared(self.raw)


@lru_cache(maxsize=SHARED)
def _shared(raw: bytes) -> Json:
    found: Json = decode(raw)
    return found


Entries = list[tuple[ObjectKey, Entry]]


class Change:
    """One change of one object; `line` is the watch line, encoded once for all watchers."""

    __slots__ = ("_line", "entry", "key", "previous", "type", "version")

    def __init__(self, change_type: ChangeType, key: ObjectKey, entry: Entry, previous: Entry | None) -> None:
        self.type = change_type
        self.key = key
        self.entry = entry
        self.previous = previous
        self.version = entry.version
        self._line: bytes | None = None

    @property
    def line(self) -> bytes:
        """The watch line: `{"type": …, "object": …}` and a newline."""
        if self._line is None:
            self._line = b'{"type":"%s","object":%s}\n' % (self.type.encode(), self.entry.raw)
        return self._line


Subscriber = Callable[[Change], None]


class _Table:
    """All objects of one kind, with their recent changes."""

    __slots__ = ("compacted", "objects", "resource", "ring", "subscribers")

    def __init__(self, resource: Resource, ring_size: int, version: int) -> None:
        self.resource = resource
        self.objects: dict[tuple[str, str], Entry] = {}
        self.ring: deque[Change] = deque(maxlen=ring_size)
        self.compacted = version
        self.subscribers: list[Subscriber] = []


class Deleted(NamedTuple):
    """The result of a delete: `entry` is the object's last state, `is_gone` whether it left the store."""

    entry: Entry
    is_gone: bool


class Snapshot(NamedTuple):
    """All objects of a store at one version, like a backup of etcd."""

    version: int
    objects: dict[str, dict[tuple[str, str], Entry]]


class Store:
    """The objects of one cluster.

    - A rejected write raises `ApiStatusError` (code, reason, message) and changes nothing.
    - `now` is wall time in UTC; `new_uid` must never repeat a value. Both are passed in, so that runs are reproducible.
    - Subscribers are called synchronously after each commit, in order; they record the change and must not write.
    """

    def __init__(self, *, now: Callable[[], datetime], new_uid: Callable[[], str], ring_size: int = RING_SIZE) -> None:
        self.now = now
        self._new_uid = new_uid
        self._ring_size = ring_size
        self._tables: dict[str, _Table] = {}
        self._everything: list[Subscriber] = []
        self._by_uid: dict[str, ObjectKey] = {}
        self._dependents: dict[str, set[ObjectKey]] = {}
        self.version = FIRST_VERSION
        self.highest_version = FIRST_VERSION
        """The highest version ever assigned: above `version` after a `restore`."""
        for resource in BUILT_IN:
            self.define(resource)

    # --- kinds -----------------------------------------------------------------------------------------------------
    def define(self, resource: Resource) -> None:
        """Start serving a kind; a repeated definition keeps the objects and their changes."""
        table = self._tables.get(resource.key)
        if table is None:
            self._tables[resource.key] = _Table(resource, self._ring_size, self.version)
        elif not (resource.key == "events" and resource.group):
            table.resource = resource

    def undefine(self, resource: str) -> None:
        """Remove a kind and its changes; its objects must be gone."""
        del self._tables[resource]

    def resource(self, resource: str) -> Resource:
        """The definition of a kind by its key."""
        return self._table(resource).resource

    def resources(self) -> tuple[Resource, ...]:
        """All kinds that are stored."""
        return tuple(table.resource for table in self._tables.values())

    def _table(self, resource: str) -> _Table:
        table = self._tables.get(resource)
        if table is None:
            raise unknown_path()
        return table

    # --- reading ---------------------------------------------------------------------------------------------------
    def entry(self, resource: str, namespace: str, name: str) -> Entry:
        """The stored object, not decoded; raises NotFound."""
        table = self._table(resource)
        entry = table.objects.get((namespace, name))
        if entry is None:
            raise not_found(table.resource.group_resource, name)
        return entry

    def find(self, resource: str, namespace: str, name: str) -> Entry | None:
        """The stored object, or None; raises NotFound for an unknown kind."""
        return self._table(resource).objects.get((namespace, name))

    def get(self, resource: str, namespace: str, name: str) -> Json:
        """A fresh dict of the object; raises NotFound."""
        return self.entry(resource, namespace, name).obj()

    def list(self, resource: str, namespace: str | None = None) -> Objects:
        """Fresh dicts of all objects of a kind (None or "": of every namespace), in order of namespace and name."""
        return [entry.obj() for _, entry in self.entries(resource, namespace)]

    def entries(self, resource: str, namespace: str | None = None) -> Entries:
        """All objects of a kind, not decoded, in order of namespace and name."""
        objects = self._table(resource).objects
        keys = sorted(objects) if not namespace else sorted(key for key in objects if key[0] == namespace)
        return [(ObjectKey(resource, *key), objects[key]) for key in keys]

    def count(self, resource: str) -> int:
        """The number of objects of a kind."""
        return len(self._table(resource).objects)

    def locate(self, uid: str) -> ObjectKey | None:
        """The key of the object with this uid, or None."""
        return self._by_uid.get(uid)

    def dependents(self, uid: str) -> set[ObjectKey]:
        """The existing objects with this uid in their ownerReferences; the uid itself need not exist."""
        return set(self._dependents.get(uid, ()))

    # --- changes ---------------------------------------------------------------------------------------------------
    def changes_since(self, resource: str, version: int) -> Iterator[Change]:
        """Changes of a kind after `version`, oldest first; 410 Expired when some are no longer in the ring."""
        table = self._table(resource)
        if version < table.compacted or version > self.version:
            raise expired(version, table.compacted)
        newer: deque[Change] = deque()
        for change in reversed(table.ring):
            if change.version <= version:
                break
            newer.appendleft(change)
        return iter(newer)

    def oldest_version(self, resource: str) -> int:
        """The version after which all changes are stored."""
        return self._table(resource).compacted

    def subscribe(self, callback: Subscriber, resource: str | None = None) -> Callable[[], None]:
        """Call `callback` after each change (of one kind, or of all); returns the function that unsubscribes."""
        subscribers = self._everything if resource is None else self._table(resource).subscribers
        subscribers.append(callback)

        def unsubscribe() -> None:
            if callback in subscribers:
                subscribers.remove(callback)

        return unsubscribe

    def _commit(self, key: ObjectKey, obj: Json, change_type: ChangeType, previous: Entry | None) -> Entry:
        self.version += 1
        metadata = obj["metadata"]
        metadata["resourceVersion"] = str(self.version)
        entry = Entry(
            # Kind and version first: items in lists of built-in kinds leave them out.
            raw=encode({"kind": obj["kind"], "apiVersion": obj["apiVersion"], **obj}),
            version=self.version,
            uid=metadata["uid"],
            labels=metadata.get("labels") or {},
            owners=tuple(dict.fromkeys(owner["uid"] for owner in metadata.get("ownerReferences") or ())),
            is_terminating="deletionTimestamp" in metadata,
        )
        self._apply(Change(change_type, key, entry, previous))
        return entry

    def _apply(self, change: Change) -> None:
        key, entry = change.key, change.entry
        table = self._tables[key.resource]
        self._index(key, change.previous, None if change.type == "DELETED" else entry)
        if change.type == "DELETED":
            del table.objects[key.namespace, key.name]
        else:
            table.objects[key.namespace, key.name] = entry
        if len(table.ring) == table.ring.maxlen:
            table.compacted = table.ring[0].version
        table.ring.append(change)
        for subscriber in (*table.subscribers, *self._everything):
            subscriber(change)

    def adopt(self, key: ObjectKey, entry: Entry) -> None:
        """Store a new object that another store has created in the same state, at the same version and with the same uid."""
        if (entry.version, entry.uid) != (self.version + 1, self._new_uid()):
            raise ValueError(f"{key.name} was created in another state: version {entry.version}, uid {entry.uid}")
        self.version = entry.version
        self._apply(Change("ADDED", key, entry, None))

    def _index(self, key: ObjectKey, previous: Entry | None, current: Entry | None) -> None:
        before = previous.owners if previous else ()
        after = current.owners if current else ()
        if before != after:
            for uid in before:
                owned = self._dependents[uid]
                owned.discard(key)
                if not owned:
                    del self._dependents[uid]
            for uid in after:
                self._dependents.setdefault(uid, set()).add(key)
        if previous is None and current is not None:
            self._by_uid[current.uid] = key
        elif current is None and previous is not None:
            self._by_uid.pop(previous.uid, None)

    # --- backups ---------------------------------------------------------------------------------------------------
    def snapshot(self) -> Snapshot:
        """Copy the current objects."""
        return Snapshot(self.version, {key: dict(table.objects) for key, table in self._tables.items()})

    def restore(self, snapshot: Snapshot) -> None:
        """Restore a snapshot and its version without notifying watchers, like a restore of etcd (RM:F10).

        Every kind of the snapshot must still be defined; kinds that were defined later are left without objects.
        """
        self.highest_version = max(self.highest_version, self.version)
        self.version = snapshot.version
        self._by_uid, self._dependents = {}, {}
        for resource, table in self._tables.items():
            table.objects, table.compacted = dict(snapshot.objects.get(resource, {})), snapshot.version
            table.ring.clear()
            for name, entry in table.objects.items():
                self._index(ObjectKey(resource, *name), None, entry)

    # --- writing ---------------------------------------------------------------------------------------------------
    def create(self, resource: str, obj: Json, *, is_dry_run: bool = False) -> Entry:
        """Store a new object; takes over `obj` and sets uid, creationTimestamp, generation, apiVersion and kind.

        The name must be set (the routes resolve generateName). Raises 409 AlreadyExists, 404 for a namespace that does
        not exist, 403 for a terminating one.
        """
        table = self._table(resource)
        definition = table.resource
        metadata = obj.setdefault("metadata", {})
        namespace = metadata.get("namespace") or "" if definition.is_namespaced else ""
        key = ObjectKey(resource, namespace, metadata["name"])
        if definition.is_namespaced:
            self._require_namespace(definition, key)
        if (namespace, key.name) in table.objects:
            raise already_exists(definition.group_resource, key.name)
        object_meta.begin(definition, obj, namespace=namespace, uid=self._new_uid(), now=self.now())
        if is_dry_run:
            return Entry(encode(obj), 0, metadata["uid"], metadata.get("labels") or {}, (), False)
        return self._commit(key, obj, "ADDED", None)

    def _require_namespace(self, definition: Resource, key: ObjectKey) -> None:
        namespace = self._tables["namespaces"].objects.get(("", key.namespace))
        if namespace is None:
            raise not_found("namespaces", key.namespace)
        if namespace.is_terminating:
            raise object_meta.namespace_terminating(definition, key.name, key.namespace)

    def update(self, resource: str, obj: Json, *, subresource: str | None = None, is_dry_run: bool = False) -> Entry:
        """Replace an object; takes over `obj`.

        `subresource` restricts the change: "status", "finalize" (a namespace's spec) or "binding" (spec and status in
        one change). A resourceVersion in `obj` must be the stored one (409 Conflict otherwise); a uid too (422
        Invalid). An update that changes nothing keeps the version and produces no event. Removing the last finalizer of
        a terminating object deletes it; the entry returned is then the object as it was sent.
        """
        definition = self._table(resource).resource
        metadata = obj.setdefault("metadata", {})
        namespace = metadata.get("namespace") or "" if definition.is_namespaced else ""
        key = ObjectKey(resource, namespace, metadata["name"])
        entry = self.entry(resource, namespace, key.name)
        old = entry.shared()
        asked = metadata.get("resourceVersion")
        if asked and asked != old["metadata"]["resourceVersion"]:
            raise modified(definition.group_resource, key.name)
        new = object_meta.merged_update(definition, old, obj, subresource)
        if object_meta.is_same(old, new):
            return entry
        if is_dry_run:
            return Entry(encode(new), entry.version, entry.uid, entry.labels, entry.owners, entry.is_terminating)
        if object_meta.is_finished(definition, new):
            self._commit(key, entry.obj(), "DELETED", entry)
            return Entry(encode(new), self.version, entry.uid, entry.labels, entry.owners, True)
        return self._commit(key, new, "MODIFIED", entry)

    def delete(
        self,
        resource: str,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_s: int | None = None,
        propagation: str | None = None,
        is_dry_run: bool = False,
    ) -> Deleted:
        """Delete as the API does: mark only, while finalizers, a grace period or a namespace's content remain.

        `uid` and `resource_version` are preconditions (409 Conflict). `propagation` is Background (default), Foreground
        or Orphan; the last two set a finalizer for the garbage collector. A bound pod is marked with its grace period,
        and `grace_s=0` removes it (a MODIFIED and a DELETED event, as on a real server).
        """
        definition = self._table(resource).resource
        key = ObjectKey(resource, namespace if definition.is_namespaced else "", name)
        entry = self.entry(resource, key.namespace, name)
        object_meta.check_preconditions(
            definition,
            name,
            uid=entry.uid,
            version=str(entry.version),
            wanted_uid=uid,
            wanted_version=resource_version,
        )
        if is_dry_run:
            return Deleted(entry, is_gone=False)
        obj = entry.obj()
        marking = object_meta.mark(definition, obj, grace_s=grace_s, propagation=propagation, now=self.now())
        if marking.is_changed:
            entry = self._commit(key, obj, "MODIFIED", entry)
        if marking.is_waiting:
            return Deleted(entry, is_gone=False)
        return Deleted(self._commit(key, obj, "DELETED", entry), is_gone=True)


__all__ = ["ApiStatusError", "Change", "ChangeType", "Deleted", "Entry", "ObjectKey", "Snapshot", "Store", "Subscriber"]
