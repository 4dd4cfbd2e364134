"""What does the cluster consist of at this moment, and what changed?

Takes objects as dicts and keeps them as JSON bytes under one global resourceVersion; hands out entries, lists, changes
since a version (a ring of 10,000 per kind; older is 410) and who owns what. It keeps the rules that every write obeys
whoever makes it: uid, generation, optimistic locking, finalizers, graceful deletion, the status subresource. It knows
neither HTTP nor schemas, reads no clock (`now` and `new_uid` are given), and is used by the routes and by the sandbox's
controllers alike (D17).
"""

from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

import msgspec

from raytide.sandbox.apiserver import lifecycle
from raytide.sandbox.apiserver.kinds import BUILT_IN, Resource
from raytide.sandbox.apiserver.status import ApiStatus, already_exists, expired, modified, not_found, unknown_path

Json = dict[str, Any]
Objects = list[Json]
ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]

RING_SIZE: Final = 10_000
FIRST_VERSION: Final = 100
"""Where versions begin: a client that asks for what was before gets 410, as from a server that was started anew."""

encode = msgspec.json.encode
decode = msgspec.json.decode


class ObjectKey(NamedTuple):
    """Where an object lives: the kind's table (`pods`, `rayclusters.ray.io`), its namespace ("" if none), its name."""

    resource: str
    namespace: str
    name: str


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One stored object: its JSON, and what is asked so often that decoding would be a waste."""

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


Entries = list[tuple[ObjectKey, Entry]]


class Change:
    """One event of one object; `line` is the watch line, encoded once however many watch."""

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
        """`{"type": …, "object": …}` and a newline."""
        if self._line is None:
            self._line = b'{"type":"%s","object":%s}\n' % (self.type.encode(), self.entry.raw)
        return self._line


Subscriber = Callable[[Change], None]


class _Table:
    """All objects of one kind with their recent history."""

    __slots__ = ("compacted", "objects", "resource", "ring", "subscribers")

    def __init__(self, resource: Resource, ring_size: int, version: int) -> None:
        self.resource = resource
        self.objects: dict[tuple[str, str], Entry] = {}
        self.ring: deque[Change] = deque(maxlen=ring_size)
        self.compacted = version
        self.subscribers: list[Subscriber] = []


class Deleted(NamedTuple):
    """What a delete did: `entry` is the object afterwards (or as it was last), `is_gone` whether it left the store."""

    entry: Entry
    is_gone: bool


class Snapshot(NamedTuple):
    """All objects of a store at one version, as a backup of etcd has them."""

    version: int
    objects: dict[str, dict[tuple[str, str], Entry]]


class Store:
    """The objects of one cluster.

    - Every write raises `ApiStatus` (code, reason, message) when refused, and changes nothing then.
    - `now` is wall time in UTC; `new_uid` must never repeat itself; the caller decides both, so runs can be repeated.
    - Subscribers are called synchronously after each commit, in order; they note what they saw and must not write.
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
        """The highest that was ever handed out: above `version` after a `restore`."""
        for resource in BUILT_IN:
            self.define(resource)

    # --- kinds -----------------------------------------------------------------------------------------------------
    def define(self, resource: Resource) -> None:
        """Start serving a kind; defining it again keeps the objects and their history."""
        table = self._tables.get(resource.key)
        if table is None:
            self._tables[resource.key] = _Table(resource, self._ring_size, self.version)
        elif not (resource.key == "events" and resource.group):
            table.resource = resource

    def undefine(self, resource: str) -> None:
        """Forget a kind and its history; its objects must be gone."""
        del self._tables[resource]

    def resource(self, resource: str) -> Resource:
        """The definition of a kind by its key."""
        return self._table(resource).resource

    def resources(self) -> tuple[Resource, ...]:
        """Every kind that is stored."""
        return tuple(table.resource for table in self._tables.values())

    def _table(self, resource: str) -> _Table:
        table = self._tables.get(resource)
        if table is None:
            raise unknown_path()
        return table

    # --- reading ---------------------------------------------------------------------------------------------------
    def entry(self, resource: str, namespace: str, name: str) -> Entry:
        """The stored object without decoding it; raises NotFound."""
        table = self._table(resource)
        entry = table.objects.get((namespace, name))
        if entry is None:
            raise not_found(table.resource.group_resource, name)
        return entry

    def find(self, resource: str, namespace: str, name: str) -> Entry | None:
        """The stored object, or None; the kind must exist."""
        return self._table(resource).objects.get((namespace, name))

    def get(self, resource: str, namespace: str, name: str) -> Json:
        """A fresh dict of the object; raises NotFound."""
        return self.entry(resource, namespace, name).obj()

    def list(self, resource: str, namespace: str | None = None) -> Objects:
        """Fresh dicts of all objects of a kind (None or "": of every namespace), in order of namespace and name."""
        return [entry.obj() for _, entry in self.entries(resource, namespace)]

    def entries(self, resource: str, namespace: str | None = None) -> Entries:
        """All objects of a kind without decoding them, in order of namespace and name."""
        objects = self._table(resource).objects
        keys = sorted(objects) if not namespace else sorted(key for key in objects if key[0] == namespace)
        return [(ObjectKey(resource, *key), objects[key]) for key in keys]

    def count(self, resource: str) -> int:
        """How many objects of a kind there are."""
        return len(self._table(resource).objects)

    def locate(self, uid: str) -> ObjectKey | None:
        """Where the object with this uid lives, if it lives."""
        return self._by_uid.get(uid)

    def dependents(self, uid: str) -> set[ObjectKey]:
        """The living objects that name this uid in their ownerReferences; the uid itself need not exist."""
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
        """Changes after this version are all remembered."""
        return self._table(resource).compacted

    def subscribe(self, callback: Subscriber, resource: str | None = None) -> Callable[[], None]:
        """Call `callback` after each change (of one kind, or of all); returns the function that ends it."""
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
            # Kind and version first: a list of a built-in kind leaves them out of its items.
            raw=encode({"kind": obj["kind"], "apiVersion": obj["apiVersion"], **obj}),
            version=self.version,
            uid=metadata["uid"],
            labels=metadata.get("labels") or {},
            owners=tuple(dict.fromkeys(owner["uid"] for owner in metadata.get("ownerReferences") or ())),
            is_terminating="deletionTimestamp" in metadata,
        )
        table = self._tables[key.resource]
        self._index(key, previous, None if change_type == "DELETED" else entry)
        if change_type == "DELETED":
            del table.objects[key.namespace, key.name]
        else:
            table.objects[key.namespace, key.name] = entry
        change = Change(change_type, key, entry, previous)
        if len(table.ring) == table.ring.maxlen:
            table.compacted = table.ring[0].version
        table.ring.append(change)
        for subscriber in (*table.subscribers, *self._everything):
            subscriber(change)
        return entry

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
        """Everything as it is now."""
        return Snapshot(self.version, {key: dict(table.objects) for key, table in self._tables.items()})

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to it: versions count from there again, and no watcher is told, as when etcd is restored (RM:F10).

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
        """Store a new object; `obj` is taken over and completed (uid, creationTimestamp, generation, apiVersion, kind).

        The name must be there already (the routes turn generateName into one). Refused: 409 AlreadyExists, 404 for a
        namespace that does not exist, 403 for one that is being deleted.
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
        lifecycle.begin(definition, obj, namespace=namespace, uid=self._new_uid(), now=self.now())
        if is_dry_run:
            return Entry(encode(obj), 0, metadata["uid"], metadata.get("labels") or {}, (), False)
        return self._commit(key, obj, "ADDED", None)

    def _require_namespace(self, definition: Resource, key: ObjectKey) -> None:
        namespace = self._tables["namespaces"].objects.get(("", key.namespace))
        if namespace is None:
            raise not_found("namespaces", key.namespace)
        if namespace.is_terminating:
            raise lifecycle.namespace_terminating(definition, key.name, key.namespace)

    def update(self, resource: str, obj: Json, *, subresource: str | None = None, is_dry_run: bool = False) -> Entry:
        """Replace an object; `obj` is taken over.

        `subresource` restricts what is taken from it: "status", "finalize" (a namespace's spec) or "binding" (spec and
        status at once, in one event, as nothing else may). With a resourceVersion in `obj` it must be the stored one (409 Conflict otherwise); likewise the uid. An update
        that changes nothing keeps the version and tells nobody. Taking the last finalizer from an object that is being
        deleted removes it; the entry returned is then the object as it was sent.
        """
        definition = self._table(resource).resource
        metadata = obj.setdefault("metadata", {})
        namespace = metadata.get("namespace") or "" if definition.is_namespaced else ""
        key = ObjectKey(resource, namespace, metadata["name"])
        entry = self.entry(resource, namespace, key.name)
        old = entry.obj()
        asked = metadata.get("resourceVersion")
        if asked and asked != old["metadata"]["resourceVersion"]:
            raise modified(definition.group_resource, key.name)
        new = lifecycle.merged_update(definition, old, obj, subresource)
        if lifecycle.is_same(old, new):
            return entry
        if is_dry_run:
            return Entry(encode(new), entry.version, entry.uid, entry.labels, entry.owners, entry.is_terminating)
        if lifecycle.is_finished(definition, new):
            self._commit(key, old, "DELETED", entry)
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
        """Delete as the API does: mark first while finalizers, a grace period or a namespace's content remain.

        `uid` and `resource_version` are preconditions (409 Conflict). `propagation` is Background (default),
        Foreground or Orphan; the last two leave a finalizer for the garbage collector. A bound pod is marked with its
        grace period, and `grace_s=0` ends it (a MODIFIED and a DELETED event, as on a real server).
        """
        definition = self._table(resource).resource
        key = ObjectKey(resource, namespace if definition.is_namespaced else "", name)
        entry = self.entry(resource, key.namespace, name)
        lifecycle.check_preconditions(
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
        marking = lifecycle.mark(definition, obj, grace_s=grace_s, propagation=propagation, now=self.now())
        if marking.is_changed:
            entry = self._commit(key, obj, "MODIFIED", entry)
        if marking.is_waiting:
            return Deleted(entry, is_gone=False)
        return Deleted(self._commit(key, entry.obj(), "DELETED", entry), is_gone=True)


__all__ = ["ApiStatus", "Change", "ChangeType", "Deleted", "Entry", "ObjectKey", "Snapshot", "Store", "Subscriber"]
