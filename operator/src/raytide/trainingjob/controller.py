"""TrainingJob controller: informers, in-flight overlays, the reconciler and its workers, wired over one API client.

It decides nothing. Its informers are those for jobs, pods, services, ConfigMaps and nodes. Children are watched only
once the API server serves the kind, so that a cluster without TrainingJobs costs one request every 30 s and needs no
permissions for them. Started by manager/main.py, and by simulations without kopf, sockets or threads (D3, D4, D6, D11).
"""

import asyncio
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Final

from raytide.api.config import JobConfig
from raytide.api.meta import CONFIG_MAPS, NODES, PODS, SERVICES, TRAININGJOBS, Key, Resource
from raytide.api.node import NodeView, decode_node, has_readiness_changed
from raytide.api.trainingjob_constants import JOB_LABEL
from raytide.api.trainingjob_object import JobObject, decode_job_object, job_object_from_manifest
from raytide.api.trainingjob_pod import JobPod, decode_job_pod, job_pod_from_manifest
from raytide.controller import base
from raytide.controller.action_runner import ActionRunner
from raytide.controller.base import ControllerOptions
from raytide.controller.controller import ReconcileLoop
from raytide.controller.event_correlator import EventCorrelator
from raytide.controller.expectations import Expectations, ViewDecoder
from raytide.controller.read_live import LiveReader
from raytide.controller.status_writer import StatusWriter
from raytide.kube.client import Client
from raytide.kube.informer import Informer
from raytide.kube.nodes import DeadNodes
from raytide.runtime.clock import Clock
from raytide.trainingjob.metrics import Measures
from raytide.trainingjob.reconciler import Dependencies, TrainingJobReconciler

CONTROLLER_NAME: Final = "trainingjob-controller"
"""reportingController of its events."""


