"""Informer: local cache of the objects of one kind, reduced to views.

Takes objects as bytes from a list and a watch, and holds small frozen views by name and by index; every change calls a
handler once. It never holds an object that was not in a complete list or a watch event, reports deletions that happened
while the watch was down, and does constant work per event. Read by controllers, wired in `manager/main.py` (D3).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

import msgspec

from raytide.api.meta import Key, Resource
from raytide.kube.client import Client
from raytide.kube.reflector import FORBIDDEN_S, SILENCE_S, AnyObject, ObjectMeta, Reflector, version_number
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

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
        client: Client,
        resource: Resource,
        *,
        clock: Clock,
        decoder: Callable[[msgspec.Raw], V],
        index: Callable[[V], Key | None] = lambda _: None,
        on_change: Callable[[V | None, V | None], None] = lambda _old, _new: None,
        label_selector: str = "",
        field_selector: str = "",
        namespaces: tuple[str, ...] | None = None,
        silence_s: float = SILENCE_S,
        name: str = "",
        if_forbidden: str = "",
        forbidden_s: float = FORBIDDEN_S,
    ) -> None:
        """`namespaces` None means all, with one list and one watch; a watch without bytes for `silence_s` is dead.

        `if_forbidden` makes the informer optional: the text says what is not done while listing or watching is
        forbidden, which is retried every `forbidden_s`.
        """
        self.resource = resource
        self.name = name or resource.plural
        """Name in probes and metrics; two informers of one kind have two names."""
        self._clock = clock
        self._store = _Store(index, on_change)
        self._shelves: dict[str, _Shelf[V]] = {}
        self._reflectors: dict[str, Reflector] = {}
        for namespace in namespaces or ("",):
            shelf = self._shelves[namespace] = _Shelf(self._store, decoder, resource)
            self._reflectors[namespace] = Reflector(
                *(client, resource, namespace or None, shelf),
                clock=clock,
                label_selector=label_selector,
                field_selector=field_selector,
                silence_s=silence_s,
                if_forbidden=if_forbidden,
                forbidden_s=forbidden_s,
            )

    async def run(self) -> None:
        """List and watch until cancelled; run it in a TaskGroup."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._reflectors.values():
                tasks.create_task(reflector.run())

    async def wait_synced(self) -> None:
        """Return when every namespace has been listed once."""
        for reflector in self._reflectors.values():
            await reflector.wait_listed()

    async def refresh(self) -> None:
        """Return when a list that began after this call is complete (D6: a new leadership term)."""
        await asyncio.gather(*(reflector.refresh() for reflector in self._reflectors.values()))

    def relist(self) -> None:
        """Request one list."""
        for reflector in self._reflectors.values():
            reflector.relist()

    @property
    def is_synced(self) -> bool:
        """Whether every namespace has been listed."""
        return all(reflector.lists for reflector in self._reflectors.values())

    @property
    def is_following(self) -> bool:
        """Whether changes are received as they happen: synced, and every watch is open."""
        return self.is_synced and all(reflector.is_open for reflector in self._reflectors.values())

    @property
    def is_listable(self) -> bool | None:
        """Whether the kind may be listed: False if it is not served or forbidden, None before the first answer.

        With several namespaces one listable namespace is enough.
        """
        answers = {reflector.is_listable for reflector in self._reflectors.values()}
        return True if True in answers else None if None in answers else False

    @property
    def age_s(self) -> float:
        """Seconds since the last activity of the least active watch; more than 60 means trouble (D9)."""
        now = self._clock.monotonic()
        return max(now - reflector.signed_at for reflector in self._reflectors.values())

    @property
    def trouble(self) -> str:
        """Error that prevents listing or watching; empty when there is none."""
        return next((reflector.trouble for reflector in self._reflectors.values() if reflector.trouble), "")

    @property
    def lists(self) -> int:
        """Number of completed lists, over all namespaces."""
        return sum(reflector.lists for reflector in self._reflectors.values())

    @property
    def version(self) -> int:
        """The resourceVersion up to which every namespace is synced."""
        return min(version_number(reflector.version) for reflector in self._reflectors.values())

    def version_in(self, namespace: str) -> int:
        """The resourceVersion up to which this namespace is synced; 0 if it is not watched."""
        reflector = self._reflectors.get(namespace) or self._reflectors.get("")
        return version_number(reflector.version) if reflector else 0

    def get(self, namespace: str, name: str) -> V | None:
        """The view of one object."""
        return self._store.views.get(Key(namespace, name))

    def by_index(self, key: Key) -> tuple[V, ...]:
        """The views with this index key, in the order in which they were first received."""
        return tuple(self._store.by_index.get(key, {}).values())

    def index_keys(self) -> tuple[Key, ...]:
        """Every index key with at least one view."""
        return tuple(self._store.by_index)

    def all(self) -> Iterator[V]:
        """Every view; do not await while iterating."""
        return iter(self._store.views.values())

    def __len__(self) -> int:
        """Number of objects."""
        return len(self._store.views)


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


class _Shelf(Generic[V]):
    """Sink of one reflector: tracks the versions of the objects received through it."""

    def __init__(self, store: _Store[V], decoder: Callable[[msgspec.Raw], V], resource: Resource) -> None:
        self._store = store
        self._decoder = decoder
        self._resource = resource
        self._versions: dict[Key, str] = {}
        self._listed: dict[Key, str] = {}
        self._fresh: dict[Key, V] = {}
        self._objects = msgspec.json.Decoder(AnyObject)

    def begin(self) -> None:
        self._listed, self._fresh = {}, {}

    def collect(self, items: Iterable[msgspec.Raw]) -> None:
        for item in items:
            metadata = self._objects.decode(item).metadata
            key = Key(metadata.namespace, metadata.name)
            self._listed[key] = metadata.resource_version
            if self._versions.get(key) != metadata.resource_version:
                view = self._view(item, metadata)
                if view is not None:
                    self._fresh[key] = view

    def replace(self) -> None:
        listed, fresh, gone = self._listed, self._fresh, self._versions.keys() - self._listed.keys()
        self._versions = listed
        self.begin()
        for key in sorted(gone):
            self._store.remove(key)
        for key, view in fresh.items():
            self._store.put(key, view)

    def change(self, kind: str, item: msgspec.Raw) -> str:
        metadata = self._objects.decode(item).metadata
        key, version = Key(metadata.namespace, metadata.name), metadata.resource_version
        if kind == "DELETED":
            self._versions.pop(key, None)
            self._store.remove(key)
        elif self._is_news(key, version):
            self._versions[key] = version
            view = self._view(item, metadata)
            if view is not None:
                self._store.put(key, view)
        return version

    def _is_news(self, key: Key, version: str) -> bool:
        """Whether the event is newer than what is stored."""
        known = self._versions.get(key)
        if known is None:
            return True
        return known != version and version_number(known) <= version_number(version)

    def _view(self, item: msgspec.Raw, metadata: ObjectMeta) -> V | None:
        try:
            return self._decoder(item)
        except Exception:
            log.exception(
                "%s %s/%s cannot be decoded; its last decoded version, if any, is kept",
                self._resource.kind,
                metadata.namespace,
                metadata.name,
            )
            return None
