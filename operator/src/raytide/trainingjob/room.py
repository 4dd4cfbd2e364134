"""What runs, so that TrainingJobs are what their specs and their sizes say?

Ties the room together over one client: informers for jobs, pods, services, ConfigMaps and nodes, the overlays, the
reconciler and its workers. It decides nothing. Its children are looked for only once the API serves the kind, so that a
cluster without TrainingJobs pays one question every 30 s and needs no rights for them. Started by main.py, and by
simulations without kopf, sockets or threads (D3, D4, D6, D11).
"""

import asyncio
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Final

from raytide.api.config import JobConfig
from raytide.api.job_object import JobObject, decode_job_object, job_object_from_manifest
from raytide.api.job_pod import JobPod, decode_job_pod, job_pod_from_manifest
from raytide.api.meta import CONFIG_MAPS, NODES, PODS, SERVICES, TRAININGJOBS, Key, Resource
from raytide.api.node import NodeView, decode_node, has_readiness_changed
from raytide.api.training_names import JOB_LABEL
from raytide.kube import room
from raytide.kube.acting import Acting
from raytide.kube.client import Client
from raytide.kube.expectations import Expectations, Reader
from raytide.kube.informer import Informer
from raytide.kube.nodes import DeadNodes
from raytide.kube.reading import LiveReader
from raytide.kube.room import RoomOptions
from raytide.kube.status_writing import StatusWriting
from raytide.kube.telling import Telling
from raytide.runtime.clock import Clock
from raytide.runtime.controller import Controller
from raytide.trainingjob.controller import TrainingJobReconciler, Wires
from raytide.trainingjob.telling.measuring import Measures

CONTROLLER_NAME: Final = "trainingjob-controller"
"""Who the events say the controller is."""


class TrainingJobRoom(room.Room):
    """Everything that runs for TrainingJobs; lives as kube/room.py says."""

    def __init__(self, client: Client, *, clock: Clock, config: JobConfig, options: RoomOptions) -> None:
        super().__init__(client, TRAININGJOBS, clock=clock, controller_name=CONTROLLER_NAME, options=options)
        children = partial(self._informer, index=_job_of, on_change=self._on_child, label_selector=JOB_LABEL)
        objects = partial(children, decoder=decode_job_object)
        self.pods: Informer[JobPod] = children(PODS, decoder=decode_job_pod, name="trainingjob-pods")
        self.services: Informer[JobObject] = objects(SERVICES, name="trainingjob-services")
        self.config_maps: Informer[JobObject] = objects(CONFIG_MAPS, name="trainingjob-configmaps")
        self.streams: tuple[Informer[Any], ...] = (self.objects, self.pods, self.services, self.config_maps)
        self.nodes: Informer[NodeView] = self._seen_by_all(
            NODES,
            decoder=decode_node,
            on_change=self._on_node,
            name="trainingjob-nodes",
            if_forbidden="a dying pod on a dead node keeps its name until it is gone",
        )
        self.optional_streams = (self.nodes,)
        self.dead_nodes = DeadNodes(self.nodes)
        self.measures = Measures(clock)
        self._wires = self._build_wires()
        self.reconciler = TrainingJobReconciler(
            self._wires, clock=clock, config=config, saw=self.saw, forgotten=self.forget
        )
        self.controller = Controller(
            "trainingjob", self.reconciler.reconcile, clock=clock, keys=self.keys, workers=options.workers
        )

    async def follow(self) -> None:
        """Know what there is, until cancelled; children once the API serves jobs."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(room.follow_all([self.objects]))
            await self.objects.wait_synced()
            tasks.create_task(room.follow_all([self.pods, self.services, self.config_maps, *self.optional_streams]))
            tasks.create_task(self._ring_lost())

    async def lead(self) -> None:
        """One term; what is measured is the leader's to tell."""
        try:
            await super().lead()
        finally:
            self.measures.clear()

    def start_over(self) -> None:
        """Forget what an earlier term had in flight."""
        self._wires.acting.clear()
        self._wires.reading.clear()

    # --- ringing -----------------------------------------------------------------------------------------------------

    def _on_child(self, old: JobPod | JobObject | None, new: JobPod | JobObject | None) -> None:
        for key in {view.job_key for view in (old, new) if view is not None}:
            self.controller.ring_soon(key)

    def _on_node(self, old: NodeView | None, new: NodeView | None) -> None:
        """A node came or went: its dying pods are lost, or lost no more."""
        self.dead_nodes.note(old, new)
        node = new or old
        if node is not None and has_readiness_changed(old, new):
            self._ring_dying({node.name})

    def _ring_dying(self, nodes: Collection[str]) -> None:
        for key in {pod.job_key for pod in self.pods.all() if pod.is_terminating and pod.node_name in nodes}:
            self.controller.ring_soon(key)

    async def _ring_lost(self) -> None:
        """No news come of a Node that was deleted before nodes could be listed."""
        await self.nodes.wait_synced()
        self._ring_dying(self.dead_nodes.unready(self.pods.all()))
        await self.dead_nodes.follow(self._ring_dying)

    # --- wiring ------------------------------------------------------------------------------------------------------

    def _build_wires(self) -> Wires:
        client, clock = self._client, self._clock
        reader = Reader(decode_job_object, job_object_from_manifest)
        pods_in_flight = room.build_overlay(clock, Reader(decode_job_pod, job_pod_from_manifest), self.pods)
        services_in_flight = room.build_overlay(clock, reader, self.services)
        config_maps_in_flight = room.build_overlay(clock, reader, self.config_maps)
        overlays: dict[Resource, Expectations[Any]] = {
            SERVICES: services_in_flight,
            CONFIG_MAPS: config_maps_in_flight,
            PODS: pods_in_flight,
        }
        return Wires(
            reading=LiveReader(client, TRAININGJOBS, clock=clock),
            children=Informed(self),
            pods_in_flight=pods_in_flight,
            services_in_flight=services_in_flight,
            config_maps_in_flight=config_maps_in_flight,
            acting=Acting(client, clock=clock, overlays=overlays, is_crowded=self.is_crowded),
            writing=StatusWriting(client, TRAININGJOBS, clock=clock, controller="trainingjob", saw=self.saw),
            telling=Telling(self.recorder, clock=clock),
            measures=self.measures,
        )


class Informed:
    """The informers of a room as a reconciler asks them."""

    def __init__(self, asked: TrainingJobRoom) -> None:
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
        """The version of the TrainingJob that is known."""
        return self._room.version_of(key)

    def relist_jobs(self) -> None:
        """Have TrainingJobs listed again, soon."""
        self._room.objects.relist()

    def unready_nodes(self, key: Key) -> frozenset[str]:
        """Nodes of that job's pods that are not Ready or are gone."""
        return self._room.dead_nodes.unready(self._room.pods.by_index(key))


def _job_of(view: JobPod | JobObject) -> Key:
    return view.job_key
