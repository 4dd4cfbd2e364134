"""TrainingJob controller: informers, in-flight overlays, the reconciler and its workers, wired over one API client.

It decides nothing. Its informers are those for jobs, pods, services, ConfigMaps and nodes. Children are watched only
once the API server serves the kind, so that a cluster without TrainingJobs costs one request every 30 s and needs no
permissions for them. Started by manager/main.py, and by simulations without kopf, sockets or threads (D3, D4, D6, D11).
"""

import asyncio
from functools import partial
from operator import attrgetter
from typing import Final

from raytide.api.config import JobConfig
from raytide.api.meta import CONFIG_MAPS, PODS, SERVICES, TRAININGJOBS
from raytide.api.trainingjob_constants import JOB_LABEL
from raytide.api.trainingjob_object import JobObject, decode_job_object, job_object_from_manifest
from raytide.api.trainingjob_pod import JobPod, decode_job_pod, job_pod_from_manifest
from raytide.controller.base import BaseController, ControllerOptions, run_all
from raytide.controller.child_lister import ChildLister
from raytide.controller.expectations import ViewDecoder
from raytide.kube.client import Client
from raytide.kube.informer import Informer
from raytide.runtime.clock import Clock
from raytide.trainingjob.metrics import Measures
from raytide.trainingjob.reconciler import TrainingJobReconciler, TrainingJobSources

CONTROLLER_NAME: Final = "trainingjob-controller"
"""reportingController of its events."""


class TrainingJobController(BaseController):
    """The TrainingJob controller with its informers; its life cycle is that of controller/base.py."""

    def __init__(self, client: Client, *, clock: Clock, config: JobConfig, options: ControllerOptions) -> None:
        super().__init__(
            client,
            TRAININGJOBS,
            name="trainingjob",
            clock=clock,
            controller_name=CONTROLLER_NAME,
            options=options,
            owner_of=attrgetter("job_key"),
            node_informer="trainingjob-nodes",
            if_nodes_forbidden="a terminating pod on a dead node is replaced only when it is gone",
        )
        children = partial(self._children, label_selector=JOB_LABEL)
        objects = partial(children, decoder=decode_job_object)
        self.pods: Informer[JobPod] = children(
            PODS, decoder=decode_job_pod, name="trainingjob-pods", on_change=self._on_pod
        )
        self.services: Informer[JobObject] = objects(SERVICES, name="trainingjob-services")
        self.config_maps: Informer[JobObject] = objects(CONFIG_MAPS, name="trainingjob-configmaps")
        self.streams = (self.objects, self.pods, self.services, self.config_maps)
        self.measures = Measures(clock)
        object_views = ViewDecoder(decode_job_object, job_object_from_manifest)
        sources = TrainingJobSources(
            pods=ChildLister(
                clock, ViewDecoder(decode_job_pod, job_pod_from_manifest, attrgetter("identity")), self.pods
            ),
            services=ChildLister(clock, object_views, self.services),
            config_maps=ChildLister(clock, object_views, self.config_maps),
            unready_nodes=self.unready_nodes_of,
        )
        deps = self._build_dependencies((sources.services, sources.config_maps, sources.pods))
        self.reconciler = TrainingJobReconciler(deps, sources, config=config, measures=self.measures)
        self.reconcile_loop.reconcile = self.reconciler.reconcile

    async def run_informers(self) -> None:
        """Run the informers until cancelled; those of children start once the API server serves jobs."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(run_all([self.objects]))
            await self.objects.wait_synced()
            tasks.create_task(run_all([self.pods, self.services, self.config_maps, *self.optional_streams]))
            tasks.create_task(self._enqueue_on_lost_nodes())

    async def run_reconcilers(self) -> None:
        """Run one leadership term; metrics of jobs are exposed by the leader only."""
        try:
            await super().run_reconcilers()
        finally:
            self.measures.clear()
