"""Garbage collection by owner references, and of pods on deleted nodes.

Takes changes of any kind. Deletes dependents whose owners are gone or never existed, dependents of an owner in
foreground deletion before the owner itself, and pods whose node was deleted; of an owner deleted with the Orphan policy
it removes the owner references instead. It never deletes an object that still has a live owner, nor one with an owner
of a kind that the store does not serve. One of the sandbox's controllers; follows the semantics of Kubernetes' garbage
collector.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from raytide_sandbox.apiserver.store import Entry, ObjectKey, Store
from raytide_sandbox.controllers.base import Json, Noted, attempt, rewrite

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"


class GarbageCollector:
    """Applies owner references for all three propagation policies."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: dict[ObjectKey, None] = {}

    def on_change(self, noted: Noted) -> None:
        """Queue objects that the change may have orphaned, and terminating owners that may have waited for it."""
        change = noted.change
        entry, previous = change.entry, change.previous
        if noted.is_gone:
            self._enqueue(self._store.dependents(entry.uid))
        elif entry.is_terminating or (entry.owners and (previous is None or previous.owners != entry.owners)):
            self._enqueue([change.key])
        for uid in {*entry.owners, *(previous.owners if previous else ())}:
            self._enqueue_if_terminating(uid)

    def act(self, now: datetime) -> datetime | None:  # noqa: ARG002 - nothing here waits for a time
        """Process all queued objects, including those queued meanwhile."""
        while self._queue:
            key = next(iter(self._queue))
            del self._queue[key]
            entry = self._store.find(*key) if self._is_served(key.resource) else None
            if entry is None:
                continue
            if entry.is_terminating:
                self._finish_owner(key, entry.shared())
            elif entry.owners:
                self._check_dependent(key, entry.shared())
        return None

    def _enqueue(self, keys: Iterable[ObjectKey]) -> None:
        self._queue.update(dict.fromkeys(sorted(keys)))

    def _enqueue_if_terminating(self, uid: str) -> None:
        owner = self._store.locate(uid)
        entry = self._store.find(*owner) if owner else None
        if owner and entry and entry.is_terminating:
            self._enqueue([owner])

    # --- an owner that is being deleted ------------------------------------------------------------------------------
    def _finish_owner(self, key: ObjectKey, owner: Json) -> None:
        finalizers = owner["metadata"].get("finalizers") or ()
        uid = owner["metadata"]["uid"]
        if ORPHAN in finalizers:
            for dependent in sorted(self._store.dependents(uid)):
                rewrite(self._store, dependent, lambda obj: _drop_owners(obj, {uid}))
            rewrite(self._store, key, lambda obj: _drop_finalizer(obj, ORPHAN))
        elif FOREGROUND in finalizers:
            dependents = sorted(self._store.dependents(uid))
            if any(_blocks(self._store.get(*dependent), uid) for dependent in dependents):
                for dependent in dependents:
                    self._queue_dependent(dependent)
            else:
                rewrite(self._store, key, lambda obj: _drop_finalizer(obj, FOREGROUND))
                self._enqueue(dependents)

    def _queue_dependent(self, key: ObjectKey) -> None:
        entry = self._store.find(*key)
        if entry and not entry.is_terminating:
            self._enqueue([key])

    # --- a dependent ---------------------------------------------------------------------------------------------------
    def _check_dependent(self, key: ObjectKey, dependent: Json) -> None:
        lost: set[str] = set()
        waiting: set[str] = set()
        for reference in dependent["metadata"]["ownerReferences"]:
            owner = self._owner(key, reference)
            if owner is None:
                if not self._is_kind_served(reference):
                    return
                lost.add(reference["uid"])
            elif owner.is_terminating and FOREGROUND in (owner.shared()["metadata"].get("finalizers") or ()):
                waiting.add(reference["uid"])
        if len(lost) + len(waiting) < len({reference["uid"] for reference in dependent["metadata"]["ownerReferences"]}):
            if lost or waiting:
                rewrite(self._store, key, lambda obj: _drop_owners(obj, lost | waiting))
            return
        has_dependents = bool(self._store.dependents(dependent["metadata"]["uid"]))
        policy = "Foreground" if waiting and has_dependents else _policy(dependent)
        uid = dependent["metadata"]["uid"]
        attempt(lambda: self._store.delete(*key, uid=uid, propagation=policy))

    def _owner(self, dependent: ObjectKey, reference: Json) -> Entry | None:
        """The owner, if it exists in the same namespace or is cluster-scoped."""
        key = self._store.locate(reference["uid"])
        if key is None or (key.namespace and key.namespace != dependent.namespace):
            return None
        return self._store.find(*key)

    def _is_served(self, resource: str) -> bool:
        return any(known.key == resource for known in self._store.resources())

    def _is_kind_served(self, reference: Json) -> bool:
        group = reference["apiVersion"].rpartition("/")[0]
        return any(known.kind == reference["kind"] and known.group == group for known in self._store.resources())


class OrphanedPods:
    """Deletes pods of deleted nodes at once, because no kubelet is left to stop them gracefully."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pods_by_node: dict[str, set[ObjectKey]] = {}
        self._vanished: set[str] = set()

    def on_change(self, noted: Noted) -> None:
        """Track which pods are on which node, and which nodes were deleted."""
        key = noted.key
        if key.resource == "pods":
            node = noted.pod.spec.node_name
            if node and noted.is_gone:
                self._pods_by_node.get(node, set()).discard(key)
            elif node:
                self._pods_by_node.setdefault(node, set()).add(key)
        elif key.resource == "nodes" and noted.is_gone:
            self._vanished.add(key.name)
        elif key.resource == "nodes":
            self._vanished.discard(key.name)

    def act(self, now: datetime) -> datetime | None:  # noqa: ARG002 - nothing here waits for a time
        """Delete the pods of the deleted nodes."""
        for node in sorted(self._vanished):
            for key in sorted(self._pods_by_node.pop(node, ())):
                attempt(lambda key=key: self._store.delete(*key, grace_s=0))  # type: ignore[misc]
        return None


def _blocks(dependent: Json, owner_uid: str) -> bool:
    references: list[dict[str, Any]] = dependent["metadata"].get("ownerReferences") or []
    return any(reference["uid"] == owner_uid and reference.get("blockOwnerDeletion") for reference in references)


def _policy(dependent: Json) -> str:
    finalizers = dependent["metadata"].get("finalizers") or ()
    if ORPHAN in finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in finalizers else "Background"


def _drop_owners(obj: Json, uids: set[str]) -> None:
    metadata = obj["metadata"]
    kept = [reference for reference in metadata.get("ownerReferences") or () if reference["uid"] not in uids]
    if kept:
        metadata["ownerReferences"] = kept
    else:
        metadata.pop("ownerReferences", None)


def _drop_finalizer(obj: Json, finalizer: str) -> None:
    metadata = obj["metadata"]
    metadata["finalizers"] = [name for name in metadata.get("finalizers") or () if name != finalizer]
