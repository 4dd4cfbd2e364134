"""What does a running cluster hold that a plan depends on?

Takes a kubeconfig (or a pod's service account) and lists nodes, pods, ResourceQuotas, PriorityClasses and TrainingJobs,
once each; gives the same `Snapshot` as a file would. Reads only. Nodes, pods and jobs have to be readable, else
`NoSnapshot` says in one line what is missing; quotas and PriorityClasses are left out with a remark. Called by plan.py.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from pydantic import ValidationError

from raytide.api import meta
from raytide.api.capacity import (
    decode_capacity_node,
    decode_capacity_pod,
    decode_capacity_quota,
    decode_priority_class,
)
from raytide.api.errors import Refused, Unavailable
from raytide.api.meta import Resource
from raytide.api.quantity import QuantityError
from raytide.api.trainingjob import TrainingJob
from raytide.cli.planning.objects import PRIORITY_CLASSES, Snapshot, validation_trouble
from raytide.kube.access import NotConnected
from raytide.kube.client import Client
from raytide.kube.connect import find_access
from raytide.runtime.clock import Clock

T = TypeVar("T")


class NoSnapshot(Exception):  # noqa: N818 - a sentence for the user
    """The cluster cannot be asked, or does not tell enough; the message is one line."""


async def read_cluster(kubeconfig: Path | None, context: str | None) -> tuple[Snapshot, str]:
    """What is there now, and the namespace that the kubeconfig means by default; raises NoSnapshot."""
    try:
        access = await find_access(kubeconfig, context=context)
        transport = await access.open_transport()
    except NotConnected as error:
        raise NoSnapshot(str(error)) from error
    try:
        return await Reader(Client(transport, clock=Clock(), timeout_s=30.0)).snapshot(), access.namespace or "default"
    finally:
        await transport.close()


class Reader:
    """Lists one kind after the other, and remembers what it could not read."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._remarks: list[str] = []
        self._unreadable: list[tuple[str, str, str]] = []

    async def snapshot(self) -> Snapshot:
        """Everything; the jobs first, so that a pod of a job that began meanwhile is no stranger's."""
        jobs = await self._jobs()
        return Snapshot(
            jobs=jobs,
            pods=await self._listed(meta.PODS, decode_capacity_pod),
            nodes=await self._listed(meta.NODES, decode_capacity_node),
            quotas=await self._listed(meta.RESOURCE_QUOTAS, decode_capacity_quota, is_needed=False),
            priority_classes=await self._listed(PRIORITY_CLASSES, decode_priority_class, is_needed=False),
            is_live=True,
            unreadable=tuple(self._unreadable),
            remarks=tuple(self._remarks),
        )

    async def _jobs(self) -> tuple[TrainingJob, ...]:
        found = []
        for obj in await self._listed(meta.TRAININGJOBS, msgspec.json.decode):
            try:
                found.append(TrainingJob.parse(obj))
            except ValidationError as error:
                metadata = obj["metadata"]
                self._unreadable.append((metadata.get("namespace", ""), metadata["name"], validation_trouble(error)))
        return tuple(found)

    async def _listed(
        self, resource: Resource, read: Callable[[msgspec.Raw], Any], *, is_needed: bool = True
    ) -> tuple[Any, ...]:
        try:
            return tuple([read(item) async for page in self._client.pages(resource) for item in page.items])
        except Refused as refused:
            if refused.is_not_found and resource is meta.TRAININGJOBS:
                self._remarks.append("this cluster has no TrainingJobs: their CRD is not installed")
                return ()
            if is_needed:
                raise NoSnapshot(f"{resource.plural} cannot be listed: {refused}") from refused
            self._remarks.append(f"{resource.plural} are left out: {refused}")
            return ()
        except Unavailable as trouble:
            raise NoSnapshot(f"{resource.plural} cannot be listed: {trouble}") from trouble
        except (msgspec.MsgspecError, QuantityError) as error:
            raise NoSnapshot(f"{resource.plural}: one of them cannot be read: {error}") from error
