"""How is the operator put together?

One screen: connect, wait for the API server, start the endpoints, the rooms (rooms.py), kopf's doorbell, the election and
the question which rights are missing under one TaskGroup, and end in order on SIGTERM: no new keys, running passes get ten
seconds, the lease is given back, then everything else. A part that ends by itself ends the process, because a restart is a
resync (D10, D11). Called by cli/operator.py; returns the exit code.
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

from raytide.api.errors import Unavailable
from raytide.api.meta import Key
from raytide.api.names import LEADER_LEASE, VERSION
from raytide.api.permissions import permissions_for
from raytide.doorbell import Doorbell, Kind, Login, hush_kopf
from raytide.kube.access import Access, NotConnected
from raytide.kube.client import Client
from raytide.kube.connect import find_access
from raytide.kube.lease import Elector
from raytide.kube.rights import Rights, questions
from raytide.kube.room import ObjectView, Room
from raytide.metrics import (
    LEADER,
    LEASE_AGE_SECONDS,
    OPTIONAL_STREAM_LISTED,
    PASSES,
    REGISTRY,
    STREAM_AGE_SECONDS,
    TERMS,
    WAITING_KEYS,
)
from raytide.rooms import Rooms
from raytide.runtime.clock import Clock
from raytide.runtime.endpoints import Check, Endpoints, page, text_of
from raytide.runtime.trailing import Trailing
from raytide.runtime.vitals import Vitals
from raytide.settings import Settings

log = logging.getLogger(__name__)

ASK_API_EVERY_S: Final = 2.0
REMIND_EVERY: Final = 30
"""So many questions without an answer between two log lines."""
STUCK_ELECTION_S: Final = 60.0
"""Every call of the election ends in seconds: one turn cannot take this long."""


async def run_operator(settings: Settings) -> int:
    """Run until told to stop; 1 if nothing could be started, or a part broke."""
    hush_kopf()
    try:
        access = await find_access(Path(settings.kubeconfig) if settings.kubeconfig else None)
    except NotConnected as error:
        log.error("%s", error)  # noqa: TRY400 - one line for a person
        return 1
    async with AsyncExitStack() as connections:
        operator = await Operator.connected(settings, access, connections)
        try:
            return await operator.run()
        except BaseExceptionGroup as trouble:
            log.exception("a part of the operator broke")
            log.critical("raytide ends, because a part of it broke: %r", _first(trouble))
            return 1


class Operator:
    """The parts of one process, wired."""

    def __init__(
        self, settings: Settings, access: Access, client: Client, free_client: Client, elector: Elector | None
    ) -> None:
        """`client` asks the elector before it writes; `free_client` does not, and must not touch what is managed."""
        clock = Clock()
        self._server = access.server
        self._client = client
        self._elector = elector
        self._stop = asyncio.Event()
        watched = settings.watch_namespaces
        self._rooms = Rooms(client, clock=clock, settings=settings)
        kinds = tuple(_kind(room, clock) for room in self._rooms.kinds)
        login = Login(access.server, access.open_session)
        self._doorbell = Doorbell(login, kinds, clock=clock, namespaces=watched)
        own = lease_namespace(settings, access) if elector else None
        asked = questions(permissions_for(settings.autoscaler_mode), watched=watched, own=own)
        self._rights = Rights(free_client, asked, is_served=self._rooms.is_served)
        self._vitals = self._build_vitals(settings.stream_silence_s)
        self._endpoints = self._build_endpoints(settings)

    @classmethod
    async def connected(cls, settings: Settings, access: Access, connections: AsyncExitStack) -> "Operator":
        """With connections that `connections` closes: the election has its own, so that nothing delays it."""
        clock, version = Clock(), VERSION
        transport = await access.open_transport()
        connections.push_async_callback(transport.close)
        elector = None
        if settings.has_leader_election(is_in_cluster=access.is_in_cluster):
            timing = settings.lease_timing()
            of_its_own = await access.open_transport()
            connections.push_async_callback(of_its_own.close)
            elector = Elector(
                Client(of_its_own, clock=clock, version=version, timeout_s=timing.call_timeout_s),
                Key(lease_namespace(settings, access), LEADER_LEASE),
                identity=settings.pod_uid or f"{socket.gethostname()}_{uuid4()}",
                clock=clock,
                timing=timing,
            )
        else:
            log.info("no leader election: this must be the only operator (--enable-leader-election switches it on)")
        gate = elector.may_write_s if elector else None
        client = Client(transport, clock=clock, version=version, write_gate=gate)
        return cls(settings, access, client, Client(transport, clock=clock, version=version), elector)

    async def run(self) -> int:
        """Until told to stop, or a part breaks."""
        self._on_signals()
        self._measure()
        try:
            await self._endpoints.start()
        except OSError as error:
            log.error("cannot listen: %s", error)  # noqa: TRY400 - one line for a person
            return 1
        log.info("raytide %s at %s", VERSION, self._server)
        try:
            async with asyncio.TaskGroup() as tasks:
                stopping = tasks.create_task(self._stop_in_order())
                if await self._api_answers():
                    await self._work(tasks)
                stopping.cancel()
        finally:
            await self._endpoints.stop()
        log.info("ended in order")
        return 0

    async def _work(self, tasks: asyncio.TaskGroup) -> None:
        """Everything that runs side by side; returns when the last term has ended in order."""
        started: list[asyncio.Task[None]] = []

        def start(part: Coroutine[Any, Any, None]) -> None:
            started.append(tasks.create_task(part))

        if self._elector is None:
            leading = tasks.create_task(self._rooms.lead())
        else:
            leading = tasks.create_task(self._elector.run(self._rooms.lead, unanswered_s=self._client.unanswered_s))
            await self._elector.has_looked.wait()  # a leader's lists begin in its term, and are made once (D6)
        for part in (self._rooms.follow(), self._doorbell.run(), self._vitals.run(), self._ask_rights()):
            start(part)
        await leading
        for task in started:
            task.cancel()

    async def _ask_rights(self) -> None:
        """Which rights are missing depends on which kinds there are."""
        await self._rooms.know_kinds()
        await self._rights.ask()
        await self._rights.run()

    # --- the end -----------------------------------------------------------------------------------------------------

    def _on_signals(self) -> None:
        """SIGTERM and SIGINT ask for an ordered end; the second one does not ask."""
        loop = asyncio.get_running_loop()

        def told_to_stop() -> None:
            self._stop.set()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_DFL)

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, told_to_stop)

    async def _stop_in_order(self) -> None:
        await self._stop.wait()
        log.info("told to stop: running passes may end")
        if self._elector is not None:
            self._elector.stop()
        await self._rooms.stop()

    # --- the API server ------------------------------------------------------------------------------------------------

    async def _api_answers(self) -> bool:
        """Wait for the API server; False when told to stop before it answered."""
        questions_asked = 0
        while not self._stop.is_set():
            trouble = await self._ask()
            if trouble is None:
                return True
            if questions_asked % REMIND_EVERY == 0:
                log.warning(
                    "the API server at %s does not answer, trying again until it does: %s", self._server, trouble
                )
            questions_asked += 1
            with suppress(TimeoutError):
                async with asyncio.timeout(ASK_API_EVERY_S):
                    await self._stop.wait()
        return False

    async def _ask(self) -> str | None:
        """None when the API server answers anything at all, otherwise why not."""
        try:
            response = await self._client.transport.request("GET", "/version", timeout_s=5.0)
        except Unavailable as trouble:
            return str(trouble)
        return f"status {response.status}" if response.status >= 500 else None

    # --- looking -------------------------------------------------------------------------------------------------------

    def _build_vitals(self, silence_s: float) -> Vitals:
        async def is_answered() -> bool:
            return await self._ask() is None

        rooms, rights = self._rooms, self._rights
        also_alive: dict[str, Check] = {}
        also_ready: dict[str, Check] = {"kinds": rooms.check, "rights": rights.check, "sharing": rooms.sharing.check}
        for name in rooms.optional_streams:
            also_ready[f"optional-{name}"] = partial(rooms.optional_check, name)
        if (elector := self._elector) is not None:
            also_alive["lease"] = lambda: (elector.idle_s() < STUCK_ELECTION_S, elector.words())
            also_ready["lease"] = lambda: (True, elector.words())
        return Vitals(
            streams=rooms.streams,
            is_answered=is_answered,
            oldest_pass_s=rooms.oldest_pass_s,
            waiting=rooms.waiting,
            silence_s=silence_s,
            also_alive=also_alive,
            also_ready=also_ready,
            is_needed=rooms.is_needed,
        )

    def _build_endpoints(self, settings: Settings) -> Endpoints:
        endpoints = Endpoints()
        endpoints.add(settings.health_address, "/healthz", text_of(self._vitals.liveness()))
        endpoints.add(settings.health_address, "/readyz", text_of(self._vitals.readiness()))
        metrics = page(lambda: (generate_latest(REGISTRY), CONTENT_TYPE_LATEST))
        endpoints.add(settings.metrics_address, "/metrics", metrics)
        return endpoints

    def _measure(self) -> None:
        """Gauges that are read when Prometheus asks."""
        elector = self._elector
        for room in self._rooms.kinds:
            WAITING_KEYS.labels(room.controller.name).set_function(room.controller.waiting)
            PASSES.labels(room.controller.name).set_function(partial(getattr, room.controller, "passes"))
        PASSES.labels("sharing").set_function(partial(getattr, self._rooms.sharing.controller, "passes"))
        for name, stream in self._rooms.streams.items():
            STREAM_AGE_SECONDS.labels(name).set_function(partial(getattr, stream, "age_s"))
        for name in self._rooms.optional_streams:
            OPTIONAL_STREAM_LISTED.labels(name).set_function(partial(self._rooms.is_optional_listed, name))
        if elector is not None:
            LEADER.labels(LEADER_LEASE).set_function(lambda: elector.is_leading)
            TERMS.labels(LEADER_LEASE).set_function(lambda: elector.terms)
            LEASE_AGE_SECONDS.labels(LEADER_LEASE).set_function(elector.renewed_s)


def _kind(room: Room, clock: Clock) -> Kind:
    """What kopf has to ring for; what our informer has seen, it owes us (D1)."""
    trailing = Trailing(clock)

    def seen(view: ObjectView, is_gone: bool) -> None:  # noqa: FBT001 - the room calls it by position
        if is_gone:
            trailing.informer_lost(view.key)
        else:
            trailing.informer_saw(view.key, view.version)

    room.on_seen = seen
    return Kind(room.resource, room.ring, lambda: room.objects.is_listable, trailing)


def lease_namespace(settings: Settings, access: Access) -> str:
    """Where the Lease is: as told, else where the operator itself is."""
    return settings.leader_election_namespace or settings.pod_namespace or access.namespace


def _first(trouble: BaseException) -> BaseException:
    """The innermost first exception of nested groups."""
    while isinstance(trouble, BaseExceptionGroup):
        trouble = trouble.exceptions[0]
    return trouble
