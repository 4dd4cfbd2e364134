"""What does the API hold of one kind, as far as we care?

Objects come in as bytes from a list and a watch, leave as small frozen views, by name or by an index; every change is
told once. It never shows an object that a complete list did not have, tells a deletion that happened while the watch
was down, and does no work per event that grows with the cluster. Read by controllers, wired in `main.py` (D3).
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
    """A local copy of one kind, reduced to views.

    - After the first complete list of every namespace it `is_synced`, and stays so; `age_s` says how old the news are.
    - `get`, `by_index`, `all` and `len` answer from memory.
    - `on_change(old, new)` is told every change once, right after the store has it, and nothing that is none:
      neither repeated events nor objects that a new list shows unchanged.
    - A new list replaces everything: what it does not have is told as deleted.
    - `decoder` sees each object once; one that it cannot read is logged and left as it was, the others go on.
    - `version_in` is the resourceVersion up to which a namespace is known, 0 before the first list.
    - `relist` asks for one new list, `refresh` waits for one.
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
        """`namespaces` None means all of them, with one list and one watch; `silence_s` after which a watch is dead.

        `if_forbidden` makes it optional: it says what is not done while the API does not allow to list or watch it, which
        is tried again every `forbidden_s`.
        """
        self.resource = resource
        self.name = name or resource.plural
        """What probes and metrics call it; two informers of one kind have two names."""
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
        """Follow until cancelled; belongs in a TaskGroup."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._reflectors.values():
                tasks.create_task(reflector.run())

    async def wait_synced(self) -> None:
        """Return when everything has been listed once."""
        for reflector in self._reflectors.values():
            await reflector.wait_listed()

    async def refresh(self) -> None:
        """Return when everything has been listed once more, beginning now (D6: a new term of leadership)."""
        await asyncio.gather(*(reflector.refresh() for reflector in self._reflectors.values()))

    def relist(self) -> None:
        """Ask for one new list."""
        for reflector in self._reflectors.values():
            reflector.relist()

    @property
    def is_synced(self) -> bool:
        """True once everything has been listed."""
        return all(reflector.lists for reflector in self._reflectors.values())

    @property
    def is_following(self) -> bool:
        """Whether every change is told as it happens: everything has been listed, and every stream is open."""
        return self.is_synced and all(reflector.is_open for reflector in self._reflectors.values())

    @property
    def is_listable(self) -> bool | None:
        """Whether the API lets us list it: False while the kind is not there or forbidden, None until it has said.

        With several namespaces one that may be listed is enough.
        """
        answers = {reflector.is_listable for reflector in self._reflectors.values()}
        return True if True in answers else None if None in answers else False

    @property
    def age_s(self) -> float:
        """Seconds since the quietest stream gave a sign of life; more than 60 means trouble (D9)."""
        now = self._clock.monotonic()
        return max(now - reflector.signed_at for reflector in self._reflectors.values())

    @property
    def trouble(self) -> str:
        """What keeps us from following, in words; empty when nothing does."""
        return next((reflector.trouble for reflector in self._reflectors.values() if reflector.trouble), "")

    @property
    def lists(self) -> int:
        """How many lists were completed, all namespaces together."""
        return sum(reflector.lists for reflector in self._reflectors.values())

    @property
    def version(self) -> int:
        """The version up to which everything is known."""
        return min(version_number(reflector.version) for reflector in self._reflectors.values())

    def version_in(self, namespace: str) -> int:
        """The version up to which this namespace is known; 0 if it is not looked at."""
        reflector = self._reflectors.get(namespace) or self._reflectors.get("")
        return version_number(reflector.version) if reflector else 0

    def get(self, namespace: str, name: str) -> V | None:
        """The view of one object."""
        return self._store.views.get(Key(namespace, name))

    def by_index(self, key: Key) -> tuple[V, ...]:
        """The views whose index is `key`, oldest acquaintance first."""
        return tuple(self._store.by_index.get(key, {}).values())

    def index_keys(self) -> tuple[Key, ...]:
        """Every key that `by_index` knows something about."""
        return tuple(self._store.by_index)

    def all(self) -> Iterator[V]:
        """Every view; do not await while iterating."""
        return iter(self._store.views.values())

    def __len__(self) -> int:
        """How many objects there are."""
        return len(self._store.views)


class _Store(Generic[V]):
    """Views by key and by index, changed together and told at once."""

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
    """The sink of one reflector: knows which objects, at which version, came through it."""

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
        """False for an event that we have had, or that is older than what we have."""
        known = self._versions.get(key)
        if known is None:
            return True
        return known != version and version_number(known) <= version_number(version)

    def _view(self, item: msgspec.Raw, metadata: ObjectMeta) -> V | None:
        try:
            return self._decoder(item)
        except Exception:
            log.exception(
                "%s %s/%s cannot be read and is left as it was",
                self._resource.kind,
                metadata.namespace,
                metadata.name,
            )
            return None
