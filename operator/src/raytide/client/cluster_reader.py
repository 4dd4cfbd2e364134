"""Snapshot of a running cluster: the objects that a plan depends on.

Takes a kubeconfig (or a pod's service account) and lists nodes, pods, ResourceQuotas, PriorityClasses and TrainingJobs,
and RayClusters if some are to be submitted, once each; returns the same `PlanInputs` as files do. Read-only. Nodes, pods and
jobs must be readable, else `SnapshotError` reports in one line what is missing; unreadable quotas, PriorityClasses and
RayClusters only cause a remark. Called by `raytide plan`, `raytide ui` and explained.py.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from pydantic import ValidationError

from raytide.api import meta
from raytide.api.base_model import faults_of
from raytide.api.capacity import (
    UNFINISHED_PODS,
    decode_capacity_node,
    decode_capacity_pod,
    decode_capacity_quota,
    decode_namespace,
    decode_priority_class,
)
from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.api.meta import Key, Resource
from raytide.api.object_metadata import Metadata
from raytide.api.quantity import QuantityError
from raytide.api.trainingjob import TrainingJob
from raytide.kube.client import Client
from raytide.kube.credentials import ClientConfigError
from raytide.kube.kubeconfig import load_client_config
from raytide.runtime.clock import Clock
from raytide.simulator.inputs import PlanInputs

T = TypeVar("T")


class _Named(msgspec.Struct, gc=False):
    metadata: Metadata


_names = msgspec.json.Decoder(_Named)


def _decode_key(document: msgspec.Raw) -> Key:
    metadata = _names.decode(document).metadata
    return Key(metadata.namespace, metadata.name)


class SnapshotError(Exception):
    """The cluster cannot be read or lacks required objects; the message is one line."""


async def read_cluster(
    kubeconfig: Path | None, context: str | None, *, has_tenants: bool, has_clusters: bool = False
) -> tuple[PlanInputs, str]:
    """The current objects, and the kubeconfig's default namespace; raises SnapshotError.

    Namespaces are read only with tenants, and RayClusters only if one is submitted.
    """
    try:
        config = await load_client_config(kubeconfig, context=context)
        transport = await config.open_transport()
    except ClientConfigError as error:
        raise SnapshotError(str(error)) from error
    try:
        client = Client(transport, clock=Clock(), timeout_s=30.0)
        reader = ClusterReader(client, has_tenants=has_tenants, has_clusters=has_clusters)
        return await reader.snapshot(), config.namespace or "default"
    finally:
        await transport.close()


class ClusterReader:
    """Lists the kinds one after another, and records what it could not read."""

    def __init__(
        self,
        client: Client,
        *,
        has_tenants: bool = False,
        has_clusters: bool = False,
        needs_jobs: bool = True,
        max_pods: int | None = None,
    ) -> None:
        self._client = client
        self._has_tenants, self._has_clusters, self._needs_jobs = has_tenants, has_clusters, needs_jobs
        self._max_pods = max_pods
        self._notes: list[str] = []
        self._ignored: dict[Resource, str] = {}
        self._unreadable: list[tuple[str, str, str]] = []

    async def snapshot(self) -> PlanInputs:
        """List everything, jobs before pods: pods that a listed job starts meanwhile count as its own."""
        jobs = await self._jobs()
        return PlanInputs(
            jobs=jobs,
            pods=await self._listed(meta.PODS, decode_capacity_pod),
            nodes=await self._listed(meta.NODES, decode_capacity_node),
            quotas=await self._listed(meta.RESOURCE_QUOTAS, decode_capacity_quota, is_needed=False),
            priority_classes=await self._listed(meta.PRIORITY_CLASSES, decode_priority_class, is_needed=False),
            namespaces=await self._listed(meta.NAMESPACES, decode_namespace) if self._has_tenants else (),
            clusters=frozenset(await self._clusters()),
            is_live=True,
            unreadable=tuple(self._unreadable),
            notes=tuple(self._notes),
            ignored=self._ignored,
        )

    async def _jobs(self) -> tuple[TrainingJob, ...]:
        found = []
        for obj in await self._listed(meta.TRAININGJOBS, msgspec.json.decode, is_needed=self._needs_jobs):
            try:
                found.append(TrainingJob.parse(obj))
            except ValidationError as error:
                metadata = obj["metadata"]
                self._unreadable.append((metadata.get("namespace", ""), metadata["name"], str(faults_of(error)[0])))
        return tuple(found)

    async def _clusters(self) -> tuple[Key, ...]:
        if not self._has_clusters:
            return ()
        return await self._listed(meta.RAYCLUSTERS, _decode_key, is_needed=False)

    async def _listed(
        self, resource: Resource, read: Callable[[msgspec.Raw], Any], *, is_needed: bool = True
    ) -> tuple[Any, ...]:
        found: list[Any] = []
        selector = UNFINISHED_PODS if resource is meta.PODS else ""
        try:
            async for page in self._client.pages(resource, field_selector=selector):
                found.extend(map(read, page.items))
                if resource is meta.PODS and self._max_pods is not None and len(found) >= self._max_pods:
                    self._ignored[resource] = f"only the first {len(found)} pods of the cluster were read"
                    break
            return tuple(found)
        except ApiStatusError as error:
            if error.is_not_found and resource is meta.TRAININGJOBS:
                self._notes.append("the CRD of TrainingJobs is not installed, so the plan has no jobs")
                return ()
            if is_needed:
                raise SnapshotError(f"{resource.plural} cannot be listed: {error}") from error
            self._ignored[resource] = f"{resource.plural} cannot be listed: {error}"
            self._notes.append(f"the plan ignores {resource.plural}, because they cannot be listed: {error}")
            return ()
        except ApiUnavailableError as error:
            raise SnapshotError(f"{resource.plural} cannot be listed: {error}") from error
        except (msgspec.MsgspecError, QuantityError) as error:
            raise SnapshotError(f"{resource.plural}: one object cannot be decoded: {error}") from error
