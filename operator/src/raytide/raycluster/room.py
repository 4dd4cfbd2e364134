"""What runs, so that RayClusters are what their specs say?

Ties the room together over one client: informers for clusters, pods, services and nodes, the overlays, the executor, the
reconciler and its workers. It decides nothing; informers run all the time, everything that writes only while this process
leads (D10). Started by main.py, and by simulations without kopf, sockets or threads (D3, D4, D11).
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec

from raytide.api import names
from raytide.api.config import ClusterConfig
from raytide.api.errors import Refused, Unavailable
from raytide.api.meta import NODES, PODS, RAYCLUSTERS, SERVICES, Key, Resource
from raytide.api.node import NodeView, decode_node
from raytide.api.pod import PodView, decode_pod, pod_from_manifest
from raytide.api.service import ServiceView, decode_service, service_from_manifest
from raytide.kube.apply import Executor
from raytide.kube.client import Client
from raytide.kube.events import Recorder
from raytide.kube.expectations import Expectations, Reader
from raytide.kube.informer import Informer
from raytide.kube.reflector import SILENCE_S, version_number
from raytide.raycluster.controller import RayClusterReconciler, Wires
from raytide.raycluster.pod_names import Namer
from raytide.raycluster.quota_lookup import QuotaLookup
from raytide.raycluster.telling import Telling
from raytide.raycluster.unwatched import Unwatched
from raytide.runtime.clock import Clock
from raytide.runtime.controller import Controller

log = logging.getLogger(__name__)

CONTROLLER_NAME: Final = "raycluster-controller"
"""KubeRay's reportingController (RC §6.1)."""
SUFFIX_LENGTH: Final = 5
NODES_TRIED_EVERY_S: Final = 30.0
IN_FLIGHT: Final = "-"
"""deletionTimestamp of a pod whose deletion we asked for and have not seen."""


class ClusterView(msgspec.Struct, frozen=True, gc=False):
    """A RayCluster as far as ringing goes."""

    key: Key
    version: str


class _Metadata(msgspec.Struct, gc=False):
    namespace: str = ""
    name: str = ""
    version: str = msgspec.field(default="", name="resourceVersion")


class _Cluster(msgspec.Struct, gc=False):
    metadata: _Metadata


_clusters = msgspec.json.Decoder(_Cluster)


def decode_cluster(document: bytes | msgspec.Raw) -> ClusterView:
    """Key and version of a RayCluster, whatever its spec looks like."""
    metadata = _clusters.decode(document).metadata
    return ClusterView(Key(metadata.namespace, metadata.name), metadata.version)


def random_name(prefix: str) -> str:
    """A name nobody has: the prefix and five random characters (D15)."""
    return prefix + "".join(secrets.choice(names.REPLICA_ALPHABET) for _ in range(SUFFIX_LENGTH))


@dataclass(frozen=True, slots=True)
class RoomOptions:
    """How the room is run."""

    namespaces: tuple[str, ...] = ()
    """Empty means all."""
    workers: int = 8
    silence_s: float = SILENCE_S
    """After so long without a word a watch counts as dead."""
    instance: str = names.OPERATOR
    """Who the events say they are from."""
    namer: Namer = field(default=random_name)


