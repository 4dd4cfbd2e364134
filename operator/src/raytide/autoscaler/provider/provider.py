"""Cloud provider for Kubernetes: RayCluster and pods as input, JSON patches as output.

The RayCluster and its pods are each followed by a watch, so that a tick needs no LIST or GET (PF:P9, SC:S17); if the
Role does not allow a watch on the RayCluster, as with KubeRay, a tick reads it by one GET. A JSON patch is sent once as
planned and has one of four outcomes; it is never retried here, since the next tick decides afresh and writes absolute
numbers (B-4, B-25). Called by loop.py; rules AS §4.1, RC §12.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from raytide.api import constants
from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.api.meta import PODS, Key, Manifest, Resource
from raytide.api.pod import PodView, decode_pod
from raytide.autoscaler.state.snapshot import Operation
from raytide.kube.client import Client, PatchKind
from raytide.kube.informer import Informer
from raytide.kube.reflector import version_number
from raytide.kube.shared_watch import SharedWatches
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

FORBIDDEN_S: Final = 300.0
"""Interval between attempts to watch the RayCluster while the Role forbids it: Roles rarely change (FD:AS-A16)."""
TEST_FAILED: Final = frozenset({409, 422})
"""Statuses for a concurrent change by another writer or a replaced object: not an error, the next tick decides again.
"""


class PatchResult(StrEnum):
    """Outcome of a patch."""

    APPLIED = "applied"
    CONFLICT = "conflict"
    """A `test` failed: the object has changed since it was read."""
    REJECTED = "rejected"
    """The API server rejected it for another reason, which is logged. The value is a label of a metric."""
    UNKNOWN = "unknown"
    """No answer: it may have been written."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """Outcome of one patch, and the resulting object if it was written."""

    patch_result: PatchResult
    cluster: Manifest | None = None


class Provider:
    """One RayCluster and its pods.

    - `cluster` is the object as the watch shows it, never older than this process's writes and reads; None if gone.
      A GET reads it while no watch is running or after a patch not reported as written; `ApiUnavailableError` or `ApiStatusError`.
    - `pods` are those with the cluster's label, including terminating ones, from the informer; check `is_synced` first.
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
        """The newest resourceVersion returned by a GET or patch of this process."""
        self._must_read = False
        """A patch was not reported as written: the watch may lag behind the conflicting change."""
        watches = SharedWatches(client, clock=clock, forbidden_s=FORBIDDEN_S)
        self._clusters = Informer[Manifest](
            watches,
            self._resource,
            decoder=msgspec.json.decode,
            field_selector=f"metadata.name={key.name}",
            namespaces=(key.namespace,),
            if_forbidden="each tick reads the RayCluster",
        )
        self._pods = Informer[PodView](
            watches,
            PODS,
            decoder=decode_pod,
            on_change=lambda _old, _new: on_pods_changed(),
            label_selector=f"{constants.CLUSTER_LABEL}={key.name}",
            namespaces=(key.namespace,),
        )

    async def run(self) -> None:
        """Watch the pods and the RayCluster until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pods.run())
            tasks.create_task(self._clusters.run())

    async def cluster(self) -> Manifest | None:
        """The RayCluster, from the informer if that is current, else by GET."""
        followed = self._clusters.get(*self.key) if self._clusters.is_following else None
        if followed is not None and not self._must_read and _version(followed) >= self._known:
            return followed
        read = await self._client.get(self._resource, self.key)
        self._must_read, self._known = False, _version(read)
        return read

    async def is_current(self, cluster: Manifest) -> bool:
        """Whether the spec on the API server is unchanged; the watch may lag. Raises `ApiUnavailableError` or `ApiStatusError`."""
        read = await self._client.get(self._resource, self.key)
        same = ("uid", "generation")
        return read is not None and all(read["metadata"].get(each) == cluster["metadata"].get(each) for each in same)

    async def wait_synced(self) -> None:
        """Return when the pods have been listed once."""
        await self._pods.wait_synced()

    def pods(self) -> tuple[PodView, ...]:
        """All pods, in the informer's order."""
        return tuple(self._pods.all())

    @property
    def is_synced(self) -> bool:
        """Whether the pods have been listed once."""
        return self._pods.is_synced

    @property
    def error(self) -> str:
        """Why the pod watch is not working; empty if it is."""
        return self._pods.error

    async def submit(self, patch: Sequence[Operation]) -> Submitted:
        """Send the patch once."""
        try:
            cluster = await self._client.patch(
                self._resource,
                self.key,
                list(patch),
                kind=PatchKind.JSON,
                field_manager=constants.AUTOSCALER_FIELD_MANAGER,
            )
        except (ApiStatusError, ApiUnavailableError) as error:
            self._must_read = True
            return Submitted(_outcome(error))
        self._known = _version(cluster)
        return Submitted(PatchResult.APPLIED, cluster)


def _outcome(error: ApiStatusError | ApiUnavailableError) -> PatchResult:
    """Outcome of a patch that was not reported as written; logs it."""
    if isinstance(error, ApiUnavailableError):
        log.warning("the result of the patch of the RayCluster is unknown, the next tick decides again: %s", error)
        return PatchResult.UNKNOWN
    if error.status in TEST_FAILED:
        log.info("conflict, the RayCluster has changed, the next tick decides again: %s", error)
        return PatchResult.CONFLICT
    log.warning("the API server rejected the patch of the RayCluster: %s (%s %s)", error, error.status, error.reason)
    return PatchResult.REJECTED


def _version(cluster: Manifest | None) -> int:
    """The resourceVersion as a number; 0 for none."""
    return 0 if cluster is None else version_number(cluster["metadata"].get("resourceVersion", ""))
