"""Process of `raytide ui`: connects, follows the cluster and serves the page until it is interrupted.

`serve` is for one user on this machine, `serve_callers` for everyone with a token of the API server.

With `--open` the browser gets a file that only the user can read and that leads to the page: other users of the machine see the
arguments of its processes, and the address contains the token.
"""

import asyncio
import html
import logging
import secrets
import signal
import ssl
import tempfile
import webbrowser
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import click
from aiohttp import web

from raytide.api.config import SharingConfig
from raytide.api.host_port import join_host_port
from raytide.cli.columns import printable
from raytide.cli.lane_watch import LaneWatch
from raytide.cli.ui.access import CallerTokens, PrintedToken, View
from raytide.cli.ui.app import Source, make_app
from raytide.cli.ui.capacity_watch import CapacityWatch
from raytide.cli.ui.feeds import Feeds
from raytide.client.workload_reader import TIMEOUT_S, ReadError, connected
from raytide.kube.client import Client
from raytide.kube.credentials import ClientConfigError
from raytide.kube.kubeconfig import load_client_config
from raytide.runtime.clock import Clock
from raytide.runtime.http_endpoints import listen

INTERVAL_S = 1.0
"""Shortest time between two changes that the page receives."""
SHUTDOWN_S = 1.0
CALLER_VIEWS = 64
"""Namespaces, each with the kinds that a caller may list, that are followed at once where each caller has a token."""
CALLER_PAGES = 256
"""Pages that are open at once for one of them."""
CERTIFICATE_AGE_S = 60.0
"""A certificate is read again after this time: cert-manager renews it in its Secret."""


async def serve(
    namespace: str | None,
    kubeconfig: Path | None,
    context: str | None,
    *,
    address: str,
    port: int,
    is_opened: bool,
    sharing: SharingConfig,
) -> None:
    """Serve the page of a namespace (None: the kubeconfig's, empty: all) until cancelled, which SIGTERM does.

    Raises ReadError and OSError.
    """
    _end_by_sigterm()
    async with connected(kubeconfig, context) as (client, default_namespace):
        where = default_namespace if namespace is None else namespace
        clock, token = Clock(), secrets.token_urlsafe(32)
        watch, capacity = (
            LaneWatch(client, (where,) if where else (), clock),
            CapacityWatch(client, clock, sharing.gpus),
        )
        feeds = Feeds(View(where))
        source = Source(PrintedToken(token, where, client), default_namespace, clock, sharing)
        async with AsyncExitStack() as stack:
            runner = await stack.enter_async_context(running(make_app(feeds, source)))
            await listen(runner, address, port)
            page = f"http://{join_host_port(address, port_of(runner))}/#token={token}"
            shown = f"namespace {where}" if where else "all namespaces"
            click.echo(f"showing {printable(shown)} at {page}")
            click.echo("the address contains a token: it gives others your rights to read; Ctrl-C ends it", err=True)
            if is_opened:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="raytide-ui-"))
                await asyncio.to_thread(open_browser, page, Path(folder))
            await _follow_all(watch, capacity, feeds, clock)


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files of a TLS certificate and of its key."""

    certificate: Path
    private_key: Path


async def serve_callers(
    watched: Sequence[str],
    kubeconfig: Path | None,
    context: str | None,
    *,
    address: str,
    port: int,
    certificate: Certificate | None,
    sharing: SharingConfig,
) -> None:
    """Serve the page to everyone who has a token of the API server, until cancelled, which SIGTERM does.

    What is followed is read with the credentials found here, in the namespaces `watched` (empty: all); what a caller sees of it is
    what its own token may list. Raises ReadError and OSError.
    """
    _end_by_sigterm()
    try:
        config = await load_client_config(kubeconfig, context=context)
        tls = _server_tls(certificate) if certificate is not None else None
        transport = await config.open_transport()
    except ClientConfigError as error:
        raise ReadError(str(error)) from error
    try:
        clock = Clock()
        client = Client(transport, clock=clock, timeout_s=TIMEOUT_S)
        watch, capacity = LaneWatch(client, watched, clock), CapacityWatch(client, clock, sharing.gpus)
        feeds = Feeds(View(""), views=CALLER_VIEWS, readers=CALLER_PAGES)
        callers = CallerTokens(lambda token: config.of_caller(token).open_transport(), watched)
        source = Source(callers, "default", clock, sharing)
        async with running(make_app(feeds, source)) as runner:
            await listen(runner, address, port, tls=tls)
            shown = f"namespaces {', '.join(watched)}" if watched else "all namespaces"
            page = f"{'https' if tls else 'http'}://{join_host_port(address, port_of(runner))}/"
            click.echo(f"showing {printable(shown)} at {page} to callers with a token")
            async with asyncio.TaskGroup() as tasks:
                if tls is not None and certificate is not None:
                    tasks.create_task(_renew(tls, certificate))
                tasks.create_task(_follow_all(watch, capacity, feeds, clock))
    finally:
        await transport.close()


async def _follow_all(watch: LaneWatch, capacity: CapacityWatch, feeds: Feeds, clock: Clock) -> None:
    """Follow the cluster until cancelled."""
    logging.getLogger("raytide").addHandler(logging.NullHandler())  # errors of watches are shown on the page
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(watch.run())
        tasks.create_task(capacity.run())
        tasks.create_task(follow(watch, feeds, clock, capacity))


def _end_by_sigterm() -> None:
    """SIGTERM cancels the current task."""
    if (serving := asyncio.current_task()) is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)


def _server_tls(certificate: Certificate) -> ssl.SSLContext:
    """TLS of a server with that certificate; raises ClientConfigError."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        tls.load_cert_chain(certificate.certificate, certificate.private_key)
    except (OSError, ssl.SSLError) as error:
        files = f"{certificate.certificate}, {certificate.private_key}"
        raise ClientConfigError(f"{files}: no certificate with its private key: {error}") from error
    return tls


