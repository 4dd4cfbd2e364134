"""How is the sidecar put together?

One screen: the logs, the probe's endpoint, the GCS, what only Ray can tell (its folders, its session), the metrics page, the
loop; and an end in order on SIGTERM or when the supervisor is gone. Waits for the GCS without limit and ends by itself
only for reasons that a new process may heal, with one line that says which. Started by supervisor.py as a program of its
own, so that the parser of flags is not in its memory; rules AS §1.1, D11, D12.
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

from raytide.api.errors import Refused, Unavailable
from raytide.api.meta import Key
from raytide.api.names import GCS_SERVER_PORT, VERSION
from raytide.autoscaler import gcs as ray
from raytide.autoscaler.alarm import Alarm
from raytide.autoscaler.gcs_access import gcs_access
from raytide.autoscaler.gcs_channel import connect_gcs
from raytide.autoscaler.loop import UNAUTHENTICATED, Autoscaler, LoopSettings, NotLetIn, Tick
from raytide.autoscaler.metrics import SidecarMetrics
from raytide.autoscaler.ordering.orders import TickSettings
from raytide.autoscaler.settings import ApiSettings, BadSetting, SidecarSettings, read_settings, without_effect
from raytide.autoscaler.supervisor import BAD_ARGUMENTS
from raytide.autoscaler.telling import monitor_log
from raytide.autoscaler.telling.event_log import EventLog
from raytide.kube.access import SERVICE_ACCOUNT, Access, ClientCertificate, NotConnected, service_account_access
from raytide.kube.client import Client
from raytide.runtime.clock import Clock
from raytide.runtime.collector import spare_the_collector
from raytide.runtime.endpoints import Answer, Endpoints, page, text_of

log = logging.getLogger(__name__)

ASK_GCS_EVERY_S: Final = 5.0
ASK_STARTING_GCS_EVERY_S: Final = 1.0
"""Head and sidecar start together: in the first minute there is nothing to complain of, and something to win."""
REMIND_EVERY: Final = 60
"""So many questions without an answer between two log lines: a minute, then five."""
IN_POD: Final = "KUBERNETES_SERVICE_HOST"
"""Set by the kubelet in every container."""
LONGEST_TICK_S: Final = 300.0
"""Every call of a tick has a deadline, the API server's by far the longest."""


@dataclass(frozen=True, slots=True)
class Whose:
    """Whose sidecar this is."""

    key: Key
    gcs_address: str = ""
    """Empty: on this pod."""
    life_line: int | None = None
    """A file descriptor that closes when the supervisor is gone."""


def main(arguments: Sequence[str]) -> int:
    """`NAME NAMESPACE GCS-ADDRESS LIFE-LINE`, as the supervisor writes them; returns the exit code."""
    name, namespace, gcs_address, life_line = arguments
    try:
        settings = read_settings(os.environ)
    except BadSetting as error:
        print(f"raytide autoscaler: {error}", file=sys.stderr)  # noqa: T201 - there is no log yet
        return BAD_ARGUMENTS
    monitor_log.install(settings.logs)
    spare_the_collector()
    for variable, why in without_effect(os.environ):
        log.warning("%s is set and has no effect: %s", variable, why)
    return asyncio.run(run(Whose(Key(namespace, name), gcs_address, int(life_line)), settings, os.environ))


async def run(whose: Whose, settings: SidecarSettings, environ: Mapping[str, str]) -> int:
    """Until told to end (0), until only a new process can go on (1), or at once outside a pod (2)."""
    try:
        access = api_access(settings.api, environ)
    except NotConnected as error:
        if IN_POD not in environ:
            log.error("not in a pod (%s is not set): raytide autoscaler runs in head pods", IN_POD)  # noqa: TRY400 - as below
            return BAD_ARGUMENTS
        log.error("%s", error)  # noqa: TRY400 - one line for a person
        return 1
    stop = asyncio.Event()
    _on_end(stop, whose.life_line)
    async with AsyncExitStack() as closing:
        sidecar = Sidecar(whose, settings, access, closing)
        working = asyncio.create_task(sidecar.work(environ))
        ending = asyncio.create_task(stop.wait())
        await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if not working.done():
            log.info("told to end")
            working.cancel()
        return await _verdict(working)


async def _verdict(working: "asyncio.Task[None]") -> int:
    """The exit code; one line for what a new process may heal, a traceback for the rest."""
    try:
        await working
    except asyncio.CancelledError:
        return 0
    except BaseExceptionGroup as troubles:
        if refused := first_of(troubles, NotLetIn):
            log.error("Ray does not accept our credentials, ending to read them anew: %s", refused)  # noqa: TRY400 - one line for a person
        else:
            log.exception("the autoscaler broke")
    return 1


