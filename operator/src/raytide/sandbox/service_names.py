"""Which addresses does each name in the pod network stand for?

Takes changes of Endpoints and keeps the table of full names: `svc.ns.svc.cluster.local` to the addresses of its ready
pods, `host.svc.ns.svc.cluster.local` to one host of a headless service. There is no cluster IP to reach in the sandbox,
so names lead straight to pods. The sandbox's process gives the table to the node's name server whenever it has changed.
"""

from collections.abc import Mapping
from typing import Any, Final

from raytide.sandbox.apiserver.store import Change, Store

DOMAIN: Final = "svc.cluster.local"


class ServiceNames:
    """The table, kept up to date by subscription."""

    def __init__(self, store: Store) -> None:
        self._names_by_service: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {}
        self.has_changed = False
        for key, entry in store.entries("endpoints"):
            self._see(Change("ADDED", key, entry, None))
        store.subscribe(self._see, "endpoints")

    def take(self) -> dict[str, tuple[str, ...]]:
        """The whole table as it is now."""
        self.has_changed = False
        return {name: found for names in self._names_by_service.values() for name, found in names.items()}

    def _see(self, change: Change) -> None:
        key = (change.key.namespace, change.key.name)
        names = {} if change.type == "DELETED" else names_of(change.entry.obj())
        if names != self._names_by_service.get(key, {}):
            self._names_by_service[key] = names
            self.has_changed = True


def names_of(endpoints: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The names that one Endpoints object gives; none while nobody is ready."""
    metadata = endpoints["metadata"]
    service = f"{metadata['name']}.{metadata['namespace']}.{DOMAIN}"
    names: dict[str, list[str]] = {}
    for subset in endpoints.get("subsets") or ():
        for address in subset.get("addresses") or ():
            names.setdefault(service, []).append(address["ip"])
            if address.get("hostname"):
                names.setdefault(f"{address['hostname']}.{service}", []).append(address["ip"])
    return {name: tuple(dict.fromkeys(found)) for name, found in names.items()}
