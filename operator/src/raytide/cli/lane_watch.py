"""Lanes of a running cluster, followed by two watches.

Each object becomes a lane when it arrives and is not kept, so that memory does not depend on the size of specs. A kind that may
not be read is reported and does not end the other. Called by `raytide top` and `raytide ui`.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from raytide.client.workload_reader import RESOURCES
from raytide.explain.overview import Lane, in_order, lane_of
from raytide.kube.client import Client
from raytide.kube.informer import Informer
from raytide.kube.shared_watch import SharedWatches
from raytide.runtime.clock import Clock

SYNC_S: Final = 10.0
"""How long the first lists may take before lanes are shown without them."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why the lanes of a kind are missing, or may be out of date."""

    kind: str
    message: str
    is_rejected: bool
    """Whether the API server answers that the kind may not be listed or does not exist; else the connection is lost."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class LaneWatch:
    """RayClusters and TrainingJobs of these namespaces (empty: of all), each reduced to its lane."""

    def __init__(self, client: Client, namespaces: Sequence[str], clock: Clock) -> None:
        watches = SharedWatches(client, clock=clock)
        self._informers = {
            kind: Informer(
                watches,
                resource,
                decoder=partial(decode_lane, kind, clock),
                namespaces=tuple(namespaces) or None,
                if_forbidden="not shown",
            )
            for kind, resource in RESOURCES.items()
        }

    async def run(self) -> None:
        """List and watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers.values():
                tasks.create_task(informer.run())

    async def wait_listed(self) -> None:
        """Return when both kinds are listed, or known not to be listable, after `SYNC_S` in any case."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SYNC_S):
                await asyncio.gather(*map(_listed, self._informers.values()))

    def lanes(self) -> list[Lane]:
        """The lanes in their order."""
        return in_order(lane for informer in self._informers.values() for lane in informer.all())

    def problems(self) -> list[Problem]:
        """What cannot be read at present."""
        return [
            Problem(kind, informer.error, is_rejected=informer.is_listable is False)
            for kind, informer in self._informers.items()
            if informer.error
        ]


def decode_lane(kind: str, clock: Clock, item: msgspec.Raw | bytes) -> Lane:
    """The lane of one object as JSON."""
    return lane_of(kind, msgspec.json.decode(item), clock.now())


async def _listed(informer: Informer[Lane]) -> None:
    """Wait until it is listed, or known that it cannot be."""
    while not informer.is_synced and not informer.error:  # noqa: ASYNC110 - an error has no event
        await asyncio.sleep(0.02)