def first_of(trouble: BaseException, kind: type[BaseException]) -> BaseException | None:
    """The first trouble of that kind in nested groups."""
    if not isinstance(trouble, BaseExceptionGroup):
        return trouble if isinstance(trouble, kind) else None
    return next(filter(None, (first_of(inner, kind) for inner in trouble.exceptions)), None)


class Sidecar:
    """The parts of one process, wired."""

    def __init__(self, whose: Whose, settings: SidecarSettings, access: Access, closing: AsyncExitStack) -> None:
        self._whose = whose
        self._settings = settings
        self._access = access
        self._closing = closing
        self._metrics = SidecarMetrics()
        self._files = LogFiles(settings)
        closing.callback(self._files.close)
        self._autoscaler: Autoscaler | None = None
        self._is_session_new = asyncio.Event()
        self._own_address = own_address(settings.api.host, settings.api.port, settings.pod_ip)
        self.gcs_address = whose.gcs_address or settings.gcs_address or _with_port(self._own_address, GCS_SERVER_PORT)

    async def work(self, environ: Mapping[str, str]) -> None:
        """Until cancelled, or `NotLetIn`."""
        log.info("raytide autoscaler %s of RayCluster %s, GCS at %s", VERSION, self._whose.key, self.gcs_address)
        async with asyncio.TaskGroup() as tasks:
            clock = Clock()
            alarm = Alarm(clock)
            tasks.create_task(alarm.beat())
            health = text_of({"loop": self._check})
            await self._serve(self._settings.health_port, {"/healthz": health}, "health page")
            gcs = connect_gcs(self.gcs_address, gcs_access(environ))
            self._closing.push_async_callback(gcs.close)
            await _wait_for(gcs, self.gcs_address)
            unanswered = await self._meet(gcs)
            tasks.create_task(self._follow_sessions(gcs, unanswered))
            transport = await self._access.open_transport()
            self._closing.push_async_callback(transport.close)
            api = self._settings.api
            self._autoscaler = Autoscaler(
                Client(transport, clock=clock, version=VERSION, timeout_s=api.timeout_s),
                gcs,
                clock=clock,
                key=self._whose.key,
                settings=loop_settings(self._settings),
                on_tick=(self._files.note, self._note_session, self._metrics.note),
                on_progress=alarm.note_progress,
            )
            await self._autoscaler.run()

    async def _meet(self, gcs: ray.GcsClient) -> tuple["_Question", ...]:
        """What only Ray can tell; nothing of it is needed for deciding. Returns what stayed without an answer."""
        questions = (
            _Question("Ray's folders are not known, logs go to the container's output only", self._find_folders),
            _Question("the session's name is not known, metrics do not carry it", self._find_session),
            _Question("Ray's autoscaler version is not known", _look_at_version),
            _Question("Prometheus will not find our metrics through Ray", self._announce),
        )
        unanswered = tuple([question for question in questions if not await question.is_answered(gcs)])
        for question in unanswered:
            log.warning("%s; asking again until it is", question.words)
        metrics = page(lambda: (generate_latest(self._metrics.registry), CONTENT_TYPE_LATEST))
        await self._serve(self._settings.metrics_port, {"/": metrics, "/metrics": metrics}, "metrics")
        return unanswered

    async def _follow_sessions(self, gcs: ray.GcsClient, unanswered: tuple["_Question", ...]) -> None:
        """Ask again what was not answered; and a GCS that began anew has forgotten where our metrics are."""
        announcing = _Question("Prometheus will not find our metrics through Ray", self._announce)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(ASK_GCS_EVERY_S if unanswered else None):
                    await self._is_session_new.wait()
            if self._is_session_new.is_set():
                self._is_session_new.clear()
                unanswered = (*(question for question in unanswered if question.words != announcing.words), announcing)
            unanswered = tuple([question for question in unanswered if not await question.is_answered(gcs)])

    async def _find_folders(self, gcs: ray.GcsClient) -> None:
        self._files.open(Path((await gcs.head_directories()).logs))

    async def _find_session(self, gcs: ray.GcsClient) -> None:
        self._metrics.session = await ray.session_name(gcs)

    async def _announce(self, gcs: ray.GcsClient) -> None:
        await ray.announce_metrics(gcs, _with_port(self._own_address, self._settings.metrics_port))

    async def _serve(self, port: int, pages: Mapping[str, Answer], what: str) -> None:
        """A port that is taken costs the page, not the autoscaler."""
        endpoints = Endpoints()
        for path, answer in pages.items():
            endpoints.add(f"{listening_host(self.gcs_address)}:{port}" if port else "0", path, answer)
        self._closing.push_async_callback(endpoints.stop)
        try:
            await endpoints.start()
        except OSError as error:
            log.warning("no %s: cannot listen: %s", what, error)

    def _check(self) -> tuple[bool, str]:
        """Red only if the loop hangs: a GCS or API server that is away is nobody's fault here (D9)."""
        if self._autoscaler is None:
            return True, "waits for the GCS"
        running_s = self._autoscaler.running_s()
        return running_s < LONGEST_TICK_S, f"the present turn has been running for {running_s:.0f} s"

    def _note_session(self, tick: Tick) -> None:
        session = tick.gcs.session if tick.gcs is not None else ""
        if session and session != self._metrics.session:
            self._metrics.session = session
            self._is_session_new.set()


