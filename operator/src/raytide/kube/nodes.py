"""Which nodes of our pods do not answer?

Takes the informer of nodes and pods, and gives the names of nodes that are not Ready or whose Node object is gone. A pod
may be heard of before its node is, because each kind has a stream of its own: that a node is not in the list means that it
is gone only once the list is as new as the pod, or the node was in it before. Used by every room that replaces pods of dead
nodes (SC:S12, FD:RC-B10).
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol, TypeVar

from raytide.api.node import NodeView
from raytide.kube.informer import Informer
from raytide.kube.reflector import version_number

V = TypeVar("V")

SETTLE_EVERY_S: Final = 2.0
"""How often it is asked whether the stream of nodes has come as far as a pod; a server tells so once a minute at least."""
MOST_NAMES: Final = 10_000
"""So many names of deleted nodes are remembered; for older ones the versions alone decide."""


class PodOnNode(Protocol):
    """What has to be known of a pod."""

    @property
    def node_name(self) -> str:
        """Empty before it is scheduled."""

    @property
    def resource_version(self) -> str:
        """As the API gave it."""


class DeadNodes:
    """Nodes that do not answer.

    - `unready` gives those of some pods. A node without an object counts as gone if it was deleted before our eyes, or if
      nodes are known up to a version at which a pod was on it already: the node was older than that. This compares versions
      of two kinds; where nodes have an etcd of their own with a lower counter, only the first of the two is noticed.
    - Nothing counts as gone while nodes cannot be followed, and where they may not be read nothing is dead.
    - `follow` tells of those that were in doubt when they were asked for and have turned out to be gone.
    """

    def __init__(self, informer: Informer[NodeView]) -> None:
        self._informer = informer
        self._deleted: dict[str, None] = {}
        self._doubtful: dict[str, int] = {}
        """The version up to which nodes have to be known, by name."""
        self._has_doubts = asyncio.Event()

    def note(self, old: NodeView | None, new: NodeView | None) -> None:
        """A node came, changed or went."""
        if new is not None:
            self._deleted.pop(new.name, None)
            self._doubtful.pop(new.name, None)
        elif old is not None:
            _bounded(self._deleted)[old.name] = None

    def unready(self, pods: Iterable[PodOnNode]) -> frozenset[str]:
        """The nodes of these pods that are not Ready or are gone."""
        versions: dict[str, int] = {}
        for pod in pods:
            if pod.node_name:
                version = version_number(pod.resource_version)
                versions[pod.node_name] = min(version, versions.get(pod.node_name, version))
        return frozenset(name for name, version in versions.items() if self._is_dead(name, version))

    async def follow(self, on_gone: Callable[[Collection[str]], None]) -> None:
        """Tell of nodes that are known to be gone only now, until cancelled; it rests while nothing is in doubt."""
        while True:
            await self._has_doubts.wait()
            await asyncio.sleep(SETTLE_EVERY_S)
            gone = [name for name, version in self._doubtful.items() if self._is_gone(name, version)]
            for name in gone:
                del self._doubtful[name]
                _bounded(self._deleted)[name] = None
            if not self._doubtful:
                self._has_doubts.clear()
            if gone:
                on_gone(gone)

    def _is_dead(self, name: str, version: int) -> bool:
        node = self._informer.get("", name)
        if node is not None:
            return not node.is_ready
        is_gone = self._is_gone(name, version)
        if not is_gone and self._informer.is_synced:
            _bounded(self._doubtful)[name] = min(version, self._doubtful.get(name, version))
            self._has_doubts.set()
        return is_gone

    def _is_gone(self, name: str, version: int) -> bool:
        """Whether a node that is not in the list has left it."""
        is_followed = self._informer.is_synced and not self._informer.trouble
        return is_followed and (name in self._deleted or version <= self._informer.version)


def _bounded(names: dict[str, V]) -> dict[str, V]:
    """The same with room for one name more: the oldest goes."""
    if len(names) >= MOST_NAMES:
        del names[next(iter(names))]
    return names
