"""Lanes of a running cluster: read once, or followed by two watches.

Each object becomes a lane when it arrives and is not kept, so that memory does not depend on the size of specs. A kind that may
not be read is reported and does not end the other. Called by `raytide top`.
"""

import asyncio
import logging
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import click
import msgspec

from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.cli.top.render import Screen, once_as
from raytide.client.workload_reader import RESOURCES, ReadError, connected
from raytide.explain.overview import Lane, in_order, lane_of
from raytide.kube.client import Client
from raytide.kube.informer import Informer
from raytide.kube.shared_watch import SharedWatches
from raytide.runtime.clock import Clock

SYNC_S: Final = 10.0
"""How long the first lists may take before lanes are shown without them."""


async def run(
    namespace: str | None,
    kubeconfig: Path | None,
    context: str | None,
    *,
    screen: Screen,
    once: str,
    interval_s: float,
) -> None:
    """Show the lanes of a namespace (None: the kubeconfig's, empty: all); `once` is the format to print them in once."""
    async with connected(kubeconfig, context) as (client, default_namespace):
        where = default_namespace if namespace is None else namespace
        if once:
            lanes, errors = await read_once(client, where)
            click.echo(once_as(once, lanes, has_namespaces=not where))
            for error in errors:
                click.echo(f"not read: {error}", err=True)
            return
        logging.getLogger("raytide").addHandler(logging.NullHandler())  # errors of watches are shown below the lanes
        with screen:
            await watch_lanes(client, where, screen, interval_s=interval_s)


async def read_once(client: Client, namespace: str) -> tuple[list[Lane], list[str]]:
    """All lanes in their order, and what could not be read; raises ReadError if that is everything."""
    lanes, errors = [], []
    for kind, resource in RESOURCES.items():
        try:
            async for page in client.pages(resource, namespace):
                lanes += [decode_lane(kind, Clock(), item) for item in page.items]
        except ApiStatusError as error:
            errors.append(
                f"{kind} is not installed" if error.is_not_found else f"{resource.plural} cannot be listed: {error}"
            )
        except (ApiUnavailableError, msgspec.MsgspecError) as error:
            errors.append(f"{resource.plural} cannot be listed: {error}")
    if len(errors) == len(RESOURCES):
        raise ReadError("; ".join(errors))
    return in_order(lanes), errors


def decode_lane(kind: str, clock: Clock, item: msgspec.Raw | bytes) -> Lane:
    """The lane of one object as JSON."""
    return lane_of(kind, msgspec.json.decode(item), clock.now())


async def watch_lanes(client: Client, namespace: str, screen: Screen, *, interval_s: float) -> None:
    """Show the lanes whenever they have changed, until cancelled."""
    clock = Clock()
    watches = SharedWatches(client, clock=clock)
    informers = {
        kind: Informer(
            watches,
            resource,
            decoder=partial(decode_lane, kind, clock),
            namespaces=(namespace,) if namespace else None,
            if_forbidden="not shown",
        )
        for kind, resource in RESOURCES.items()
    }
    async with asyncio.TaskGroup() as tasks:
        for informer in informers.values():
            tasks.create_task(informer.run())
        with suppress(TimeoutError):
            async with asyncio.timeout(SYNC_S):
                await asyncio.gather(*map(_synced, informers.values()))
        shown: object = None
        while True:
            lanes = in_order(lane for informer in informers.values() for lane in informer.all())
            errors = [f"{kind}: {informer.error}" for kind, informer in informers.items() if informer.error]
            if shown != (lanes, errors):
                screen.show(lanes, errors, has_namespaces=not namespace)
                shown = (lanes, errors)
            await asyncio.sleep(interval_s)


async def _synced(informer: Informer[Lane]) -> None:
    """Wait until it is listed, or known that it cannot be."""
    while not informer.is_synced and not informer.error:  # noqa: ASYNC110 - an error has no event
        await asyncio.sleep(0.02)
