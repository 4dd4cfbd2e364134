"""What does Kubernetes say about our cluster, and how is an order given?

The RayCluster is read by one GET per tick, because its Role has no watch on it under KubeRay; its pods are followed by a
watch, so that no tick lists them (PF:P9). A JSON patch goes out as it was planned, and comes back as one of three
outcomes; nothing is ever repeated here, since the next tick decides afresh and writes absolute numbers (B-4, B-25). Called by
loop.py; rules AS §4.1, RC §12.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from raytide.api import names
from raytide.api.errors import Refused, Unavailable
from raytide.api.meta import PODS, Key, Manifest, Resource
from raytide.api.pod import PodView, decode_pod
from raytide.autoscaler.ordering.orders import Operation
from raytide.kube.client import Client, PatchKind
from raytide.kube.informer import Informer
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

TEST_FAILED: Final = frozenset({409, 422})
"""Somebody else was faster, or the object is another by now: not a fault, look again."""


class Written(StrEnum):
    """What became of a patch."""

    YES = "written"
    OUTRUN = "outrun"
    """A `test` failed: the object has changed since we read it."""
    REFUSED = "refused"
    """The API server says no for another reason, which the log has."""
    UNKNOWN = "unknown"
    """Nobody answered: it may have been written."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """The outcome of one patch, and the object it made if it was written."""

    written: Written
    cluster: Manifest | None = None


class Provider:
    """One RayCluster and its pods.

    - `cluster` is the object as it is now; None when it is gone. Raises `Unavailable` or `Refused`.
    - `pods` are those with the cluster's label, dying ones too, from memory; ask `is_synced` first.
    - `on_pods_changed` is called at every change of a pod.
    """

    def __init__(
        self,
        client: Client,
        key: Key,
        *,
        clock: Clock,
        on_pods_changed: Callable[[], None],
        api_version: str = "v1",
    ) -> None:
        self.key = key
        self._client = client
        self._resource = Resource("ray.io", api_version, "rayclusters", "RayCluster")
        self._pods = Informer[PodView](
            client,
            PODS,
            clock=clock,
            decoder=decode_pod,
            on_change=lambda _old, _new: on_pods_changed(),
            label_selector=f"{names.CLUSTER_LABEL}={key.name}",
            namespaces=(key.namespace,),
        )

    async def run(self) -> None:
        """Follow the pods until cancelled."""
        await self._pods.run()

    async def cluster(self) -> Manifest | None:
        """The RayCluster, read now."""
        return await self._client.get(self._resource, self.key)

    async def wait_synced(self) -> None:
        """Return when all pods have been seen once."""
        await self._pods.wait_synced()

    def pods(self) -> tuple[PodView, ...]:
        """All of them, oldest acquaintance first."""
        return tuple(self._pods.all())

    @property
    def is_synced(self) -> bool:
        """Whether all pods have been seen once."""
        return self._pods.is_synced

    @property
    def trouble(self) -> str:
        """What keeps us from following the pods, in words; empty when nothing does."""
        return self._pods.trouble

    async def submit(self, patch: Sequence[Operation]) -> Submitted:
        """Send it once."""
        try:
            cluster = await self._client.patch(
                self._resource,
                self.key,
                list(patch),
                kind=PatchKind.JSON,
                field_manager=names.AUTOSCALER_FIELD_MANAGER,
            )
        except Refused as refused:
            if refused.status in TEST_FAILED:
                log.info("the RayCluster has changed meanwhile, deciding anew: %s", refused)
                return Submitted(Written.OUTRUN)
            log.warning("the API server refuses the patch: %s (%d %s)", refused, refused.status, refused.reason)
            return Submitted(Written.REFUSED)
        except Unavailable as trouble:
            log.warning("it is not known whether the patch was written, deciding anew: %s", trouble)
            return Submitted(Written.UNKNOWN)
        return Submitted(Written.YES, cluster)
