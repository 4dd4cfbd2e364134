"""How is the operator put together?

One screen: connect, wait for the API server, start the endpoints, the RayCluster room and kopf's doorbell under one
TaskGroup, and end in order on SIGTERM: no new keys, running passes get ten seconds, then everything else. A part that ends
by itself ends the process, because a restart is a resync (D11). Called by cli/operator.py; returns the exit code. Leader
election will stand between the informers and `room.run`.
"""

import asyncio
import logging
import signal
from functools import partial
from pathlib import Path
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from raytide.api.errors import Unavailable
from raytide.api.names import OPERATOR
from raytide.doorbell import Doorbell, Login
from raytide.kube.client import Client
from raytide.kube.connect import NotConnected, find_access
from raytide.metrics import PASSES, REGISTRY, STREAM_AGE_SECONDS, WAITING_KEYS
from raytide.raycluster.room import ClusterView, RayClusterRoom, RoomOptions
from raytide.runtime.clock import Clock
from raytide.runtime.endpoints import Endpoints, page, text_of
from raytide.runtime.vitals import Vitals
from raytide.settings import Settings, product_version

log = logging.getLogger(__name__)

ASK_API_EVERY_S: Final = 2.0
REMIND_EVERY: Final = 30
"""So many questions without an answer between two log lines."""


async def run_operator(settings: Settings) -> int:
    """Run until told to stop; 1 if nothing could be started."""
    clock = Clock()
    logging.getLogger("kopf").setLevel(logging.WARNING)
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)  # warns that a thread gets no signals
    try:
        access = await find_access(Path(settings.kubeconfig) if settings.kubeconfig else None)
    except NotConnected as error:
        log.error("%s", error)  # noqa: TRY400 - one line for a person
        return 1
    transport = await access.open_transport()
    client = Client(transport, clock=clock, version=product_version())
    options = RoomOptions(
        namespaces=settings.watch_namespaces,
        workers=settings.reconcile_concurrency,
        instance=settings.pod_name or OPERATOR,
    )
    room = RayClusterRoom(client, clock=clock, config=settings.cluster_config(), options=options)
    try:
        return await _run(settings, client, Login(access.server, access.open_session), room, clock)
    finally:
        await transport.close()


async def _run(settings: Settings, client: Client, login: Login, room: RayClusterRoom, clock: Clock) -> int:
    stop = _on_signal()
    _measure(room)
    vitals = _vitals(client, room)
    endpoints = _endpoints(settings, vitals)
    try:
        await endpoints.start()
    except OSError as error:
        log.error("cannot listen: %s", error)  # noqa: TRY400 - one line for a person
        return 1
    doorbell = Doorbell(login, room.ring, clock=clock, namespaces=settings.watch_namespaces)
    room.on_cluster_seen = lambda view, is_gone: _owe(doorbell, view, is_gone=is_gone)
    log.info("raytide %s at %s", product_version(), login.server)
    try:
        async with asyncio.TaskGroup() as tasks:
            stopping = tasks.create_task(_stop_on(stop, room))
            if await _api_answers(client, login.server, stop):
                background = [tasks.create_task(doorbell.run()), tasks.create_task(vitals.run())]
                await room.run()
                for task in background:
                    task.cancel()
            stopping.cancel()
    finally:
        await endpoints.stop()
    log.info("ended in order")
    return 0


def _on_signal() -> asyncio.Event:
    """Set by SIGTERM and SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def _stop_on(stop: asyncio.Event, room: RayClusterRoom) -> None:
    await stop.wait()
    log.info("told to stop: running passes may end")
    await room.stop()


async def _api_answers(client: Client, server: str, stop: asyncio.Event) -> bool:
    """Wait for the API server; False when told to stop before it answered."""
    questions = 0
    while not stop.is_set():
        trouble = await _ask(client)
        if trouble is None:
            return True
        if questions % REMIND_EVERY == 0:
            log.warning("the API server at %s does not answer, trying again until it does: %s", server, trouble)
        questions += 1
        try:
            await asyncio.wait_for(stop.wait(), ASK_API_EVERY_S)
        except TimeoutError:
            continue
    return False


async def _ask(client: Client) -> str | None:
    """None when the API server answers anything at all, otherwise why not."""
    try:
        response = await client.transport.request("GET", "/version", timeout_s=5.0)
    except Unavailable as trouble:
        return str(trouble)
    return f"status {response.status}" if response.status >= 500 else None


def _owe(doorbell: Doorbell, view: ClusterView, *, is_gone: bool) -> None:
    """What our informer has seen, kopf owes us (D1)."""
    if is_gone:
        doorbell.trailing.informer_lost(view.key)
    else:
        doorbell.trailing.informer_saw(view.key, view.version)


def _vitals(client: Client, room: RayClusterRoom) -> Vitals:
    async def is_answered() -> bool:
        return await _ask(client) is None

    return Vitals(
        stream_ages={stream.resource.plural: partial(getattr, stream, "age_s") for stream in room.streams},
        is_answered=is_answered,
        is_synced=lambda: room.is_synced,
        oldest_pass_s=room.controller.oldest_running_s,
    )


def _measure(room: RayClusterRoom) -> None:
    """Gauges that are read when Prometheus asks."""
    WAITING_KEYS.labels("raycluster").set_function(room.controller.waiting)
    PASSES.labels("raycluster").set_function(lambda: room.controller.passes)
    for stream in room.streams:
        STREAM_AGE_SECONDS.labels(stream.resource.plural).set_function(partial(getattr, stream, "age_s"))


def _endpoints(settings: Settings, vitals: Vitals) -> Endpoints:
    endpoints = Endpoints()
    endpoints.add(settings.health_address, "/healthz", text_of(vitals.liveness()))
    endpoints.add(settings.health_address, "/readyz", text_of(vitals.readiness()))
    endpoints.add(settings.metrics_address, "/metrics", page(lambda: (generate_latest(REGISTRY), CONTENT_TYPE_LATEST)))
    return endpoints
