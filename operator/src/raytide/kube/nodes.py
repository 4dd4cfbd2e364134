"""Dead nodes: nodes of our pods that are not Ready or whose Node object is gone.

Takes the node informer and pod changes; returns node names. A pod event may arrive before the event of its node,
because each kind has its own watch: a missing node is gone only once the node informer is at least as new as the pod,
since a node may have been re-created under its name. Used by every controller that replaces pods of dead nodes (SC:S12,
FD:RC-B10).
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol

from raytide.api.node import NodeView
from raytide.kube.informer import Informer
from raytide.kube.reflector import version_number

RECHECK_INTERVAL_S: Final = 2.0
"""How often missing nodes are checked again; a watch advances at least once a minute by a bookmark."""
MAX_UNDECIDED: Final = 10_000
"""Limit of undecided node names; others are checked again when their pods change."""


class PodOnNode(Protocol):
    """The fields of a pod that are needed."""

    @property
    def uid(self) -> str:
        """Object uid."""

    @property
    def node_name(self) -> str:
        """Empty before it is scheduled."""

    @property
    def resource_version(self) -> str:
        """Its resourceVersion, as the API server returned it."""


class DeadNodes:
    """Nodes that are not Ready or are gone.

    - `dead_among` returns those of some pods. A missing node is gone once the node informer has reached the version at
      which each of these pods was first seen on it: the node was created before. That version is stored because the
      version of a pod rises with every change. Otherwise the pod may be on a new node of that name whose event is still
      to come.
    - This compares versions of two kinds. Where nodes have an etcd of their own with a lower counter, none is gone.
    - No node counts as gone while nodes cannot be watched; where nodes may not be read, none is dead.
    - `run` reports nodes that were undecided when `dead_among` was called and have turned out to be gone.
    """

    def __init__(self, informer: Informer[NodeView]) -> None:
        self._informer = informer
        self._first_seen_version: dict[str, int] = {}
        """The version at which each existing pod was first seen on its node, by pod uid."""
        self._undecided: dict[str, int] = {}
        """The version that the node informer must reach to decide, by node name."""
        self._has_undecided = asyncio.Event()

    def update(self, new: NodeView | None) -> None:
        """Record a node change; None for a deletion."""
        if new is not None:
            self._undecided.pop(new.name, None)

    def update_pod(self, old: PodOnNode | None, new: PodOnNode | None) -> None:
        """Record that a pod was added, changed or deleted."""
        if old is not None and (new is None or new.uid != old.uid):
            self._first_seen_version.pop(old.uid, None)
        if new is not None and new.node_name:
            version = version_number(new.resource_version)  # lower than before only once the store was restored
            self._first_seen_version[new.uid] = min(version, self._first_seen_version.get(new.uid, version))

    def dead_among(self, pods: Iterable[PodOnNode]) -> frozenset[str]:
        """The nodes of these pods that are not Ready or are gone."""
        not_ready: set[str] = set()
        absent: dict[str, int] = {}
        for pod in pods:
            name = pod.node_name
            node = self._informer.get("", name) if name else None
            if node is not None and not node.is_ready:
                not_ready.add(name)
            elif name and node is None:
                version = self._first_seen_version.get(pod.uid, version_number(pod.resource_version))
                absent[name] = max(version, absent.get(name, 0))
        return frozenset(not_ready.union(name for name, version in absent.items() if self._is_gone(name, version)))

    async def run(self, on_gone: Callable[[Collection[str]], None]) -> None:
        """Report nodes that only now are known to be gone, until cancelled; idle while no node is undecided."""
        while True:
            await self._has_undecided.wait()
            await asyncio.sleep(RECHECK_INTERVAL_S)
            gone = [name for name, version in self._undecided.items() if self._has_reached(version)]
            for name in gone:
                del self._undecided[name]
            if not self._undecided:
                self._has_undecided.clear()
            if gone:
                on_gone(gone)

    def _is_gone(self, name: str, version: int) -> bool:
        """Whether a missing node is gone, given the version at which pods were on it."""
        is_gone = self._has_reached(version)
        if not is_gone and self._informer.is_synced:
            self._undecided[name] = min(version, self._undecided.get(name, version))
            if len(self._undecided) > MAX_UNDECIDED:
                del self._undecided[next(iter(self._undecided))]
            self._has_undecided.set()
        return is_gone

    def _has_reached(self, version: int) -> bool:
        """Whether the node informer has reached this version."""
        return self._informer.is_synced and not self._informer.error and version <= self._informer.version
