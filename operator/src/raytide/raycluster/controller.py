"""RayCluster controller: informers, in-flight overlays, the reconciler and its workers, wired over one API client.

It decides nothing. Informers run all the time; everything that writes runs only while this process is the leader (D10).
Started by manager/main.py, and by simulations without kopf, sockets or threads (D3, D4, D11).
"""

import base64
import secrets
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Final

from raytide.api import constants
from raytide.api.config import ClusterConfig
from raytide.api.meta import PODS, RAYCLUSTERS, SERVICES
from raytide.api.pod import PodView, decode_pod, pod_from_manifest
from raytide.api.service import ServiceView, decode_service, service_from_manifest
from raytide.controller.base import BaseController, ControllerOptions
from raytide.controller.child_lister import ChildLister
from raytide.controller.expectations import ViewDecoder
from raytide.kube.client import Client
from raytide.kube.informer import Informer
from raytide.raycluster.manifests.names import Namer
from raytide.raycluster.metrics import WorkerMeasures
from raytide.raycluster.object_lookup import ObjectLookupCache
from raytide.raycluster.quota_lookup import QuotaLookup
from raytide.raycluster.reconciler import RayClusterReconciler, RayClusterSources
from raytide.runtime.clock import Clock

CONTROLLER_NAME: Final = "raycluster-controller"
"""KubeRay's reportingController (RC §6.1)."""
TOKEN_BYTES: Final = 32
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


def draw_token() -> str:
    """A new token of 32 random bytes for a cluster with token authentication (RC:AU-2)."""
    return base64.b64encode(secrets.token_bytes(TOKEN_BYTES)).decode()


@dataclass(frozen=True, slots=True)
class RayClusterControllerOptions(ControllerOptions):
    """Options of the RayCluster controller."""

    namer: Namer = field(default=random_name)


class RayClusterController(BaseController):
    """The RayCluster controller with its informers; its life cycle is that of controller/base.py."""

    def __init__(
        self, client: Client, *, clock: Clock, config: ClusterConfig, options: RayClusterControllerOptions
    ) -> None:
        super().__init__(
            client,
            RAYCLUSTERS,
            name="raycluster",
            clock=clock,
            controller_name=CONTROLLER_NAME,
            options=options,
            owner_of=attrgetter("cluster_key"),
            if_nodes_forbidden="terminating pods on dead nodes count until they are deleted",
        )
        services = partial(self._children, SERVICES, decoder=decode_service)
        ray_pods = f"{constants.CLUSTER_LABEL},{constants.NODE_TYPE_LABEL}"
        self.pods: Informer[PodView] = self._children(
            PODS, decoder=decode_pod, label_selector=ray_pods, on_change=self._on_pod
        )
        self.services: Informer[ServiceView] = services(label_selector=constants.CLUSTER_LABEL)
        self.headless_services: Informer[ServiceView] = services(
            label_selector=constants.HEADLESS_WORKER_SERVICE_LABEL, name="headless-services"
        )
        """These services carry only this label (RC:HL-2), so one selector cannot match them and the others."""
        self.streams = (self.objects, self.pods, self.services, self.headless_services)
        self._lookups = ObjectLookupCache(client, clock=clock)
        sources = RayClusterSources(
            pods=ChildLister(clock, ViewDecoder(decode_pod, pod_from_manifest, attrgetter("identity")), self.pods),
            services=ChildLister(
                clock, ViewDecoder(decode_service, service_from_manifest), self.services, self.headless_services
            ),
            unready_nodes=self.unready_nodes_of,
            lookups=self._lookups,
            quotas=QuotaLookup(client, clock=clock),
        )
        deps = self._build_dependencies((sources.services, sources.pods))
        self._measures = WorkerMeasures()
        self.reconciler = RayClusterReconciler(
            deps, sources, config=config, namer=options.namer, draw_token=draw_token, measures=self._measures
        )
        self.reconcile_loop.reconcile = self.reconciler.reconcile

    def reset_for_new_term(self) -> None:
        """Drop in-flight writes and cached answers of an earlier leadership term."""
        super().reset_for_new_term()
        self._lookups.clear()

    async def run_reconcilers(self) -> None:
        """Run one leadership term; metrics of workers are exposed by the leader only."""
        try:
            await super().run_reconcilers()
        finally:
            self._measures.clear()