async def _renew(tls: ssl.SSLContext, certificate: Certificate) -> None:
    """Read the certificate again from time to time, until cancelled; one that cannot be read leaves the last one."""
    while True:
        await asyncio.sleep(CERTIFICATE_AGE_S)
        try:
            await asyncio.to_thread(_server_tls, certificate)  # both files fit: a renewal may be under way
        except ClientConfigError as error:
            click.echo(f"the certificate is not renewed: {printable(str(error))}", err=True)
        else:
            tls.load_cert_chain(certificate.certificate, certificate.private_key)


@asynccontextmanager
async def running(app: web.Application) -> AsyncIterator[web.AppRunner]:
    """The runner of an application, which is cleaned up afterwards."""
    runner = make_runner(app)
    await runner.setup()
    try:
        yield runner
    finally:
        await runner.cleanup()


def make_runner(app: web.Application) -> web.AppRunner:
    """Runner of the application; a handler ends when its page is closed."""
    return web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S, handler_cancellation=True)


def port_of(runner: web.AppRunner) -> int:
    """The port that the server listens on."""
    return int(runner.addresses[0][1])


async def follow(
    watch: LaneWatch, feeds: Feeds, clock: Clock, capacity: CapacityWatch, *, interval_s: float = INTERVAL_S
) -> None:
    """Pass what the watches show to the feeds, until cancelled."""
    await watch.wait_listed()
    while True:
        feeds.update(watch.lanes(), watch.problems(), clock.now(), capacity.view())
        await asyncio.sleep(interval_s)


def open_browser(address: str, folder: Path) -> None:
    """Open the page by a file in a folder of the user's own."""
    file = folder / "raytide.html"
    file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(address)}">\n')
    if not webbrowser.open(file.as_uri()):
        click.echo("no browser was found: open the address above", err=True)
