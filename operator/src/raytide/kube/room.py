"""What is the same in every room, whatever its kind?

A room is everything that runs for one kind of custom resource: informers that run all the time, and a controller that
works only while this process leads (D10). `Room` gives the life of it, following, leading, stopping and ringing; what a
room watches besides and what a pass does is its own. It decides nothing. Base of raycluster/room.py and
trainingjob/room.py; D3, D4, D6, D11.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, Self, TypeVar

import msgspec

from raytide.api.meta import Key, Resource
from raytide.api.names import OPERATOR
from raytide.kube.client import Client
from raytide.kube.events import Recorder
from raytide.kube.expectations import Expectations, Reader
from raytide.kube.informer import Informer
from raytide.kube.reflector import SILENCE_S, version_number
from raytide.runtime.clock import Clock
from raytide.runtime.controller import Controller

log = logging.getLogger(__name__)

IN_FLIGHT: Final = "-"
"""deletionTimestamp of a child whose deletion we asked for and have not seen."""


# --- views -----------------------------------------------------------------------------------------------------------


class ObjectView(msgspec.Struct, frozen=True, gc=False):
    """A custom resource as far as ringing goes."""

    key: Key
    version: str


class _Metadata(msgspec.Struct, gc=False):
    namespace: str = ""
    name: str = ""
    version: str = msgspec.field(default="", name="resourceVersion")


class _Object(msgspec.Struct, gc=False):
    metadata: _Metadata


_objects = msgspec.json.Decoder(_Object)


def decode_object(document: bytes | msgspec.Raw) -> ObjectView:
    """Key and version of a custom resource, whatever its spec looks like."""
    metadata = _objects.decode(document).metadata
    return ObjectView(Key(metadata.namespace, metadata.name), metadata.version)


class ChildView(Protocol):
    """What the view of every child has."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def uid(self) -> str:
        """Empty as long as nobody knows it."""

    @property
    def resource_version(self) -> str:
        """As the API gave it."""

    def marked_terminating(self, at: str) -> Self:
        """The same with a deletion on its way."""
        ...


C = TypeVar("C", bound=ChildView)


def build_overlay(clock: Clock, reader: Reader[C], *informers: Informer[C]) -> Expectations[C]:
    """What is in flight of the children that these informers show together (D6)."""

    def relist() -> None:
        for informer in informers:
            informer.relist()

    return Expectations(
        clock=clock,
        reader=reader,
        version_of=lambda view: view.resource_version,
        name_of=lambda view: view.name,
        uid_of=lambda view: view.uid,
        as_terminating=lambda view: view.marked_terminating(IN_FLIGHT),
        informer_version=lambda namespace: min(informer.version_in(namespace) for informer in informers),
        ask_relist=relist,
    )


# --- the room --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RoomOptions:
    """How a room is run."""

    namespaces: tuple[str, ...] = ()
    """Empty means all."""
    workers: int = 8
    silence_s: float = SILENCE_S
    """After so long without a word a watch counts as dead."""
    instance: str = OPERATOR
    """Who the events say they are from."""


