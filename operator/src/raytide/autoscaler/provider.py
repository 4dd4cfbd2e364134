"""What does Kubernetes say about our cluster, and how is an order given?

The RayCluster and its pods are each followed by a watch, so that no tick lists or reads anything (PF:P9, SC:S17); where the
Role has no watch on the RayCluster, as under KubeRay, a tick reads it by one GET. A JSON patch goes out as it was planned,
and comes back as one of three outcomes; nothing is ever repeated here, since the next tick decides afresh and writes
absolute numbers (B-4, B-25). Called by loop.py; rules AS §4.1, RC §12.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from raytide.api import names
from raytide.api.errors import Refused, Unavailable
from raytide.api.meta import PODS, Key, Manifest, Resource
from raytide.api.pod import PodView, decode_pod
from raytide.autoscaler.ordering.orders import Operation
from raytide.kube.client import Client, PatchKind
from raytide.kube.informer import Informer
from raytide.kube.reflector import version_number
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

FORBIDDEN_S: Final = 300.0
"""How often the watch of the RayCluster is asked for while the Role lacks the right: Roles are seldom changed (FD:AS-A16)."""
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

    - `cluster` is the object as the watch shows it, never older than a write of ours or an earlier answer; None when it is
      gone. While nothing follows it, or a patch did not come back as written, it is read. Raises `Unavailable` or `Refused`.
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
        self._known = 0
        """The newest resourceVersion that a GET or a patch of ours was answered with."""
        self._must_read = False
        """A patch did not come back as written: what the watch shows may be older than what stood in its way."""
        self._clusters = Informer[Manifest](
            client,
            self._resource,
            clock=clock,
            decoder=msgspec.json.decode,
            field_selector=f"metadata.name={key.name}",
            namespaces=(key.namespace,),
            if_forbidden="each turn reads the RayCluster",
            forbidden_s=FORBIDDEN_S,
        )
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
        """Follow the pods and the RayCluster until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pods.run())
            tasks.create_task(self._clusters.run())

    async def cluster(self) -> Manifest | None:
        """The RayCluster, from memory where that is as good as reading it."""
        followed = self._clusters.get(*self.key) if self._clusters.is_following else None
        if followed is not None and not self._must_read and _version(followed) >= self._known:
            return followed
        read = await self._client.get(self._resource, self.key)
        self._must_read, self._known = False, _version(read)
        return read

    async def is_current(self, cluster: Manifest) -> bool:
        """Whether the API server has no other spec than this; the watch may be late. Raises `Unavailable` or `Refused`."""
        read = await self._client.get(self._resource, self.key)
        same = ("uid", "generation")
        return read is not None and all(read["metadata"].get(each) == cluster["metadata"].get(each) for each in same)

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
        except (Refused, Unavailable) as trouble:
            self._must_read = True
            return Submitted(_outcome(trouble))
        self._known = _version(cluster)
        return Submitted(Written.YES, cluster)


def _outcome(trouble: Refused | Unavailable) -> Written:
    """What became of a patch that did not come back as written; says so."""
    if isinstance(trouble, Unavailable):
        log.warning("it is not known whether the patch was written, deciding anew: %s", trouble)
        return Written.UNKNOWN
    if trouble.status in TEST_FAILED:
        log.info("the RayCluster has changed meanwhile, deciding anew: %s", trouble)
        return Written.OUTRUN
    log.warning("the API server refuses the patch: %s (%d %s)", trouble, trouble.status, trouble.reason)
    return Written.REFUSED


def _version(cluster: Manifest | None) -> int:
    """Its resourceVersion; 0 for none."""
    return 0 if cluster is None else version_number(cluster["metadata"].get("resourceVersion", ""))
