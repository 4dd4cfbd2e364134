"""Process of `raytide ui`: connects, follows the cluster and serves the page until it is interrupted.

With `--open` the browser gets a file that only the user can read and that leads to the page: other users of the machine see the
arguments of its processes, and the address contains the token.
"""

import asyncio
import html
import logging
import secrets
import signal
import tempfile
import webbrowser
from contextlib import AsyncExitStack
from pathlib import Path

import click
from aiohttp import web

from raytide.api.config import SharingConfig
from raytide.cli.columns import printable
from raytide.cli.lane_watch import LaneWatch
from raytide.cli.ui.app import Source, make_app
from raytide.cli.ui.capacity_watch import CapacityWatch
from raytide.cli.ui.feed import Feed
from raytide.client.workload_reader import connected
from raytide.runtime.clock import Clock

HOST = "127.0.0.1"
INTERVAL_S = 1.0
"""Shortest time between two changes that the page receives."""
SHUTDOWN_S = 1.0


async def serve(
    namespace: str | None,
    kubeconfig: Path | None,
    context: str | None,
    *,
    port: int,
    is_opened: bool,
    sharing: SharingConfig,
) -> None:
    """Serve the page of a namespace (None: the kubeconfig's, empty: all) until cancelled, which SIGTERM does.

    Raises ReadError and OSError.
    """
    if (serving := asyncio.current_task()) is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    async with connected(kubeconfig, context) as (client, default_namespace):
        where = default_namespace if namespace is None else namespace
        logging.getLogger("raytide").addHandler(logging.NullHandler())  # errors of watches are shown on the page
        clock, token = Clock(), secrets.token_urlsafe(32)
        watch, capacity = LaneWatch(client, where, clock), CapacityWatch(client, clock, sharing.gpus)
        feed = Feed(where)
        source = Source(client, default_namespace, clock, sharing)
        runner = make_runner(make_app(feed, source, token))
        await runner.setup()
        try:
            site = web.TCPSite(runner, HOST, port)
            await site.start()
            address = f"http://{HOST}:{port_of(runner)}/#token={token}"
            shown = f"namespace {where}" if where else "all namespaces"
            click.echo(f"showing {printable(shown)} at {address}")
            click.echo("the address contains a token: it gives others your rights to read; Ctrl-C ends it", err=True)
            async with AsyncExitStack() as stack:
                if is_opened:
                    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="raytide-ui-"))
                    await asyncio.to_thread(open_browser, address, Path(folder))
                tasks = await stack.enter_async_context(asyncio.TaskGroup())
                tasks.create_task(watch.run())
                tasks.create_task(capacity.run())
                tasks.create_task(follow(watch, feed, clock, capacity))
        finally:
            await runner.cleanup()


def make_runner(app: web.Application) -> web.AppRunner:
    """Runner of the application; a handler ends when its page is closed."""
    return web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S, handler_cancellation=True)


def port_of(runner: web.AppRunner) -> int:
    """The port that the server listens on."""
    return int(runner.addresses[0][1])


async def follow(
    watch: LaneWatch, feed: Feed, clock: Clock, capacity: CapacityWatch, *, interval_s: float = INTERVAL_S
) -> None:
    """Pass what the watches show to the feed, until cancelled."""
    await watch.wait_listed()
    while True:
        feed.update(watch.lanes(), watch.problems(), clock.now(), capacity.view())
        await asyncio.sleep(interval_s)


def open_browser(address: str, folder: Path) -> None:
    """Open the page by a file in a folder of the user's own."""
    file = folder / "raytide.html"
    file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(address)}">\n')
    if not webbrowser.open(file.as_uri()):
        click.echo("no browser was found: open the address above", err=True)
