"""Informer: local cache of the objects of one kind, reduced to views.

Takes objects as bytes from a list and a watch, and holds small frozen views by name and by index; every change calls a
handler once. It never holds an object that was not in a complete list or a watch event, reports deletions that happened
while the watch was down, and does constant work per event. Read by controllers, wired in `manager/main.py` (D3).
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from raytide.api.meta import Key, Resource
from raytide.kube.reflector import Collection, Phase, Reflector, version_number
from raytide.kube.shared_watch import SharedWatch, SharedWatches, Subscriber

V = TypeVar("V")


class Informer(Generic[V]):
    """Local cache of one kind.

    - `is_synced` is true after the first complete list of every namespace, and stays true; `age_s` is the staleness.
    - `get`, `by_index`, `all` and `len` read from memory.
    - `on_change(old, new)` is called once per change, right after the store is updated; neither for repeated events nor
      for objects that a relist returns unchanged.
    - A relist replaces everything: an object that is absent from it is reported as deleted.
    - `decoder` receives each version once; an object that it cannot decode is logged and keeps its old view.
    - `version_in` is the resourceVersion up to which a namespace is synced, 0 before the first list.
    - `relist` requests one list, `refresh` waits for one.
    """

    def __init__(
        self,
        watches: SharedWatches,
        resource: Resource,
        *,
        decoder: Callable[[msgspec.Raw], V],
        index: Callable[[V], Key | None] = lambda _: None,
        on_change: Callable[[V | None, V | None], None] = lambda _old, _new: None,
        label_selector: str = "",
        field_selector: str = "",
        namespaces: tuple[str, ...] | None = None,
        name: str = "",
        if_forbidden: str = "",
    ) -> None:
        """`namespaces` None means all, with one list and one watch.

        Informers of the same `watches` with equal resource, namespace and selectors share the list and the watch.
        `if_forbidden` makes the informer optional: the text says what is not done while listing or watching is
        forbidden, which is retried at long intervals.
        """
        self.resource = resource
        self.name = name or resource.plural
        """Name in probes and metrics; two informers of one kind have two names."""
        self._store = _Store(index, on_change)
        self._sources: dict[str, tuple[SharedWatch, Subscriber[V]]] = {
            namespace: (
                watches.watch(Collection(resource, namespace, label_selector, field_selector)),
                Subscriber(self._store, decoder, resource, if_forbidden=if_forbidden),
            )
            for namespace in namespaces or ("",)
        }

    async def run(self) -> None:
        """List and watch until cancelled; run it in a TaskGroup."""
        async with asyncio.TaskGroup() as tasks:
            for watch, subscriber in self._sources.values():
                tasks.create_task(watch.run(subscriber))

    async def wait_synced(self) -> None:
        """Return when every namespace has been listed once."""
        for _, subscriber in self._sources.values():
            await subscriber.listed.wait()

    async def refresh(self) -> None:
        """Return when a list that began after this call is complete (D6: a new leadership term)."""
        await asyncio.gather(*(reflector.refresh() for reflector in self._reflectors))
        await self.wait_synced()

    def relist(self) -> None:
        """Request one list."""
        for reflector in self._reflectors:
            reflector.relist()

    @property
    def is_synced(self) -> bool:
        """Whether every namespace has been listed."""
        return all(subscriber.listed.is_set() for _, subscriber in self._sources.values())

    @property
    def is_following(self) -> bool:
        """Whether changes are received as they happen: synced, and every watch is open."""
        return self.is_synced and all(reflector.phase is Phase.WATCHING for reflector in self._reflectors)

    @property
    def is_listable(self) -> bool | None:
        """Whether the kind may be listed: False if it is not served or forbidden, None before the first answer.

        With several namespaces one listable namespace is enough.
        """
        answers = {reflector.is_listable for reflector in self._reflectors}
        return True if True in answers else None if None in answers else False

    @property
    def age_s(self) -> float:
        """Seconds since the last activity of the least active watch; more than 60 means trouble (D9)."""
        return max(reflector.age_s for reflector in self._reflectors)

    @property
    def error(self) -> str:
        """Error that prevents listing or watching; empty when there is none."""
        return next((reflector.error for reflector in self._reflectors if reflector.error), "")

    @property
    def lists(self) -> int:
        """Number of completed lists, over all namespaces."""
        return sum(reflector.lists for reflector in self._reflectors)

    @property
    def version(self) -> int:
        """The resourceVersion up to which every namespace is synced."""
        return min(map(_version_of, self._sources.values()))

    def version_in(self, namespace: str) -> int:
        """The resourceVersion up to which this namespace is synced; 0 if it is not watched."""
        source = self._sources.get(namespace) or self._sources.get("")
        return _version_of(source) if source else 0

    def get(self, namespace: str, name: str) -> V | None:
        """The view of one object."""
        return self._store.views.get(Key(namespace, name))

    def by_index(self, key: Key) -> tuple[V, ...]:
        """The views with this index key, in the order in which they were first received."""
        return tuple(self._store.by_index.get(key, {}).values())

    def all(self) -> Iterator[V]:
        """Every view; do not await while iterating."""
        return iter(self._store.views.values())

    def __len__(self) -> int:
        """Number of objects."""
        return len(self._store.views)

    @property
    def _reflectors(self) -> tuple[Reflector, ...]:
        return tuple(watch.reflector for watch, _ in self._sources.values())


def _version_of(source: tuple[SharedWatch, Subscriber[Any]]) -> int:
    watch, subscriber = source
    return version_number(watch.reflector.version) if subscriber.listed.is_set() else 0


class _Store(Generic[V]):
    """Views by key and by index, updated together, with the change handler called at once."""

    def __init__(self, index: Callable[[V], Key | None], on_change: Callable[[V | None, V | None], None]) -> None:
        self.views: dict[Key, V] = {}
        self.by_index: dict[Key, dict[Key, V]] = {}
        self._index = index
        self._on_change = on_change

    def put(self, key: Key, view: V) -> None:
        old = self.views.get(key)
        group = self._index(view)
        if old is not None and self._index(old) != group:
            self._unindex(key, old)
        self.views[key] = view
        if group is not None:
            self.by_index.setdefault(group, {})[key] = view
        self._on_change(old, view)

    def remove(self, key: Key) -> None:
        old = self.views.pop(key, None)
        if old is not None:
            self._unindex(key, old)
            self._on_change(old, None)

    def _unindex(self, key: Key, view: V) -> None:
        group = self._index(view)
        members = self.by_index.get(group) if group is not None else None
        if members is None or group is None:
            return
        members.pop(key, None)
        if not members:
            del self.by_index[group]
