"""RayCluster controller: informers, in-flight overlays, the reconciler and its workers, wired over one API client.

It decides nothing. Informers run all the time; everything that writes runs only while this process is the leader (D10).
Started by manager/main.py, and by simulations without kopf, sockets or threads (D3, D4, D11).
"""

import asyncio
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from raytide.api import constants
from raytide.api.config import ClusterConfig
from raytide.api.meta import NODES, PODS, RAYCLUSTERS, SERVICES, Key
from raytide.api.node import NodeView, decode_node, has_readiness_changed
from raytide.api.pod import PodView, decode_pod, pod_from_manifest
from raytide.api.service import ServiceView, decode_service, service_from_manifest
from raytide.controller import base
from raytide.controller.action_runner import ActionRunner
from raytide.controller.controller import ReconcileLoop
from raytide.controller.event_correlator import EventCorrelator
from raytide.controller.expectations import ViewDecoder
from raytide.controller.read_live import LiveReader
from raytide.controller.status_writer import StatusWriter
from raytide.kube.client import Client
from raytide.kube.informer import Informer
from raytide.kube.nodes import DeadNodes
from raytide.raycluster.manifests.names import Namer
from raytide.raycluster.object_lookup import ObjectLookupCache
from raytide.raycluster.quota_lookup import QuotaLookup
from raytide.raycluster.reconciler import Dependencies, RayClusterReconciler
from raytide.runtime.clock import Clock

CONTROLLER_NAME: Final = "raycluster-controller"
"""KubeRay's reportingController (RC §6.1)."""
SUFFIX_LENGTH: Final = 5
SUFFIXES: Final = len(constants.REPLICA_ALPHABET) ** SUFFIX_LENGTH
"""The number of suffixes: one random number is drawn per name, not one per letter."""


def random_name(prefix: str) -> str:
    """A new object name: the prefix and five random characters (D15)."""
    number, letters = secrets.randbelow(SUFFIXES), ""
    for _ in range(SUFFIX_LENGTH):
        number, letter = divmod(number, len(constants.REPLICA_ALPHABET))
        letters += constants.REPLICA_ALPHABET[letter]
    return prefix + letters


@dataclass(frozen=True, slots=True)
class RayClusterControllerOptions(base.ControllerOptions):
    """Options of the RayCluster controller."""

    namer: Namer = field(default=random_name)


