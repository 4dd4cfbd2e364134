"""Lanes of a running cluster: read once, or shown whenever they change.

A kind that may not be read is reported and does not end the other. Called by `raytide top`.
"""

import asyncio
import logging
from pathlib import Path

import click
import msgspec

from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.cli.columns import printable
from raytide.cli.lane_watch import LaneWatch, decode_lane
from raytide.cli.top.render import Screen, once_as
from raytide.client.workload_reader import RESOURCES, ReadError, connected, unlisted
from raytide.explain.overview import Lane, in_order
from raytide.kube.client import Client
from raytide.runtime.clock import Clock


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
                click.echo(f"not read: {printable(error)}", err=True)
            return
        logging.getLogger("raytide").addHandler(logging.NullHandler())  # errors of watches are shown below the lanes
        with screen:
            await watch_lanes(client, where, screen, interval_s=interval_s)


async def read_once(client: Client, namespace: str) -> tuple[list[Lane], list[str]]:
    """All lanes in their order, and what could not be read; raises ReadError if that is everything."""
    lanes: list[Lane] = []
    missing: list[str] = []
    errors: dict[str, object] = {}
    for kind, resource in RESOURCES.items():
        try:
            async for page in client.pages(resource, namespace):
                lanes += [decode_lane(kind, Clock(), item) for item in page.items]
        except (ApiStatusError, ApiUnavailableError, msgspec.MsgspecError) as error:
            if isinstance(error, ApiStatusError) and error.is_not_found:
                missing.append(f"{kind} is not installed")
            else:
                errors[resource.plural] = error
    unread = [*missing, *unlisted(errors)]
    if len(missing) + len(errors) == len(RESOURCES):
        raise ReadError("; ".join(unread))
    return in_order(lanes), unread


async def watch_lanes(client: Client, namespace: str, screen: Screen, *, interval_s: float) -> None:
    """Show the lanes whenever they have changed, until cancelled."""
    watch = LaneWatch(client, (namespace,) if namespace else (), Clock())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(watch.run())
        await watch.wait_listed()
        shown: object = None
        while True:
            lanes, errors = watch.lanes(), [str(problem) for problem in watch.problems()]
            if shown != (lanes, errors):
                screen.show(lanes, errors, has_namespaces=not namespace)
                shown = (lanes, errors)
            await asyncio.sleep(interval_s)