class LogFiles:
    """`monitor.log` and the events for drivers, in the folder of Ray's present session."""

    def __init__(self, settings: SidecarSettings) -> None:
        self._settings = settings.logs
        self._folder: Path | None = None
        self._session = ""
        self._monitor: logging.Handler | None = None
        self._events: EventLog | None = None

    def open(self, folder: Path) -> None:
        """Write there from now on."""
        self.close()
        self._folder = folder
        self._monitor = monitor_log.write_to(folder, self._settings)
        self._events = EventLog(folder, self._settings, now=Clock().now)

    def note(self, tick: Tick) -> None:
        """Tell drivers; a new session of Ray has a new folder behind the same name."""
        session = tick.gcs.session if tick.gcs is not None else self._session
        if self._folder is not None and self._session not in ("", session):
            self.open(self._folder)
        self._session = session
        if tick.plan is not None and self._events is not None:
            self._events.tell(tick.plan.events)

    def close(self) -> None:
        """Write nowhere."""
        if self._monitor is not None:
            logging.getLogger().removeHandler(self._monitor)
            self._monitor.close()
        if self._events is not None:
            self._events.close()


# --- the surroundings ------------------------------------------------------------------------------------------------


def api_access(settings: ApiSettings, environ: Mapping[str, str]) -> Access:
    """As this pod; raises `NotConnected`."""
    pair = None
    if settings.certificate is not None and settings.private_key is not None:
        pair = ClientCertificate(settings.certificate, settings.private_key)
    return service_account_access(
        settings.host,
        settings.port,
        environ=environ,
        folder=settings.service_account or SERVICE_ACCOUNT,
        authority=settings.authority,
        client_certificate=pair,
    )


def loop_settings(settings: SidecarSettings) -> LoopSettings:
    """What the loop is told of it."""
    tick = TickSettings(
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
    """This pod's: as it was told, else the one by which it would reach the API server; nothing is sent."""
    if pod_ip:
        return pod_ip
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as asking:
            asking.connect(address)
            return str(asking.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def listening_host(gcs_address: str) -> str:
    """Everywhere, because probes and Prometheus come from outside the pod; on a loopback address if the GCS has its own.

    Pods of a sandbox without namespaces share one network, and each has such an address.
    """
    host = gcs_address.rpartition(":")[0].strip("[]")
    has_its_own = host.startswith("127.") and host != "127.0.0.1"
    return host if has_its_own else "0.0.0.0"  # noqa: S104 - see above


def _with_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _wait_for(gcs: ray.GcsClient, address: str) -> None:
    """Until it answers, however long that takes; raises `NotLetIn`."""
    for questions in itertools.count():
        try:
            log.info("the GCS of Ray %s answers", await gcs.check_alive())
        except (Unavailable, Refused) as trouble:
            if isinstance(trouble, Refused) and trouble.status == UNAUTHENTICATED:
                raise NotLetIn(str(trouble)) from trouble
            is_starting = questions < REMIND_EVERY
            if questions == 0:
                log.info("the GCS at %s does not answer, asking until it does: Ray may still be starting", address)
            elif questions % REMIND_EVERY == 0:
                log.warning("the GCS at %s does not answer, asking until it does: %s", address, trouble)
            await asyncio.sleep(ASK_STARTING_GCS_EVERY_S if is_starting else ASK_GCS_EVERY_S)
        else:
            return


@dataclass(frozen=True, slots=True)
class _Question:
    """Something to ask Ray for: an answer that does not come costs a comfort, not the autoscaler."""

    words: str
    ask: Callable[[ray.GcsClient], Awaitable[None]]

    async def is_answered(self, gcs: ray.GcsClient) -> bool:
        """Ask, and say whether there was an answer."""
        try:
            await self.ask(gcs)
        except (Unavailable, Refused) as trouble:
            log.debug("%s: %s", self.words, trouble)
            return False
        return True


async def _look_at_version(gcs: ray.GcsClient) -> None:
    if not await ray.is_autoscaler_v2(gcs):
        log.warning("Ray was started for its autoscaler V1; decisions are made as V2 makes them all the same")


def _on_end(stop: asyncio.Event, life_line: int | None) -> None:
    """SIGTERM, SIGINT, or the end of who started us."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if life_line is not None:

        def is_cut() -> None:
            loop.remove_reader(life_line)
            stop.set()

        loop.add_reader(life_line, is_cut)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