class RayClusterController(base.BaseController):
    """The RayCluster controller with its informers; its life cycle is that of controller/base.py."""

    def __init__(
        self, client: Client, *, clock: Clock, config: ClusterConfig, options: RayClusterControllerOptions
    ) -> None:
        super().__init__(client, RAYCLUSTERS, clock=clock, controller_name=CONTROLLER_NAME, options=options)
        children = partial(self._informer, index=_cluster_of, on_change=self._on_child)
        services = partial(children, SERVICES, decoder=decode_service)
        ray_pods = f"{constants.CLUSTER_LABEL},{constants.NODE_TYPE_LABEL}"
        self.pods: Informer[PodView] = children(
            PODS, decoder=decode_pod, label_selector=ray_pods, on_change=self._on_pod
        )
        self.services: Informer[ServiceView] = services(label_selector=constants.CLUSTER_LABEL)
        self.headless_services: Informer[ServiceView] = services(
            label_selector=constants.HEADLESS_WORKER_SERVICE_LABEL, name="headless-services"
        )
        """These services carry only this label (RC:HL-2), so one selector cannot match them and the others."""
        self.streams: tuple[Informer[Any], ...] = (self.objects, self.pods, self.services, self.headless_services)
        self.nodes: Informer[NodeView] = self._seen_by_all(
            NODES,
            decoder=decode_node,
            on_change=self._on_node,
            if_forbidden="terminating pods on dead nodes count until they are deleted",
        )
        self.optional_streams = (self.nodes,)
        self.dead_nodes = DeadNodes(self.nodes)
        self._deps = self._build_dependencies()
        self.reconciler = RayClusterReconciler(
            self._deps,
            clock=clock,
            config=config,
            namer=options.namer,
            ignore_resource_version=self.ignore_resource_version,
            forgotten=self.forget,
        )
        self.reconcile_loop = ReconcileLoop(
            "raycluster", self.reconciler.reconcile, clock=clock, keys=self.keys, workers=options.workers
        )

    async def run_informers(self) -> None:
        """Run the informers until cancelled; nodes are optional: without access to them, no node counts as dead."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(base.run_all((*self.streams, *self.optional_streams)))
            tasks.create_task(self._enqueue_lost())

    def reset_for_new_term(self) -> None:
        """Drop in-flight writes and cached answers of an earlier leadership term."""
        self._deps.runner.clear()
        self._deps.live_reader.clear()
        self._deps.lookups.clear()

    # --- enqueueing --------------------------------------------------------------------------------------------------

    def _on_child(self, old: PodView | ServiceView | None, new: PodView | ServiceView | None) -> None:
        for key in {view.cluster_key for view in (old, new) if view is not None}:
            self.reconcile_loop.enqueue_coalesced(key)

    def _on_pod(self, old: PodView | None, new: PodView | None) -> None:
        self.dead_nodes.note_pod(old, new)
        self._on_child(old, new)

    def _on_node(self, old: NodeView | None, new: NodeView | None) -> None:
        """Enqueue the clusters with terminating pods on that node if its readiness has changed."""
        self.dead_nodes.note(new)
        node = new or old
        if node is not None and has_readiness_changed(old, new):
            self._enqueue_on_node_loss({node.name})

    def _enqueue_on_node_loss(self, nodes: Collection[str]) -> None:
        for key in {pod.cluster_key for pod in self.pods.all() if pod.is_terminating and pod.node_name in nodes}:
            self.reconcile_loop.enqueue_coalesced(key)

    async def _enqueue_lost(self) -> None:
        """Enqueue for nodes deleted before the first list: they have no watch event."""
        await self.nodes.wait_synced()
        self._enqueue_on_node_loss(self.dead_nodes.unready(self.pods.all()))
        await self.dead_nodes.run(self._enqueue_on_node_loss)

    # --- wiring ----------------------------------------------------------------------------------------------------

    def _build_dependencies(self) -> Dependencies:
        client, clock = self._client, self._clock
        pods_in_flight = base.build_overlay(clock, ViewDecoder(decode_pod, pod_from_manifest), self.pods)
        services_in_flight = base.build_overlay(
            clock, ViewDecoder(decode_service, service_from_manifest), self.services, self.headless_services
        )
        return Dependencies(
            live_reader=LiveReader(client, RAYCLUSTERS, clock=clock),
            children=InformerLister(self),
            pods_in_flight=pods_in_flight,
            services_in_flight=services_in_flight,
            runner=ActionRunner(
                client,
                clock=clock,
                overlays={SERVICES: services_in_flight, PODS: pods_in_flight},
                is_crowded=self.has_concurrent_passes,
            ),
            status_writer=StatusWriter(
                client,
                RAYCLUSTERS,
                clock=clock,
                controller="raycluster",
                ignore_resource_version=self.ignore_resource_version,
            ),
            lookups=ObjectLookupCache(client, clock=clock),
            quotas=QuotaLookup(client, clock=clock),
            events=EventCorrelator(self.recorder, clock=clock),
        )


class InformerLister:
    """The controller's informers as listers for the reconciler."""

    def __init__(self, asked: RayClusterController) -> None:
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
        """The resourceVersion of the RayCluster in the informer cache."""
        return self._room.version_of(key)

    def relist_clusters(self) -> None:
        """Ask the informer for a new list of RayClusters."""
        self._room.objects.relist()

    def unready_nodes(self, key: Key) -> frozenset[str]:
        """Nodes of that cluster's pods that are not Ready or are gone."""
        return self._room.dead_nodes.unready(self._room.pods.by_index(key))


def _cluster_of(view: PodView | ServiceView) -> Key:
    return view.cluster_key
