"""Sidecar process: wiring, start-up and shutdown.

Wires the logs, the health endpoint, the GCS, what only Ray provides (directories, session), the metrics page and the
loop, and shuts down in order on SIGTERM or when the supervisor is gone. It waits for the GCS without limit and ends by
itself only for reasons a new process may resolve, with one log line. Started by supervisor.py as a separate program, so
that the command line parser is not in its memory; rules AS §1.1, D11, D12.
"""

import asyncio
import itertools
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from raytide.api.constants import GCS_SERVER_PORT, VERSION
from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.api.host_port import join_host_port
from raytide.api.meta import Key
from raytide.autoscaler.gcs import client as ray
from raytide.autoscaler.gcs.channel import connect_gcs
from raytide.autoscaler.gcs.credentials import gcs_access
from raytide.autoscaler.reporting import monitor_log
from raytide.autoscaler.reporting.log_files import LogFiles
from raytide.autoscaler.reporting.metrics import SidecarMetrics
from raytide.autoscaler.reporting.tick import Tick
from raytide.autoscaler.sidecar.loop import UNAUTHENTICATED, Autoscaler, GcsUnauthenticatedError, LoopSettings
from raytide.autoscaler.sidecar.settings import (
    SettingError,
    SidecarSettings,
    read_settings,
    settings_without_effect,
)
from raytide.autoscaler.sidecar.supervisor import EXIT_BAD_CONFIGURATION
from raytide.autoscaler.sidecar.watchdog import Watchdog
from raytide.autoscaler.state.snapshot import ReconcilerSettings
from raytide.kube.client import Client
from raytide.kube.credentials import (
    SERVICE_ACCOUNT_DIR,
    ClientConfig,
    ClientConfigError,
    in_cluster_config,
)
from raytide.runtime.clock import Clock
from raytide.runtime.gc_tuning import tune_gc
from raytide.runtime.http_endpoints import Answer, Endpoints, health_text, page

log = logging.getLogger(__name__)

GCS_RETRY_S: Final = 5.0
STARTING_GCS_RETRY_S: Final = 1.0
"""Head and sidecar start together: in the first minute a short interval shortens the start and no warning is due."""
LOG_EVERY_ATTEMPTS: Final = 60
"""Attempts without an answer per log line: a minute, later five."""
IN_POD_VARIABLE: Final = "KUBERNETES_SERVICE_HOST"
"""Set by the kubelet in every container."""
METRICS_NOT_REGISTERED: Final = "the metrics address is not registered with Ray's Prometheus service discovery"
LONGEST_TICK_S: Final = 300.0
"""Every call of a tick has a deadline, that for the API server being by far the longest."""


@dataclass(frozen=True, slots=True)
class SidecarIdentity:
    """The RayCluster this sidecar belongs to."""

    key: Key
    gcs_address: str = ""
    """Empty: on this pod."""
    supervisor_fd: int | None = None
    """A file descriptor that closes when the supervisor is gone."""


def main(arguments: Sequence[str]) -> int:
    """Run with `NAME NAMESPACE GCS-ADDRESS SUPERVISOR-FD`, as the supervisor passes them; returns the exit code."""
    name, namespace, gcs_address, supervisor_fd = arguments
    try:
        settings = read_settings(os.environ)
    except SettingError as error:
        print(f"raytide autoscaler: {error}", file=sys.stderr)  # noqa: T201 - there is no log yet
        return EXIT_BAD_CONFIGURATION
    monitor_log.install(settings.logs)
    tune_gc()
    for variable, why in settings_without_effect(os.environ):
        log.warning("%s is set and has no effect: %s", variable, why)
    return asyncio.run(
        run(SidecarIdentity(Key(namespace, name), gcs_address, int(supervisor_fd)), settings, os.environ)
    )


async def run(identity: SidecarIdentity, settings: SidecarSettings, environ: Mapping[str, str]) -> int:
    """Exit code: 0 after a signal, 1 if a new process may succeed, 2 outside a pod."""
    api = settings.api
    try:
        config = in_cluster_config(
            api.host,
            api.port,
            environ=environ,
            directory=api.service_account_dir or SERVICE_ACCOUNT_DIR,
            ca_file=api.ca_file,
            certificate=api.certificate,
            private_key=api.private_key,
        )
    except ClientConfigError as error:
        if IN_POD_VARIABLE not in environ:
            log.error(  # noqa: TRY400 - as below
                "not running in a pod (%s is not set): raytide autoscaler runs in head pods, to which the operator adds it if "
                "spec.enableInTreeAutoscaling of the RayCluster is true; raytide why shows from anywhere why a RayCluster does "
                "not scale",
                IN_POD_VARIABLE,
            )
            return EXIT_BAD_CONFIGURATION
        log.error("%s", error)  # noqa: TRY400 - one line for a person
        return 1
    stop = asyncio.Event()
    _install_stop_handlers(stop, identity.supervisor_fd)
    async with AsyncExitStack() as closing:
        sidecar = Sidecar(identity, settings, config, closing)
        working = asyncio.create_task(sidecar.work(environ))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not working.done():
            log.info("shutting down: received a termination signal, or the supervisor ended")
            working.cancel()
        return await _exit_code(working)


