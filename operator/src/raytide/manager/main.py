"""Main: wires the operator and runs it until SIGTERM.

Connects, waits for the API server, and runs the endpoints, the controllers (manager.py), kopf's watches, leader
election and the access review in one TaskGroup. SIGTERM ends it in order: no new keys, running passes get ten seconds,
the lease is released, then the rest stops. A part that ends by itself ends the process, because a restart is a resync
(D10, D11). Called by cli/operator.py; returns the exit code.
"""

import asyncio
import logging
import signal
import socket
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from raytide.api.constants import LEADER_LEASE, VERSION
from raytide.api.errors import ApiUnavailableError
from raytide.api.meta import Key
from raytide.api.rbac_rules import permissions_for
from raytide.controller.base import BaseController, ObjectView
from raytide.controller.watch_lag import WatchLag
from raytide.kube.access_review import AccessReviewer, access_reviews
from raytide.kube.client import Client
from raytide.kube.credentials import ClientConfig, ClientConfigError
from raytide.kube.kubeconfig import load_client_config
from raytide.kube.leader_election import Elector
from raytide.kube.server_version import minor_version
from raytide.kube.transport import Response
from raytide.manager.kopf_source import KopfEventSource, KopfLogin, WatchedKind, redirect_kopf_logs
from raytide.manager.manager import ControllerManager
from raytide.manager.settings import Settings
from raytide.metrics import (
    LEADER,
    LEASE_AGE_SECONDS,
    MEMORY_LIMIT,
    OPTIONAL_STREAM_LISTED,
    PASSES,
    REGISTRY,
    STREAM_AGE_SECONDS,
    TERMS,
    WAITING_KEYS,
)
from raytide.runtime.clock import Clock
from raytide.runtime.health import HealthChecker
from raytide.runtime.http_endpoints import Check, Endpoints, health_text, page
from raytide.runtime.memory_limit import memory_limit_bytes

log = logging.getLogger(__name__)

ASK_API_EVERY_S: Final = 2.0
REPEAT_EVERY: Final = 30
"""Number of unanswered attempts between two log lines."""
STUCK_ELECTION_S: Final = 60.0
"""Every call of the leader election ends in seconds: one attempt cannot take this long."""


async def run_operator(settings: Settings) -> int:
    """Run until stopped; 1 if it could not start or a part failed."""
    redirect_kopf_logs()
    try:
        config = await load_client_config(Path(settings.kubeconfig) if settings.kubeconfig else None)
    except ClientConfigError as error:
        log.error("%s", error)  # noqa: TRY400 - one line for a person
        return 1
    async with AsyncExitStack() as connections:
        operator = await Operator.connected(settings, config, connections)
        try:
            return await operator.run()
        except BaseExceptionGroup as error:
            log.exception("a component of the operator failed")
            log.critical("raytide exits, because a component failed: %r", _first(error))
            return 1