class RayClusterRoom:
    """Everything that runs for RayClusters.

    - `follow` keeps the informers warm, whoever leads; `lead` works for one term of leadership. `run` is both at once,
      for whoever is alone.
    - A term begins with empty overlays and a list of everything that began in it; only then workers start (D6).
    - Outside a term nothing is written, and rings are dropped: a term looks at every RayCluster when it begins.
    - `stop` lets running passes end for 10 s; then `lead` and `run` return. `lead` that is cancelled ends at once.
    - Trouble in any part ends `follow`, `lead` and `run` with that trouble.
    """

    def __init__(self, client: Client, *, clock: Clock, config: ClusterConfig, options: RoomOptions) -> None:
        self._client = client
        self._clock = clock
        self._stopping = asyncio.Event()
        self.on_cluster_seen: Callable[[ClusterView, bool], None] = lambda _view, _is_gone: None
        """Told which version of a RayCluster the informer shows, or that it is gone."""
        seen_by_all = partial(Informer, client, clock=clock, silence_s=options.silence_s)
        informer = partial(seen_by_all, namespaces=options.namespaces or None)
        children = partial(informer, index=_cluster_of, on_change=self._on_child)
        services = partial(children, SERVICES, decoder=decode_service)
        ray_pods = f"{names.CLUSTER_LABEL},{names.NODE_TYPE_LABEL}"
        self.clusters: Informer[ClusterView] = informer(RAYCLUSTERS, decoder=decode_cluster, on_change=self._on_cluster)
        self.pods: Informer[PodView] = children(PODS, decoder=decode_pod, label_selector=ray_pods)
        self.services: Informer[ServiceView] = services(label_selector=names.CLUSTER_LABEL)
        self.headless_services: Informer[ServiceView] = services(
            label_selector=names.HEADLESS_WORKER_SERVICE_LABEL, name="headless-services"
        )
        """They carry this label alone (RC:HL-2), so no selector finds them together with the others."""
        self.streams: tuple[Informer[Any], ...] = (self.clusters, self.pods, self.services, self.headless_services)
        """What has to be listed before a pass may run."""
        self.nodes: Informer[NodeView] = seen_by_all(NODES, decoder=decode_node, on_change=self._on_node)
        self.recorder = Recorder(client, clock=clock, controller=CONTROLLER_NAME, instance=options.instance)
        self._informed = Informed(self)
        self._wires = self._build_wires(config)
        self.reconciler = RayClusterReconciler(
            self._wires,
            clock=clock,
            config=config,
            namer=options.namer,
            saw=self._saw,
            forgotten=self._forgotten,
        )
        self.controller = Controller(
            "raycluster",
            self.reconciler.reconcile,
            clock=clock,
            keys=lambda: [view.key for view in self.clusters.all()],
            workers=options.workers,
        )

    # --- running ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow, and lead one term that lasts until stopped."""
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(self.follow())
            await self.lead()
            following.cancel()

    async def follow(self) -> None:
        """Know what there is, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for stream in self.streams:
                tasks.create_task(_for_ever(f"informer of {stream.name}", stream.run()))
            tasks.create_task(self._follow_nodes())

    async def lead(self) -> None:
        """One term: work until stopped."""
        self._wires.pods_in_flight.clear()
        self._wires.services_in_flight.clear()
        self._wires.unwatched.clear()
        await self._relisted_or_stopped()
        if self._stopping.is_set():
            return
        log.info("following %d RayClusters and %d pods", len(self.clusters), len(self.pods))
        async with asyncio.TaskGroup() as tasks:
            posting = tasks.create_task(_for_ever("event recorder", self.recorder.run()))
            await self.controller.run()
            posting.cancel()

    async def stop(self) -> None:
        """Take no more keys, let running passes end."""
        self._stopping.set()
        await self.controller.stop()

    @property
    def is_synced(self) -> bool:
        """Whether everything a pass looks at has been listed."""
        return all(stream.is_synced for stream in self.streams)

    async def _relisted_or_stopped(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            relisted = tasks.create_task(self._relist())
            stopped = tasks.create_task(self._stopping.wait())
            await asyncio.wait([relisted, stopped], return_when=asyncio.FIRST_COMPLETED)
            relisted.cancel()
            stopped.cancel()

    async def _relist(self) -> None:
        await asyncio.gather(*(stream.refresh() for stream in self.streams))

    async def _follow_nodes(self) -> None:
        """Nodes are a courtesy: without leave to read them, dying pods simply count until they are gone."""
        while True:
            try:
                async for _page in self._client.pages(NODES, page_size=1):
                    break
            except Refused as refused:
                log.info("nodes cannot be read (%s): dying pods on dead nodes count until they are gone", refused)
                return
            except Unavailable:
                await asyncio.sleep(NODES_TRIED_EVERY_S)
            else:
                await _for_ever("informer of nodes", self.nodes.run())

    # --- ringing -----------------------------------------------------------------------------------------------------

    def ring(self, key: Key, version: str = "") -> None:
        """A RayCluster changed; `version` is the resourceVersion seen."""
        self.controller.ring(key, version)

    def _on_cluster(self, old: ClusterView | None, new: ClusterView | None) -> None:
        if new is not None:
            self.on_cluster_seen(new, False)
            self.ring(new.key, new.version)
        elif old is not None:
            self.on_cluster_seen(old, True)
            self.ring(old.key)

    def _on_child(self, old: PodView | ServiceView | None, new: PodView | ServiceView | None) -> None:
        for key in {view.cluster_key for view in (old, new) if view is not None}:
            self.controller.ring_soon(key)

    def _on_node(self, old: NodeView | None, new: NodeView | None) -> None:
        """A node came or went: its dying pods count, or count no more."""
        if old is None or new is None or old.is_ready == new.is_ready:
            return
        for key in {pod.cluster_key for pod in self.pods.all() if pod.is_terminating and pod.node_name == new.name}:
            self.controller.ring_soon(key)

    # --- wiring ----------------------------------------------------------------------------------------------------

    def _build_wires(self, config: ClusterConfig) -> Wires:
        pods_in_flight = Expectations(
            clock=self._clock,
            reader=Reader(decode_pod, pod_from_manifest),
            version_of=_version_of,
            name_of=_name_of,
            uid_of=_uid_of,
            as_terminating=lambda pod: pod.marked_terminating(IN_FLIGHT),
            informer_version=self.pods.version_in,
            ask_relist=self.pods.relist,
        )
        services_in_flight = Expectations(
            clock=self._clock,
            reader=Reader(decode_service, service_from_manifest),
            version_of=_version_of,
            name_of=_name_of,
            uid_of=_uid_of,
            as_terminating=lambda service: service.marked_terminating(IN_FLIGHT),
            informer_version=self._services_version,
            ask_relist=self._relist_services,
        )
        overlays: dict[Resource, Expectations[Any]] = {PODS: pods_in_flight, SERVICES: services_in_flight}
        return Wires(
            client=self._client,
            executor=Executor(self._client, clock=self._clock, overlays=overlays),
            children=self._informed,
            pods_in_flight=pods_in_flight,
            services_in_flight=services_in_flight,
            unwatched=Unwatched(self._client, clock=self._clock, resync_s=config.resync_s),
            quotas=QuotaLookup(self._client, clock=self._clock),
            telling=Telling(self.recorder, clock=self._clock),
        )

    def _services_version(self, namespace: str) -> int:
        return min(each.version_in(namespace) for each in (self.services, self.headless_services))

    def _relist_services(self) -> None:
        self.services.relist()
        self.headless_services.relist()

    def _saw(self, key: Key, *versions: str) -> None:
        self.controller.saw(key, *versions)

    def _forgotten(self, key: Key) -> None:
        self.controller.forget(key)


class Informed:
    """The informers of a room as a reconciler asks them."""

    def __init__(self, room: RayClusterRoom) -> None:
        self._room = room

    def pods(self, key: Key) -> Sequence[PodView]:
        """Pods whose label names that cluster."""
        return self._room.pods.by_index(key)

    def pod(self, namespace: str, name: str) -> PodView | None:
        """One pod of any cluster."""
        return self._room.pods.get(namespace, name)

    def services(self, key: Key) -> Sequence[ServiceView]:
        """Services whose labels name that cluster."""
        return (*self._room.services.by_index(key), *self._room.headless_services.by_index(key))

    def cluster_version(self, key: Key) -> int | None:
        """The version of the RayCluster that is known."""
        view = self._room.clusters.get(key.namespace, key.name)
        return version_number(view.version) if view is not None else None

    def unready_nodes(self) -> frozenset[str]:
        """Nodes that say they are away."""
        return frozenset(node.name for node in self._room.nodes.all() if not node.is_ready)


def _cluster_of(view: PodView | ServiceView) -> Key:
    return view.cluster_key


def _name_of(view: PodView | ServiceView) -> str:
    return view.name


def _uid_of(view: PodView | ServiceView) -> str:
    return view.uid


def _version_of(view: PodView | ServiceView) -> str:
    return view.resource_version


async def _for_ever(what: str, work: Coroutine[Any, Any, None]) -> None:
    """A background task whose end, for whatever reason, is an error (D11)."""
    await work
    raise RuntimeError(f"{what} ended")