async def _exit_code(working: "asyncio.Task[None]") -> int:
    """The exit code; logs one line for what a new process may resolve, a traceback for the rest."""
    try:
        await working
    except asyncio.CancelledError:
        return 0
    except BaseExceptionGroup as errors:
        if rejected := first_of(errors, GcsUnauthenticatedError):
            log.error("the GCS rejects the credentials, restarting the process to read them again: %s", rejected)  # noqa: TRY400 - one line for a person
        else:
            log.exception("unexpected error, restarting the autoscaler process")
    return 1


def first_of(error: BaseException, kind: type[BaseException]) -> BaseException | None:
    """The first exception of that kind in nested groups."""
    if not isinstance(error, BaseExceptionGroup):
        return error if isinstance(error, kind) else None
    return next(filter(None, (first_of(inner, kind) for inner in error.exceptions)), None)


class Sidecar:
    """The parts of one process, wired."""

    def __init__(
        self, identity: SidecarIdentity, settings: SidecarSettings, config: ClientConfig, closing: AsyncExitStack
    ) -> None:
        self._identity = identity
        self._settings = settings
        self._config = config
        self._closing = closing
        self._metrics = SidecarMetrics()
        self._files = LogFiles(settings.logs)
        closing.callback(self._files.close)
        self._autoscaler: Autoscaler | None = None
        self._is_session_new = asyncio.Event()
        self._own_address = own_address(settings.api.host, settings.api.port, settings.pod_ip)
        self.gcs_address = (
            identity.gcs_address or settings.gcs_address or join_host_port(self._own_address, GCS_SERVER_PORT)
        )

    async def work(self, environ: Mapping[str, str]) -> None:
        """Run until cancelled; raises `GcsUnauthenticatedError` if the GCS refuses the token."""
        log.info("raytide autoscaler %s of RayCluster %s, GCS at %s", VERSION, self._identity.key, self.gcs_address)
        async with asyncio.TaskGroup() as tasks:
            clock = Clock()
            watchdog = Watchdog(clock)
            tasks.create_task(watchdog.beat())
            health = health_text({"loop": self._check})
            await self._serve(self._settings.health_port, {"/healthz": health}, "health page")
            gcs = connect_gcs(self.gcs_address, gcs_access(environ))
            self._closing.push_async_callback(gcs.close)
            await _wait_for_gcs(gcs, self.gcs_address)
            unanswered = await self._send_startup_queries(gcs)
            tasks.create_task(self._follow_sessions(gcs, unanswered))
            transport = await self._config.open_transport()
            self._closing.push_async_callback(transport.close)
            api = self._settings.api
            self._autoscaler = Autoscaler(
                Client(transport, clock=clock, version=VERSION, timeout_s=api.timeout_s),
                gcs,
                clock=clock,
                key=self._identity.key,
                settings=loop_settings(self._settings),
                on_tick=(self._files.write, self._check_session, self._metrics.update),
                on_progress=watchdog.report_progress,
            )
            await self._autoscaler.run()

    async def _send_startup_queries(self, gcs: ray.GcsClient) -> tuple["_Query", ...]:
        """Query what only Ray provides; decisions do not need it. Returns the queries without an answer."""
        attempts = (
            _Query("Ray's log directory is unknown, logs are in the container's output only", self._find_log_directory),
            _Query(
                "the name of Ray's session is unknown, the label SessionName of metrics is empty", self._find_session
            ),
            _Query("Ray's autoscaler version is unknown", _check_autoscaler_version),
            _Query(METRICS_NOT_REGISTERED, self._register_metrics),
        )
        unanswered = tuple([query for query in attempts if not await query.send_once(gcs)])
        for query in unanswered:
            log.warning("%s; retrying until the GCS answers", query.description)
        metrics = page(lambda: (generate_latest(self._metrics.registry), CONTENT_TYPE_LATEST))
        await self._serve(self._settings.metrics_port, {"/": metrics, "/metrics": metrics}, "metrics")
        return unanswered

    async def _follow_sessions(self, gcs: ray.GcsClient, unanswered: tuple["_Query", ...]) -> None:
        """Retry unanswered queries, and register the metrics address again after a GCS restart, which loses it."""
        registration = _Query(METRICS_NOT_REGISTERED, self._register_metrics)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(GCS_RETRY_S if unanswered else None):
                    await self._is_session_new.wait()
            if self._is_session_new.is_set():
                self._is_session_new.clear()
                unanswered = (
                    *(query for query in unanswered if query.description != registration.description),
                    registration,
                )
            unanswered = tuple([query for query in unanswered if not await query.send_once(gcs)])

    async def _find_log_directory(self, gcs: ray.GcsClient) -> None:
        self._files.open(Path((await gcs.head_directories()).logs))

    async def _find_session(self, gcs: ray.GcsClient) -> None:
        self._metrics.session = await ray.session_name(gcs)

    async def _register_metrics(self, gcs: ray.GcsClient) -> None:
        await ray.announce_metrics(gcs, join_host_port(self._own_address, self._settings.metrics_port))

    async def _serve(self, port: int, pages: Mapping[str, Answer], what: str) -> None:
        """Serve pages; a port in use disables the pages, not the autoscaler."""
        endpoints = Endpoints()
        for path, answer in pages.items():
            endpoints.add(join_host_port(listening_host(self.gcs_address), port), path, answer)
        self._closing.push_async_callback(endpoints.stop)
        try:
            await endpoints.start()
        except OSError as error:
            log.warning("%s not served: cannot listen: %s", what, error)

    def _check(self) -> tuple[bool, str]:
        """Fails only if the loop hangs: a GCS or API server that is down is not the sidecar's fault (D9)."""
        if self._autoscaler is None:
            return True, "waiting for the GCS"
        running_s = self._autoscaler.running_s()
        return running_s < LONGEST_TICK_S, f"the current tick has been running for {running_s:.0f} s"

    def _check_session(self, tick: Tick) -> None:
        session = tick.gcs.session if tick.gcs is not None else ""
        if session and session != self._metrics.session:
            self._metrics.session = session
            self._is_session_new.set()