class Room(ABC):
    """Everything that runs for one kind.

    - `follow` keeps the informers warm, whoever leads; `lead` works for one term of leadership. `run` is both at once,
      for whoever is alone.
    - A term begins with empty overlays and a list of everything that began in it; only then workers start (D6).
    - Outside a term nothing is written, and rings are dropped: a term looks at every object when it begins.
    - `stop` lets running passes end for 10 s; then `lead` and `run` return. `lead` that is cancelled ends at once.
    - Trouble in any part ends `follow`, `lead` and `run` with that trouble.

    Whoever is derived from it says what its children are (`streams`), what a pass is (`controller`), and what has to be
    forgotten when a term begins (`start_over`).
    """

    pods: Informer[Any]
    controller: Controller

    def __init__(
        self, client: Client, resource: Resource, *, clock: Clock, controller_name: str, options: RoomOptions
    ) -> None:
        """`controller_name` is what events call it (reportingController)."""
        self.resource = resource
        self.on_seen: Callable[[ObjectView, bool], None] = lambda _view, _is_gone: None
        """Told which version of an object the informer shows, or that it is gone."""
        self._client = client
        self._clock = clock
        self._stopping = asyncio.Event()
        self._seen_by_all = partial(Informer, client, clock=clock, silence_s=options.silence_s)
        self._informer = partial(self._seen_by_all, namespaces=options.namespaces or None)
        self.objects: Informer[ObjectView] = self._informer(resource, decoder=decode_object, on_change=self._on_object)
        self.streams: tuple[Informer[Any], ...] = (self.objects,)
        """What has to be listed before a pass may run."""
        self.optional_streams: tuple[Informer[Any], ...] = ()
        """What a pass uses where the API allows to list it."""
        self.recorder = Recorder(client, clock=clock, controller=controller_name, instance=options.instance)

    @abstractmethod
    def start_over(self) -> None:
        """Forget what an earlier term had in flight."""

    # --- running -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow, and lead one term that lasts until stopped."""
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(self.follow())
            await self.lead()
            following.cancel()

    async def follow(self) -> None:
        """Know what there is, until cancelled."""
        await follow_all(self.streams)

    async def lead(self) -> None:
        """One term: work until stopped."""
        self.start_over()
        await self._relisted_or_stopped()
        if self._stopping.is_set():
            return
        log.info("following %d %ss and %d pods", len(self.objects), self.resource.kind, len(self.pods))
        async with asyncio.TaskGroup() as tasks:
            posting = tasks.create_task(never_ending("event recorder", self.recorder.run()))
            await self.controller.run()
            await self.recorder.finish()
            posting.cancel()

    async def stop(self) -> None:
        """Take no more keys, let running passes end."""
        self._stopping.set()
        await self.controller.stop()

    @property
    def is_synced(self) -> bool:
        """Whether everything a pass looks at has been listed."""
        return all(stream.is_synced for stream in self.streams)

    async def _relisted_or_stopped(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            relisted = tasks.create_task(self._relist())
            stopped = tasks.create_task(self._stopping.wait())
            await asyncio.wait([relisted, stopped], return_when=asyncio.FIRST_COMPLETED)
            relisted.cancel()
            stopped.cancel()

    async def _relist(self) -> None:
        await asyncio.gather(*(stream.refresh() for stream in self.streams))

    # --- ringing -----------------------------------------------------------------------------------------------------

    def ring(self, key: Key, version: str = "") -> None:
        """An object changed; `version` is the resourceVersion seen."""
        self.controller.ring(key, version)

    def keys(self) -> list[Key]:
        """Every object that is known."""
        return [view.key for view in self.objects.all()]

    def version_of(self, key: Key) -> int | None:
        """The version at which the object is known; None where it is not."""
        view = self.objects.get(key.namespace, key.name)
        return version_number(view.version) if view is not None else None

    def saw(self, key: Key, *versions: str) -> None:
        """These versions are no news any more."""
        self.controller.saw(key, *versions)

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self.controller.forget(key)

    def is_crowded(self) -> bool:
        """Whether several objects are at work at this moment."""
        return self.controller.running() > 1

    def _on_object(self, old: ObjectView | None, new: ObjectView | None) -> None:
        if new is not None:
            self.on_seen(new, False)
            self.ring(new.key, new.version)
        elif old is not None:
            self.on_seen(old, True)
            self.ring(old.key)


# --- tasks -----------------------------------------------------------------------------------------------------------


async def follow_all(streams: Iterable[Informer[Any]]) -> None:
    """Run them side by side, until cancelled."""
    async with asyncio.TaskGroup() as tasks:
        for stream in streams:
            tasks.create_task(never_ending(f"informer of {stream.name}", stream.run()))


async def never_ending(what: str, work: Coroutine[Any, Any, None]) -> None:
    """A background task whose end, for whatever reason, is an error (D11)."""
    await work
    raise RuntimeError(f"{what} ended")
