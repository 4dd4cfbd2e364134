"""What runs, so that RayClusters are what their specs say?

Ties the room together over one client: informers for clusters, pods, services and nodes, the overlays, the reconciler and
its workers. It decides nothing; informers run all the time, everything that writes only while this process leads (D10).
Started by main.py, and by simulations without kopf, sockets or threads (D3, D4, D11).
"""

import asyncio
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from raytide.api import names
from raytide.api.config import ClusterConfig
from raytide.api.meta import NODES, PODS, RAYCLUSTERS, SERVICES, Key
from raytide.api.node import NodeView, decode_node, has_readiness_changed
from raytide.api.pod import PodView, decode_pod, pod_from_manifest
from raytide.api.service import ServiceView, decode_service, service_from_manifest
from raytide.kube import room
from raytide.kube.acting import Acting
from raytide.kube.client import Client
from raytide.kube.expectations import Reader
from raytide.kube.informer import Informer
from raytide.kube.nodes import DeadNodes
from raytide.kube.reading import LiveReader
from raytide.kube.status_writing import StatusWriting
from raytide.kube.telling import Telling
from raytide.raycluster.controller import RayClusterReconciler, Wires
from raytide.raycluster.pod_names import Namer
from raytide.raycluster.quota_lookup import QuotaLookup
from raytide.raycluster.unwatched import Unwatched
from raytide.runtime.clock import Clock
from raytide.runtime.controller import Controller

CONTROLLER_NAME: Final = "raycluster-controller"
"""KubeRay's reportingController (RC §6.1)."""
SUFFIX_LENGTH: Final = 5
SUFFIXES: Final = len(names.REPLICA_ALPHABET) ** SUFFIX_LENGTH
"""Drawn in one go: the kernel is asked once per name, not once per letter."""


def random_name(prefix: str) -> str:
    """A name nobody has: the prefix and five random characters (D15)."""
    number, letters = secrets.randbelow(SUFFIXES), ""
    for _ in range(SUFFIX_LENGTH):
        number, letter = divmod(number, len(names.REPLICA_ALPHABET))
        letters += names.REPLICA_ALPHABET[letter]
    return prefix + letters


@dataclass(frozen=True, slots=True)
class RoomOptions(room.RoomOptions):
    """How the room is run."""

    namer: Namer = field(default=random_name)


class RayClusterRoom(room.Room):
    """Everything that runs for RayClusters; lives as kube/room.py says."""

    def __init__(self, client: Client, *, clock: Clock, config: ClusterConfig, options: RoomOptions) -> None:
        super().__init__(client, RAYCLUSTERS, clock=clock, controller_name=CONTROLLER_NAME, options=options)
        children = partial(self._informer, index=_cluster_of, on_change=self._on_child)
        services = partial(children, SERVICES, decoder=decode_service)
        ray_pods = f"{names.CLUSTER_LABEL},{names.NODE_TYPE_LABEL}"
        self.pods: Informer[PodView] = children(PODS, decoder=decode_pod, label_selector=ray_pods)
        self.services: Informer[ServiceView] = services(label_selector=names.CLUSTER_LABEL)
        self.headless_services: Informer[ServiceView] = services(
            label_selector=names.HEADLESS_WORKER_SERVICE_LABEL, name="headless-services"
        )
        """They carry this label alone (RC:HL-2), so no selector finds them together with the others."""
        self.streams: tuple[Informer[Any], ...] = (self.objects, self.pods, self.services, self.headless_services)
        self.nodes: Informer[NodeView] = self._seen_by_all(
            NODES,
            decoder=decode_node,
            on_change=self._on_node,
            if_forbidden="dying pods on dead nodes count until they are gone",
        )
        self.optional_streams = (self.nodes,)
        self.dead_nodes = DeadNodes(self.nodes)
        self._wires = self._build_wires(config)
        self.reconciler = RayClusterReconciler(
            self._wires,
            clock=clock,
            config=config,
            namer=options.namer,
            saw=self.saw,
            forgotten=self.forget,
        )
        self.controller = Controller(
            "raycluster", self.reconciler.reconcile, clock=clock, keys=self.keys, workers=options.workers
        )

    async def follow(self) -> None:
        """Know what there is, until cancelled; dying pods on dead nodes count as dead where nodes may be read."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(room.follow_all((*self.streams, *self.optional_streams)))
            tasks.create_task(self._ring_lost())

    def start_over(self) -> None:
        """Forget what an earlier term had in flight, and what it was told."""
        self._wires.acting.clear()
        self._wires.reading.clear()
        self._wires.unwatched.clear()

    # --- ringing -----------------------------------------------------------------------------------------------------

    def _on_child(self, old: PodView | ServiceView | None, new: PodView | ServiceView | None) -> None:
        for key in {view.cluster_key for view in (old, new) if view is not None}:
            self.controller.ring_soon(key)

    def _on_node(self, old: NodeView | None, new: NodeView | None) -> None:
        """A node came or went: its dying pods count, or count no more."""
        self.dead_nodes.note(old, new)
        node = new or old
        if node is not None and has_readiness_changed(old, new):
            self._ring_dying({node.name})

    def _ring_dying(self, nodes: Collection[str]) -> None:
        for key in {pod.cluster_key for pod in self.pods.all() if pod.is_terminating and pod.node_name in nodes}:
            self.controller.ring_soon(key)

    async def _ring_lost(self) -> None:
        """No news come of a Node that was deleted before nodes could be listed."""
        await self.nodes.wait_synced()
        self._ring_dying(self.dead_nodes.unready(self.pods.all()))
        await self.dead_nodes.follow(self._ring_dying)

    # --- wiring ----------------------------------------------------------------------------------------------------

    def _build_wires(self, config: ClusterConfig) -> Wires:
        client, clock = self._client, self._clock
        pods_in_flight = room.build_overlay(clock, Reader(decode_pod, pod_from_manifest), self.pods)
        services_in_flight = room.build_overlay(
            clock, Reader(decode_service, service_from_manifest), self.services, self.headless_services
        )
        return Wires(
            reading=LiveReader(client, RAYCLUSTERS, clock=clock),
            children=Informed(self),
            pods_in_flight=pods_in_flight,
            services_in_flight=services_in_flight,
            acting=Acting(
                client,
                clock=clock,
                overlays={SERVICES: services_in_flight, PODS: pods_in_flight},
                is_crowded=self.is_crowded,
            ),
            writing=StatusWriting(client, RAYCLUSTERS, clock=clock, controller="raycluster", saw=self.saw),
            unwatched=Unwatched(client, clock=clock, resync_s=config.resync_s),
            quotas=QuotaLookup(client, clock=clock),
            telling=Telling(self.recorder, clock=clock),
        )


class Informed:
    """The informers of a room as a reconciler asks them."""

    def __init__(self, asked: RayClusterRoom) -> None:
        self._room = asked

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
        return self._room.version_of(key)

    def relist_clusters(self) -> None:
        """Have RayClusters listed again, soon."""
        self._room.objects.relist()

    def unready_nodes(self, key: Key) -> frozenset[str]:
        """Nodes of that cluster's pods that are not Ready or are gone."""
        return self._room.dead_nodes.unready(self._room.pods.by_index(key))


def _cluster_of(view: PodView | ServiceView) -> Key:
    return view.cluster_key