# --- environment -----------------------------------------------------------------------------------------------------


def loop_settings(settings: SidecarSettings) -> LoopSettings:
    """The loop's part of the settings."""
    tick = ReconcilerSettings(
        is_recorded=settings.is_under_raytide,
        head_pod=settings.head_pod,
        pending_idle_timeout_s=settings.pending_idle_timeout_s,
        time_limits=settings.time_limits,
        recovery_s=settings.recovery_s,
        has_gpu_conservation=settings.has_gpu_conservation,
    )
    return LoopSettings(
        tick=tick,
        interval_s=settings.interval_s,
        api_version=settings.api.version,
        node_autoscaler=settings.node_autoscaler,
    )


def own_address(host: str, port: str, pod_ip: str) -> str:
    """This pod's address: `pod_ip`, else the source address towards the API server; no packet is sent.

    `localhost` if there is none, which is the loopback address of the family that the pod has.
    """
    if pod_ip:
        return pod_ip
    with suppress(OSError):
        for family, kind, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
            with suppress(OSError), socket.socket(family, kind) as asking:
                asking.connect(address)
                return str(asking.getsockname()[0])
    return "localhost"


def listening_host(gcs_address: str) -> str:
    """Empty for all addresses, for probes and Prometheus from outside the pod; the GCS's loopback address if it has its own.

    Pods of a sandbox without namespaces share one network, and each has such an address.
    """
    host = gcs_address.rpartition(":")[0]
    return host if host.startswith("127.") and host != "127.0.0.1" else ""


async def _wait_for_gcs(gcs: ray.GcsClient, address: str) -> None:
    """Wait until the GCS answers, without limit; raises `GcsUnauthenticatedError`."""
    for attempts in itertools.count():
        try:
            log.info("connected to the GCS of Ray %s", await gcs.check_alive())
        except (ApiUnavailableError, ApiStatusError) as error:
            if isinstance(error, ApiStatusError) and error.status == UNAUTHENTICATED:
                raise GcsUnauthenticatedError(str(error)) from error
            is_starting = attempts < LOG_EVERY_ATTEMPTS
            if attempts == 0:
                log.info("the GCS at %s does not answer, retrying: Ray may still be starting", address)
            elif attempts % LOG_EVERY_ATTEMPTS == 0:
                log.warning("the GCS at %s does not answer, retrying: %s", address, error)
            await asyncio.sleep(STARTING_GCS_RETRY_S if is_starting else GCS_RETRY_S)
        else:
            return


@dataclass(frozen=True, slots=True)
class _Query:
    """A query to Ray; without an answer a convenience is missing, not the autoscaler."""

    description: str
    send: Callable[[ray.GcsClient], Awaitable[None]]

    async def send_once(self, gcs: ray.GcsClient) -> bool:
        """Send this query to Ray's GCS once; return whether the GCS answered."""
        try:
            await self.send(gcs)
        except (ApiUnavailableError, ApiStatusError) as error:
            log.debug("%s: %s", self.description, error)
            return False
        return True


async def _check_autoscaler_version(gcs: ray.GcsClient) -> None:
    if not await ray.is_autoscaler_v2(gcs):
        log.warning("Ray was started with autoscaler V1; Raytide's autoscaler decides like V2 in any case")


def _install_stop_handlers(stop: asyncio.Event, supervisor_fd: int | None) -> None:
    """Stop on SIGTERM, SIGINT, or the end of the supervisor."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if supervisor_fd is not None:

        def on_supervisor_exit() -> None:
            loop.remove_reader(supervisor_fd)
            stop.set()

        loop.add_reader(supervisor_fd, on_supervisor_exit)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
