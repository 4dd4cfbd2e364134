"""Namespace lifecycle: initial content and termination.

Takes changes and guarantees two things: an active namespace has its `default` service account and the CA certificate,
and a terminating namespace loses first its content and then its own finalizer. An index of objects by namespace keeps
the cost of emptying one independent of the others. One of the sandbox's controllers; `ensure_initial` creates the four
namespaces of every cluster.
"""

from collections import Counter
from datetime import datetime
from typing import Final

from raytide_sandbox.apiserver.store import ObjectKey, Store
from raytide_sandbox.controllers.base import Json, Noted, attempt, rewrite, set_condition

INITIAL: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
SERVICE_ACCOUNT: Final = "default"
ROOT_CA: Final = "kube-root-ca.crt"


def ensure_initial(store: Store) -> None:
    """Create the namespaces that every cluster has from the start."""
    for name in INITIAL:
        if store.find("namespaces", "", name) is None:
            store.create("namespaces", {"metadata": {"name": name}})


class NamespaceLifecycle:
    """Deletes the content of terminating namespaces, then removes their finalizer."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._content: dict[str, set[ObjectKey]] = {}
        self._terminating: set[str] = set()
        self._swept: set[str] = set()
        self._due: set[str] = set()

    def on_change(self, noted: Noted) -> None:
        """Track the objects of each namespace, and the terminating namespaces."""
        key = noted.key
        if key.resource == "namespaces":
            self._on_namespace_change(noted)
        elif key.namespace:
            if noted.is_gone:
                self._content.get(key.namespace, set()).discard(key)
            else:
                self._content.setdefault(key.namespace, set()).add(key)
            if key.namespace in self._terminating:
                self._due.add(key.namespace)

    def _on_namespace_change(self, noted: Noted) -> None:
        name = noted.key.name
        if noted.is_gone:
            self._content.pop(name, None)
            for names in (self._terminating, self._swept, self._due):
                names.discard(name)
        elif noted.change.entry.is_terminating and name not in self._terminating:
            self._terminating.add(name)
            self._due.add(name)

    def act(self, now: datetime) -> datetime | None:
        """Delete the content of terminating namespaces; finalize those that are empty."""
        due, self._due = self._due, set()
        for name in sorted(due):
            if name not in self._swept:
                self._swept.add(name)
                for key in sorted(self._content.get(name, ())):
                    attempt(lambda key=key: self._store.delete(*key))  # type: ignore[misc]
            left = [key for key in sorted(self._content.get(name, ())) if self._store.find(*key) is not None]
            namespace = ObjectKey("namespaces", "", name)
            if left:
                rewrite(self._store, namespace, lambda obj, left=left: _report(obj, left, now), "status")  # type: ignore[misc]
            else:
                rewrite(self._store, namespace, _finalize, "finalize")
        return None


class ServiceAccounts:
    """Creates the `default` service account and the CA config map in each active namespace."""

    def __init__(self, store: Store, authority: str) -> None:
        self._store = store
        self._authority = authority
        self._due: set[str] = set()

    def on_change(self, noted: Noted) -> None:
        """Queue new namespaces, and those whose service account or config map was deleted."""
        key = noted.key
        if key.resource == "namespaces" and noted.change.type == "ADDED":
            self._due.add(key.name)
        elif noted.is_gone and (key.resource, key.name) in {
            ("serviceaccounts", SERVICE_ACCOUNT),
            ("configmaps", ROOT_CA),
        }:
            self._due.add(key.namespace)

    def act(self, now: datetime) -> datetime | None:  # noqa: ARG002 - nothing here waits for a time
        """Create what is missing."""
        due, self._due = self._due, set()
        for namespace in sorted(due):
            self._ensure("serviceaccounts", namespace, SERVICE_ACCOUNT, {})
            self._ensure("configmaps", namespace, ROOT_CA, {"data": {"ca.crt": self._authority}})
        return None

    def _ensure(self, resource: str, namespace: str, name: str, content: Json) -> None:
        if self._store.find(resource, namespace, name) is None:
            obj = {"metadata": {"name": name, "namespace": namespace}, **content}
            attempt(lambda: self._store.create(resource, obj))


def _finalize(namespace: Json) -> None:
    finalizers = namespace["spec"].get("finalizers") or ()
    namespace["spec"]["finalizers"] = [name for name in finalizers if name != "kubernetes"]


def _report(namespace: Json, left: list[ObjectKey], now: datetime) -> None:
    counts = Counter(key.resource for key in left)
    remaining = ", ".join(f"{kind} has {count} resource instances" for kind, count in sorted(counts.items()))
    condition = {
        "type": "NamespaceContentRemaining",
        "status": "True",
        "reason": "SomeResourcesRemain",
        "message": f"Some resources are remaining: {remaining}",
    }
    set_condition(namespace.setdefault("status", {}), condition, now)