class Operator:
    """The wired parts of one process."""

    def __init__(
        self, settings: Settings, config: ClientConfig, client: Client, free_client: Client, elector: Elector | None
    ) -> None:
        """`client` is gated by the elector; `free_client` is not, and must not write managed objects."""
        clock = Clock()
        self._server = config.server
        self._client = client
        self._elector = elector
        self._stop = asyncio.Event()
        watched = settings.watch_namespaces
        self._controllers = ControllerManager(client, clock=clock, settings=settings)
        kinds = tuple(_watched_kind(controller, clock) for controller in self._controllers.kinds)
        login = KopfLogin(config.server, config.open_session)
        self._kopf_source = KopfEventSource(login, kinds, clock=clock, namespaces=watched)
        own = lease_namespace(settings, config) if elector else None
        asked = access_reviews(
            permissions_for(
                settings.autoscaler_mode,
                kinds=settings.kinds,
                features=settings.features,
            ),
            watched=watched,
            own=own,
        )
        self._rights = AccessReviewer(free_client, asked, is_served=self._controllers.is_served)
        self._health_checker = self._build_health_checker(settings.stream_silence_s)
        self._endpoints = self._build_endpoints(settings)

    @classmethod
    async def connected(cls, settings: Settings, config: ClientConfig, connections: AsyncExitStack) -> "Operator":
        """Create with connections that `connections` closes; leader election has its own so that it is not delayed."""
        clock, version = Clock(), VERSION
        transport = await config.open_transport()
        connections.push_async_callback(transport.close)
        elector = None
        if settings.has_leader_election(is_in_cluster=config.is_in_cluster):
            timing = settings.lease_timing()
            of_its_own = await config.open_transport()
            connections.push_async_callback(of_its_own.close)
            elector = Elector(
                Client(of_its_own, clock=clock, version=version, timeout_s=timing.call_timeout_s),
                Key(lease_namespace(settings, config), LEADER_LEASE),
                identity=settings.pod_uid or f"{socket.gethostname()}_{uuid4()}",
                clock=clock,
                timing=timing,
            )
        else:
            log.info("leader election is off: run a single replica, or set --enable-leader-election")
        gate = elector.may_write_s if elector else None
        client = Client(transport, clock=clock, version=version, write_gate=gate)
        return cls(settings, config, client, Client(transport, clock=clock, version=version), elector)

    async def run(self) -> int:
        """Run until stopped or a part fails."""
        self._install_signal_handlers()
        self._measure()
        try:
            await self._endpoints.start()
        except OSError as error:
            log.error("cannot listen: %s", error)  # noqa: TRY400 - one line for a person
            return 1
        log.info("starting raytide %s, API server %s", VERSION, self._server)
        try:
            async with asyncio.TaskGroup() as tasks:
                stopping = tasks.create_task(self._stop_in_order())
                version = await self._wait_for_api()
                if version is not None:
                    self._controllers.use_api_version(minor_version(version.body))
                    await self._work(tasks)
                stopping.cancel()
        finally:
            await self._endpoints.stop()
        log.info("shutdown complete")
        return 0

    async def _work(self, tasks: asyncio.TaskGroup) -> None:
        """Run all parts; returns when the last term has ended in order."""
        started: list[asyncio.Task[None]] = []

        def start(part: Coroutine[Any, Any, None]) -> None:
            started.append(tasks.create_task(part))

        if self._elector is None:
            leading = tasks.create_task(self._controllers.run_reconcilers())
        else:
            leading = tasks.create_task(
                self._elector.run(self._controllers.run_reconcilers, unanswered_s=self._client.unanswered_s)
            )
            await self._elector.has_attempted.wait()  # a leader lists within its term, and only once (D6)
        for part in (
            self._controllers.run_informers(),
            self._kopf_source.run(),
            self._health_checker.run(),
            self._ask_rights(),
        ):
            start(part)
        await leading
        for task in started:
            task.cancel()

    async def _ask_rights(self) -> None:
        """Check permissions once the served kinds are known."""
        await self._controllers.discover_kinds()
        await self._rights.ask()
        await self._rights.run()

    # --- shutdown -----------------------------------------------------------------------------------------------------

    def _install_signal_handlers(self) -> None:
        """The first SIGTERM or SIGINT starts an ordered shutdown; the second kills the process."""
        loop = asyncio.get_running_loop()

        def on_stop_signal() -> None:
            self._stop.set()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_DFL)

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_stop_signal)

    async def _stop_in_order(self) -> None:
        await self._stop.wait()
        log.info("received a stop signal, waiting for running passes")
        if self._elector is not None:
            self._elector.stop()
        await self._controllers.stop()

    # --- the API server -----------------------------------------------------------------------------------------------

    async def _wait_for_api(self) -> Response | None:
        """Wait for the API server and return its version; None when stopped before it answered."""
        attempts = 0
        while not self._stop.is_set():
            try:
                return await self._read_version()
            except ApiUnavailableError as error:
                if attempts % REPEAT_EVERY == 0:
                    log.warning(
                        "API server %s does not respond, retrying every %.0f s: %s",
                        self._server,
                        ASK_API_EVERY_S,
                        error,
                    )
            attempts += 1
            with suppress(TimeoutError):
                async with asyncio.timeout(ASK_API_EVERY_S):
                    await self._stop.wait()
        return None

    async def _read_version(self) -> Response:
        """The API server's answer, whatever its status below 500; raises `ApiUnavailableError` otherwise."""
        response = await self._client.transport.request("GET", "/version", timeout_s=5.0)
        if response.status >= 500:
            raise ApiUnavailableError(f"status {response.status}")
        return response

    # --- health, metrics ----------------------------------------------------------------------------------------------

    def _build_health_checker(self, silence_s: float) -> HealthChecker:
        async def is_answered() -> bool:
            with suppress(ApiUnavailableError):
                return bool(await self._read_version())
            return False

        controllers, rights = self._controllers, self._rights
        also_alive: dict[str, Check] = {}
        also_ready: dict[str, Check] = {
            "kinds": controllers.check,
            "rights": rights.check,
        }
        if controllers.sharing is not None:
            also_ready["sharing"] = controllers.sharing.check
        for name in controllers.optional_streams:
            also_ready[f"optional-{name}"] = partial(controllers.optional_check, name)
        if (elector := self._elector) is not None:
            also_alive["lease"] = lambda: (elector.idle_s() < STUCK_ELECTION_S, elector.status_text())
            also_ready["lease"] = lambda: (True, elector.status_text())
        return HealthChecker(
            streams=controllers.streams,
            is_answered=is_answered,
            oldest_pass_s=controllers.oldest_pass_s,
            waiting=controllers.waiting,
            silence_s=silence_s,
            also_alive=also_alive,
            also_ready=also_ready,
            is_needed=controllers.is_needed,
        )

    def _build_endpoints(self, settings: Settings) -> Endpoints:
        endpoints = Endpoints()
        endpoints.add(settings.health_address, "/healthz", health_text(self._health_checker.liveness()))
        endpoints.add(settings.health_address, "/readyz", health_text(self._health_checker.readiness()))
        metrics = page(lambda: (generate_latest(REGISTRY), CONTENT_TYPE_LATEST))
        endpoints.add(settings.metrics_address, "/metrics", metrics)
        return endpoints

    def _measure(self) -> None:
        """Register gauges that are computed at scrape time."""
        elector = self._elector
        MEMORY_LIMIT.set_function(memory_limit_bytes)
        for controller in self._controllers.kinds:
            WAITING_KEYS.labels(controller.reconcile_loop.name).set_function(controller.reconcile_loop.waiting)
            PASSES.labels(controller.reconcile_loop.name).set_function(
                partial(getattr, controller.reconcile_loop, "passes")
            )
        if (sharing := self._controllers.sharing) is not None:
            PASSES.labels("sharing").set_function(partial(getattr, sharing.reconciler, "passes"))
        for name, stream in self._controllers.streams.items():
            STREAM_AGE_SECONDS.labels(name).set_function(partial(getattr, stream, "age_s"))
        for name in self._controllers.optional_streams:
            OPTIONAL_STREAM_LISTED.labels(name).set_function(partial(self._controllers.is_optional_listed, name))
        if elector is not None:
            LEADER.labels(LEADER_LEASE).set_function(lambda: elector.is_leading)
            TERMS.labels(LEADER_LEASE).set_function(lambda: elector.terms)
            LEASE_AGE_SECONDS.labels(LEADER_LEASE).set_function(elector.renewed_s)


def _watched_kind(controller: BaseController, clock: Clock) -> WatchedKind:
    """The kind that kopf watches; its lag is measured against our informer (D1)."""
    watch_lag = WatchLag(clock)

    def on_seen(view: ObjectView, is_gone: bool) -> None:  # noqa: FBT001 - the controller calls it by position
        if is_gone:
            watch_lag.informer_lost(view.key)
        else:
            watch_lag.informer_saw(view.key, view.version)

    controller.on_seen = on_seen
    return WatchedKind(
        controller.resource, controller.reconcile_loop.enqueue, lambda: controller.objects.is_listable, watch_lag
    )


def lease_namespace(settings: Settings, config: ClientConfig) -> str:
    """Namespace of the Lease: the setting, else the operator's own."""
    return settings.leader_election_namespace or settings.pod_namespace or config.namespace


def _first(error: BaseException) -> BaseException:
    """The first innermost exception of nested groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