class TrainingJobController(base.BaseController):
    """The TrainingJob controller with its informers; its life cycle is that of controller/base.py."""

    def __init__(self, client: Client, *, clock: Clock, config: JobConfig, options: ControllerOptions) -> None:
        super().__init__(client, TRAININGJOBS, clock=clock, controller_name=CONTROLLER_NAME, options=options)
        children = partial(self._informer, index=_job_of, on_change=self._on_child, label_selector=JOB_LABEL)
        objects = partial(children, decoder=decode_job_object)
        self.pods: Informer[JobPod] = children(
            PODS, decoder=decode_job_pod, name="trainingjob-pods", on_change=self._on_pod
        )
        self.services: Informer[JobObject] = objects(SERVICES, name="trainingjob-services")
        self.config_maps: Informer[JobObject] = objects(CONFIG_MAPS, name="trainingjob-configmaps")
        self.streams: tuple[Informer[Any], ...] = (self.objects, self.pods, self.services, self.config_maps)
        self.nodes: Informer[NodeView] = self._seen_by_all(
            NODES,
            decoder=decode_node,
            on_change=self._on_node,
            name="trainingjob-nodes",
            if_forbidden="a terminating pod on a dead node is replaced only when it is gone",
        )
        self.optional_streams = (self.nodes,)
        self.dead_nodes = DeadNodes(self.nodes)
        self.measures = Measures(clock)
        self._deps = self._build_dependencies()
        self.reconciler = TrainingJobReconciler(
            self._deps,
            clock=clock,
            config=config,
            ignore_resource_version=self.ignore_resource_version,
            forgotten=self.forget,
        )
        self.reconcile_loop = ReconcileLoop(
            "trainingjob", self.reconciler.reconcile, clock=clock, keys=self.keys, workers=options.workers
        )

    async def run_informers(self) -> None:
        """Run the informers until cancelled; those of children start once the API server serves jobs."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(base.run_all([self.objects]))
            await self.objects.wait_synced()
            tasks.create_task(base.run_all([self.pods, self.services, self.config_maps, *self.optional_streams]))
            tasks.create_task(self._enqueue_lost())

    async def run_reconcilers(self) -> None:
        """Run one leadership term; metrics of jobs are exposed by the leader only."""
        try:
            await super().run_reconcilers()
        finally:
            self.measures.clear()

    def reset_for_new_term(self) -> None:
        """Drop in-flight writes and cached reads of an earlier leadership term."""
        self._deps.runner.clear()
        self._deps.live_reader.clear()

    # --- enqueueing --------------------------------------------------------------------------------------------------

    def _on_child(self, old: JobPod | JobObject | None, new: JobPod | JobObject | None) -> None:
        for key in {view.job_key for view in (old, new) if view is not None}:
            self.reconcile_loop.enqueue_coalesced(key)

    def _on_pod(self, old: JobPod | None, new: JobPod | None) -> None:
        self.dead_nodes.note_pod(old, new)
        self._on_child(old, new)

    def _on_node(self, old: NodeView | None, new: NodeView | None) -> None:
        """Enqueue the jobs with terminating pods on that node if its readiness has changed."""
        self.dead_nodes.note(new)
        node = new or old
        if node is not None and has_readiness_changed(old, new):
            self._enqueue_on_node_loss({node.name})

    def _enqueue_on_node_loss(self, nodes: Collection[str]) -> None:
        for key in {pod.job_key for pod in self.pods.all() if pod.is_terminating and pod.node_name in nodes}:
            self.reconcile_loop.enqueue_coalesced(key)

    async def _enqueue_lost(self) -> None:
        """Enqueue for nodes deleted before the first list: they have no watch event."""
        await self.nodes.wait_synced()
        self._enqueue_on_node_loss(self.dead_nodes.unready(self.pods.all()))
        await self.dead_nodes.run(self._enqueue_on_node_loss)

    # --- wiring ------------------------------------------------------------------------------------------------------

    def _build_dependencies(self) -> Dependencies:
        client, clock = self._client, self._clock
        reader = ViewDecoder(decode_job_object, job_object_from_manifest)
        pods_in_flight = base.build_overlay(clock, ViewDecoder(decode_job_pod, job_pod_from_manifest), self.pods)
        services_in_flight = base.build_overlay(clock, reader, self.services)
        config_maps_in_flight = base.build_overlay(clock, reader, self.config_maps)
        overlays: dict[Resource, Expectations[Any]] = {
            SERVICES: services_in_flight,
            CONFIG_MAPS: config_maps_in_flight,
            PODS: pods_in_flight,
        }
        return Dependencies(
            live_reader=LiveReader(client, TRAININGJOBS, clock=clock),
            children=InformerLister(self),
            pods_in_flight=pods_in_flight,
            services_in_flight=services_in_flight,
            config_maps_in_flight=config_maps_in_flight,
            runner=ActionRunner(client, clock=clock, overlays=overlays, is_crowded=self.has_concurrent_passes),
            status_writer=StatusWriter(
                client,
                TRAININGJOBS,
                clock=clock,
                controller="trainingjob",
                ignore_resource_version=self.ignore_resource_version,
            ),
            events=EventCorrelator(self.recorder, clock=clock),
            measures=self.measures,
        )


class InformerLister:
    """The controller's informers as listers for the reconciler."""

    def __init__(self, asked: TrainingJobController) -> None:
        self._room = asked

    def pods(self, key: Key) -> Sequence[JobPod]:
        """Pods whose label names that job."""
        return self._room.pods.by_index(key)

    def services(self, key: Key) -> Sequence[JobObject]:
        """Services whose label names that job."""
        return self._room.services.by_index(key)

    def config_maps(self, key: Key) -> Sequence[JobObject]:
        """ConfigMaps whose label names that job."""
        return self._room.config_maps.by_index(key)

    def job_version(self, key: Key) -> int | None:
        """The resourceVersion of the TrainingJob in the informer cache."""
        return self._room.version_of(key)

    def relist_jobs(self) -> None:
        """Ask the informer for a new list of TrainingJobs."""
        self._room.objects.relist()

    def unready_nodes(self, key: Key) -> frozenset[str]:
        """Nodes of that job's pods that are not Ready or are gone."""
        return self._room.dead_nodes.unready(self._room.pods.by_index(key))


def _job_of(view: JobPod | JobObject) -> Key:
    return view.job_key
