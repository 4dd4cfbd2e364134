"""Which kinds does this process look after, and how are its rooms run as one?

Takes a client and the settings, makes the room of every kind and that of sharing, and follows, leads and stops them side by
side under one lease. A kind whose CRD is not installed, or that may not be read, is left out until that changes: nothing about it is
asked of readiness, and the others go on. It knows no kopf and decides nothing. Made by main.py; architecture §9, D9–D11.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from raytide.api.meta import Resource
from raytide.api.names import OPERATOR
from raytide.kube.client import Client
from raytide.kube.informer import Informer
from raytide.kube.room import Room, RoomOptions
from raytide.raycluster import room as raycluster
from raytide.runtime.clock import Clock
from raytide.runtime.vitals import Stream
from raytide.settings import Settings
from raytide.sharing.room import SharingOptions, SharingRoom
from raytide.trainingjob.room import TrainingJobRoom

KNOWN_WITHIN_S: Final = 5.0
"""An API server that answers at all says by then which kinds there are."""
LOOK_EVERY_S: Final = 0.05


class Watched(Stream, Protocol):
    """A stream with a name."""

    @property
    def name(self) -> str:
        """What probes and metrics call it."""


class Part(Protocol):
    """Something that follows all the time and works while this process leads."""

    @property
    def streams(self) -> tuple[Watched, ...]:
        """What it watches."""

    async def follow(self) -> None:
        """Know what there is, until cancelled."""

    async def lead(self) -> None:
        """One term: work until stopped."""

    async def stop(self) -> None:
        """Let what is running end."""


class Rooms:
    """All rooms of one process.

    - `follow` and `lead` end with the first trouble in any of them; `lead` returns when all have stopped in order.
    - A kind is served when the API lets us list it; as long as it does not say, nobody knows.
    """

    def __init__(self, client: Client, *, clock: Clock, settings: Settings) -> None:
        told: dict[str, Any] = {
            "namespaces": settings.watch_namespaces,
            "workers": settings.reconcile_concurrency,
            "instance": settings.pod_name or OPERATOR,
            "silence_s": settings.stream_silence_s,
        }
        clusters = raycluster.RayClusterRoom(
            client, clock=clock, config=settings.cluster_config(), options=raycluster.RoomOptions(**told)
        )
        jobs = TrainingJobRoom(client, clock=clock, config=settings.job_config(), options=RoomOptions(**told))
        self.kinds: tuple[Room, ...] = (clusters, jobs)
        """The rooms that reconcile, one per kind."""
        self.sharing = SharingRoom(
            client,
            clock=clock,
            config=settings.sharing_config(),
            options=SharingOptions(namespaces=settings.watch_namespaces, silence_s=settings.stream_silence_s),
        )
        self._parts: tuple[Part, ...] = (*self.kinds, self.sharing)
        kinds_of_parts: tuple[tuple[Part, Room], ...] = ((clusters, clusters), (jobs, jobs), (self.sharing, jobs))
        self._kind_by_stream = {stream.name: kind for part, kind in kinds_of_parts for stream in part.streams}

    # --- running -----------------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Know what there is, until cancelled."""
        await _side_by_side(part.follow for part in self._parts)

    async def lead(self) -> None:
        """One term of all: work until stopped."""
        await _side_by_side(part.lead for part in self._parts)

    async def stop(self) -> None:
        """Take no more work, let what is running end."""
        await _side_by_side(part.stop for part in self._parts)

    # --- looking -----------------------------------------------------------------------------------------------------

    @property
    def streams(self) -> Mapping[str, Stream]:
        """Everything that is watched, by name."""
        return {stream.name: stream for part in self._parts for stream in part.streams}

    @property
    def optional_streams(self) -> Mapping[str, Informer[Any]]:
        """What is watched where the API allows it, by name; being ready does not depend on it."""
        return {stream.name: stream for room in self.kinds for stream in room.optional_streams}

    def is_optional_listed(self, stream: str) -> bool:
        """Whether an optional stream is listed and followed."""
        informer = self.optional_streams[stream]
        return informer.is_synced and not informer.trouble

    def optional_check(self, stream: str) -> tuple[bool, str]:
        """What is known of an optional stream, in words; always ready (FD:REL-B)."""
        informer = self.optional_streams[stream]
        return True, informer.trouble or ("listed" if informer.is_synced else "not listed yet")

    def is_needed(self, stream: str) -> bool:
        """Whether being ready asks for that stream."""
        return self._kind_by_stream[stream].objects.is_listable is not False

    def is_served(self, kind: Resource) -> bool:
        """Whether the API lets us list that kind, as far as is known."""
        return any(room.resource == kind and room.objects.is_listable for room in self.kinds)

    def check(self) -> tuple[bool, str]:
        """Whether there is anything to do at all: one kind is enough."""
        served = [_name(room) for room in self.kinds if room.objects.is_listable]
        others = [room.objects.trouble or f"{_name(room)} still to be listed" for room in self.kinds]
        left_out = [words for room, words in zip(self.kinds, others, strict=True) if not room.objects.is_listable]
        return bool(served), "; ".join([", ".join(served) or "none served", *left_out])

    async def know_kinds(self) -> None:
        """Return when the API has said of every kind whether we may list it, or has had the time to."""
        with suppress(TimeoutError):
            async with asyncio.timeout(KNOWN_WITHIN_S):
                while any(room.objects.is_listable is None for room in self.kinds):  # noqa: ASYNC110 - once, and short
                    await asyncio.sleep(LOOK_EVERY_S)

    def oldest_pass_s(self) -> float:
        """Age of the oldest running pass."""
        return max(self.sharing.controller.oldest_running_s(), *(r.controller.oldest_running_s() for r in self.kinds))

    def waiting(self) -> int:
        """How many keys are due and have no worker."""
        return sum(room.controller.waiting() for room in self.kinds)


def _name(room: Room) -> str:
    return f"{room.resource.plural}.{room.resource.group}"


async def _side_by_side(works: Iterable[Callable[[], Awaitable[None]]]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for work in works:
            tasks.create_task(_run(work))


async def _run(work: Callable[[], Awaitable[None]]) -> None:
    await work()
