"""Shared watches: one list and one watch per collection and process, for any number of informers.

The counterpart of client-go's SharedInformerFactory. Informers of equal resource, namespace and selectors share a
`SharedWatch`; each object is decoded once per informer, because each keeps its own view of it. `kube/informer.py` takes
its watches from here; `manager/manager.py` passes one `SharedWatches` to all controllers (D3).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from raytide.api.meta import Key, Resource
from raytide.kube.client import Client
from raytide.kube.reflector import (
    FORBIDDEN_S,
    SILENCE_S,
    AnyObject,
    Collection,
    ObjectMeta,
    Phase,
    Reflector,
    version_number,
)
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

V = TypeVar("V")
V_contra = TypeVar("V_contra", contravariant=True)


class Store(Protocol[V_contra]):
    """Receiver of the views of one informer."""

    def put(self, key: Key, view: V_contra) -> None:
        """Add or replace the view of one object."""

    def remove(self, key: Key) -> None:
        """Remove the view of a deleted object, if there is one."""


class Subscriber(Generic[V]):
    """One informer's part of a shared watch: decodes the objects and stores the views.

    - `listed` is set once a complete list was stored; changes are passed on only after that.
    - An object that the decoder rejects is logged and keeps its old view.
    """

    def __init__(
        self, store: Store[V], decoder: Callable[[msgspec.Raw], V], resource: Resource, *, if_forbidden: str = ""
    ) -> None:
        self.listed = asyncio.Event()
        self.if_forbidden: Final = if_forbidden
        """What is not done while the collection is forbidden; empty if it is required."""
        self._store = store
        self._decoder = decoder
        self._resource = resource
        self._fresh: dict[Key, V] = {}

    def begin(self) -> None:
        """Drop what was collected of an incomplete list."""
        self._fresh = {}

    def collect(self, key: Key, item: msgspec.Raw) -> None:
        """Decode a new or changed object of a list that is not complete yet."""
        view = self._view(key, item)
        if view is not None:
            self._fresh[key] = view

    def replace(self, gone: Iterable[Key]) -> None:
        """Store the complete list: `gone` are the objects that it lacks."""
        fresh = self._fresh
        self.begin()
        self.remove(gone)
        for key, view in fresh.items():
            self._store.put(key, view)
        self.listed.set()

    def put(self, key: Key, item: msgspec.Raw) -> None:
        """Decode and store an object that was added or changed."""
        view = self._view(key, item)
        if view is not None:
            self._store.put(key, view)

    def remove(self, keys: Iterable[Key]) -> None:
        """Remove deleted objects."""
        for key in keys:
            self._store.remove(key)

    def _view(self, key: Key, item: msgspec.Raw) -> V | None:
        try:
            return self._decoder(item)
        except Exception:
            log.exception(
                "%s %s/%s cannot be decoded; its last decoded version, if any, is kept",
                self._resource.kind,
                key.namespace,
                key.name,
            )
            return None


class SharedWatches:
    """The watches of one client, created on demand."""

    def __init__(
        self, client: Client, *, clock: Clock, silence_s: float = SILENCE_S, forbidden_s: float = FORBIDDEN_S
    ) -> None:
        """A watch without bytes for `silence_s` is dead; a forbidden optional one is retried every `forbidden_s`."""
        self._client = client
        self._clock = clock
        self._silence_s = silence_s
        self._forbidden_s = forbidden_s
        self._watches: dict[Collection, SharedWatch] = {}

    def watch(self, collection: Collection) -> "SharedWatch":
        """The watch of a collection."""
        if collection not in self._watches:
            self._watches[collection] = SharedWatch(lambda sink: self._reflector(collection, sink))
        return self._watches[collection]

    def _reflector(self, collection: Collection, sink: "SharedWatch") -> Reflector:
        return Reflector(
            *(self._client, collection, sink),
            clock=self._clock,
            silence_s=self._silence_s,
            if_forbidden=sink.if_forbidden,
            forbidden_s=self._forbidden_s,
        )


class SharedWatch:
    """One list and one watch, passed on to every subscriber; the sink of its reflector.

    - It lists and watches while it has subscribers. After the last has left it keeps nothing, and the next one starts
      with a new list.
    - A subscriber that comes later is filled by one more list, in which the others see no change.
    - An error of the reflector or of a subscriber's store ends `run` of every subscriber.
    """

    def __init__(self, new_reflector: Callable[["SharedWatch"], Reflector]) -> None:
        self._new_reflector = new_reflector
        self._objects = msgspec.json.Decoder(AnyObject)
        self._subscribers: list[Subscriber[Any]] = []
        self._running: asyncio.Task[None] | None = None
        self._versions: dict[Key, str] = {}
        self._listed: dict[Key, str] = {}
        self._receiving: list[Subscriber[Any]] = []
        """The subscribers that receive the list that is in progress."""
        self.reflector = new_reflector(self)

    async def run(self, subscriber: Subscriber[Any]) -> None:
        """Pass objects to the subscriber until cancelled; ends with an error of the reflector."""
        running = self._join(subscriber)
        try:
            await asyncio.wait([running])  # unlike `await running`, a cancellation leaves it to the other subscribers
            running.result()
        finally:
            self._leave(subscriber)
            if not self._subscribers:
                running.cancel()
                await asyncio.wait([running])

    def _join(self, subscriber: Subscriber[Any]) -> asyncio.Task[None]:
        if self._running is None or not self._subscribers:
            if self._running is not None:
                self.reflector = self._new_reflector(self)
            self._running = asyncio.create_task(self.reflector.run())
        elif self.reflector.phase is Phase.LISTING and not self._listed:
            self._receiving.append(subscriber)  # the list in progress has not brought an object yet
        else:
            self.reflector.list_now()
        self._subscribers.append(subscriber)
        return self._running

    def _leave(self, subscriber: Subscriber[Any]) -> None:
        self._subscribers.remove(subscriber)
        if subscriber in self._receiving:
            self._receiving.remove(subscriber)
        if not self._subscribers:
            self._versions, self._listed = {}, {}

    def if_forbidden(self) -> str:
        """What is not done while the collection is forbidden; empty if a subscriber requires it."""
        consequences = list(dict.fromkeys(each.if_forbidden for each in self._subscribers))
        return "" if "" in consequences else "; ".join(consequences)

    # --- sink --------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A list begins."""
        self._listed, self._receiving = {}, list(self._subscribers)
        for subscriber in self._receiving:
            subscriber.begin()

    def collect(self, items: Iterable[msgspec.Raw]) -> None:
        """Add a page of the list; only new and changed objects are decoded."""
        for item in items:
            key, version = self._identify(item)
            self._listed[key] = version
            is_changed = self._versions.get(key) != version
            for subscriber in self._receiving:
                if is_changed or not subscriber.listed.is_set():
                    subscriber.collect(key, item)

    def replace(self) -> None:
        """The list is complete: objects that it lacks are gone."""
        gone = sorted(self._versions.keys() - self._listed.keys())
        receiving, self._versions = self._receiving, self._listed
        self._listed, self._receiving = {}, []
        for subscriber in receiving:
            subscriber.replace(gone)

    def clear(self) -> None:
        """The kind is not served: every object is gone."""
        gone, self._versions = sorted(self._versions), {}
        self._listed, self._receiving = {}, []
        for subscriber in self._subscribers:
            subscriber.remove(gone)

    def change(self, kind: str, item: msgspec.Raw) -> str:
        """Pass on ADDED, MODIFIED or DELETED; returns the object's version."""
        key, version = self._identify(item)
        if kind == "DELETED":
            self._versions.pop(key, None)
            for subscriber in self._synced():
                subscriber.remove((key,))
        elif self._is_newer(key, version):
            self._versions[key] = version
            for subscriber in self._synced():
                subscriber.put(key, item)
        return version

    def _synced(self) -> Iterator[Subscriber[Any]]:
        return (subscriber for subscriber in self._subscribers if subscriber.listed.is_set())

    def _identify(self, item: msgspec.Raw) -> tuple[Key, str]:
        metadata: ObjectMeta = self._objects.decode(item).metadata
        return Key(metadata.namespace, metadata.name), metadata.resource_version

    def _is_newer(self, key: Key, version: str) -> bool:
        """Whether the event is newer than what is stored."""
        known = self._versions.get(key)
        if known is None:
            return True
        return known != version and version_number(known) <= version_number(version)
