"""RayClusters and TrainingJobs as Python objects, with coroutines: `raytide.aio`.

A workload has a name, a namespace and a manifest. Each call opens a connection with the rights of the kubeconfig's user and closes
it; `wait` keeps one. manifests.py decides what is written, raytide/explain what a status means. `blocking.py` offers the same
without an event loop.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self, TypedDict, Unpack

import yaml

from raytide.api import constants
from raytide.api.conditions import is_condition_true
from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.api.meta import Key, Manifest
from raytide.client import manifests
from raytide.client.explained import explained
from raytide.client.outcome import (
    NotFoundError,
    Status,
    WaitTimeoutError,
    Why,
    WorkloadError,
    WorkloadFailedError,
    status_of,
)
from raytide.client.workload_reader import RESOURCES, ReadError, WorkloadReader, connected, is_name
from raytide.explain.model import RAYCLUSTER, TRAININGJOB
from raytide.explain.overview import lane_of
from raytide.kube.client import Client, PatchKind
from raytide.runtime.clock import Clock

FIELD_MANAGER: Final = "raytide-python"
POLL_S: Final = 1.0
CONFLICTS: Final = 5
"""How often a write is tried when another client changes the object at the same time."""


Until = Literal["ready", "finished", "deleted"]


class Connection(TypedDict, total=False):
    """Where the API server is: as kubectl's `--kubeconfig` and `--context`."""

    kubeconfig: str | Path | None
    context: str | None


class RayClusterArguments(manifests.RayClusterOptions, Connection, total=False):
    """Parameters of a RayCluster besides its name."""

    workers: int | Mapping[str, int] | None
    manifest: Manifest | None
    namespace: str | None


class TrainingJobArguments(manifests.TrainingJobOptions, Connection, total=False):
    """Parameters of a TrainingJob besides its name."""

    trainers: int | tuple[int, int] | None
    manifest: Manifest | None
    namespace: str | None


class Workload(ABC):
    """A RayCluster or a TrainingJob, which may exist already."""

    kind: ClassVar[str]

    def __init__(
        self,
        name: str,
        *,
        manifest: Manifest | None,
        namespace: str | None = None,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
    ) -> None:
        for what, text in (("name", name), ("namespace", namespace or "default")):
            if not is_name(text):
                raise ValueError(f"{what} {text!r} is not a name in Kubernetes")
        self.name = name
        self.namespace = namespace
        """None: that of the kubeconfig's context, or `default`."""
        self.manifest = manifest
        """What `apply` writes; None for a workload that another client manages."""
        self._kubeconfig = kubeconfig
        self._context = context

    def __repr__(self) -> str:
        where = "" if self.namespace is None else f", namespace={self.namespace!r}"
        return f"{type(self).__name__}({self.name!r}{where})"

    # --- reading ---------------------------------------------------------------------------------------------------------

    async def get(self) -> Manifest:
        """The stored object; raises NotFoundError or WorkloadError."""
        async with self._connected() as (client, key):
            return await self._get(client, key)

    async def status(self) -> Status:
        """Its size and state now; raises NotFoundError or WorkloadError."""
        return self._status_of(await self.get())

    async def why(self) -> Why:
        """Why it is not larger: the explanation of `raytide why`; raises NotFoundError or WorkloadError."""
        async with self._connected() as (client, key):
            obj = await self._get(client, key)
            reader = WorkloadReader(client, key.namespace)
            objects = await reader.complete(self.kind, obj)
            return Why(await explained(reader, objects, Clock()))

    async def wait(self, timeout_s: float = 600.0, *, until: Until = "ready") -> Status | None:
        """Wait until it is ready, finished or deleted, and return its status then; None once it is deleted.

        `ready`: the head and all wanted workers are ready, or the trainers of the minimum run. `finished`: a TrainingJob has
        succeeded. Raises WorkloadFailedError if it fails or is deleted meanwhile, WaitTimeoutError with the first blocker, and
        WorkloadError if it cannot be read, and ValueError for `finished` of a RayCluster, which has no end.
        """
        if until == "finished" and self.kind == RAYCLUSTER:
            raise ValueError("a RayCluster does not finish: wait until it is ready or deleted")
        status: Status | None = None
        try:
            async with asyncio.timeout(timeout_s), self._connected() as (client, key):
                while True:
                    try:
                        status = self._status_of(await self._get(client, key))
                    except NotFoundError as error:
                        if until == "deleted":
                            return None
                        raise WorkloadFailedError(f"{error}: it does not exist, or was deleted") from error
                    if until != "deleted" and status.phase == "Failed":
                        raise WorkloadFailedError(str(status))
                    if (until == "ready" and status.is_ready) or (until == "finished" and status.is_finished):
                        return status
                    await asyncio.sleep(POLL_S)
        except TimeoutError as error:
            seen = "" if status is None else f": {status}"
            raise WaitTimeoutError(f"{self.kind} {self.name} is not {until} after {timeout_s:g} s{seen}") from error

    # --- writing ---------------------------------------------------------------------------------------------------------

    async def apply(self) -> Self:
        """Create it, or change the stored one to `manifest`; sizes that `manifest` does not set stay as they are.

        Raises WorkloadError, which has the API server's message if it rejects the object.
        """
        if self.manifest is None:
            raise WorkloadError(f"{self!r} has no manifest: give workers or a manifest to apply it")
        desired = self.manifest
        async with self._connected() as (client, key):

            async def write() -> None:
                stored = await client.get(RESOURCES[self.kind], key)
                body = manifests.to_apply(desired, stored)
                await client.patch(
                    RESOURCES[self.kind],
                    key,
                    body,
                    kind=PatchKind.APPLY,
                    field_manager=FIELD_MANAGER,
                    is_forced=True,
                )

            await self._again(write)
        return self

    async def delete(self) -> None:
        """Delete it and its pods in the background; nothing happens if it does not exist. Raises WorkloadError."""
        async with self._connected() as (client, key):
            try:
                obj = await client.get(RESOURCES[self.kind], key)
                if obj is not None:
                    await client.delete(RESOURCES[self.kind], key, str(obj["metadata"].get("uid")))
            except ApiStatusError as error:
                if not error.is_not_found:
                    raise self._error(error) from error

    async def _again(self, write: Callable[[], Any]) -> None:
        for attempt in range(CONFLICTS):
            try:
                await write()
            except ApiStatusError as error:
                if error.status == 409 and attempt + 1 < CONFLICTS:
                    continue
                raise self._error(error) from error
            else:
                return

    # --- inside ----------------------------------------------------------------------------------------------------------

    @abstractmethod
    def _status_of(self, obj: Manifest) -> Status: ...

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[Client, Key]]:
        try:
            async with connected(self._kubeconfig, self._context) as (client, namespace):
                yield client, Key(self.namespace or namespace, self.name)
        except (ReadError, ApiUnavailableError) as error:
            raise self._error(error) from error

    async def _get(self, client: Client, key: Key) -> Manifest:
        try:
            obj = await client.get(RESOURCES[self.kind], key)
        except ApiStatusError as error:
            raise self._error(error) from error
        if obj is None:
            raise NotFoundError(f"there is no {self.kind} {key.name} in namespace {key.namespace}")
        return obj

    def _error(self, error: Exception) -> WorkloadError:
        return WorkloadError(f"{self.kind} {self.name}: {error}")


class RayCluster(Workload):
    """A RayCluster.

    With `workers` (a number, or numbers by group name) it describes a cluster, see `manifests.raycluster` for `max_workers`,
    `image`, `cpus`, `memory`, `gpus` and `env`; with `manifest` it is any RayCluster; with neither it is one that exists.
    """

    kind = RAYCLUSTER

    def __init__(
        self,
        name: str,
        *,
        workers: int | Mapping[str, int] | None = None,
        manifest: Manifest | None = None,
        namespace: str | None = None,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
        **described: Unpack[manifests.RayClusterOptions],
    ) -> None:
        if workers is not None and manifest is not None:
            raise ValueError("give workers or manifest, not both")
        if workers is not None:
            manifest = manifests.raycluster(name, workers=workers, **described)
        elif described:
            raise TypeError(f"{', '.join(described)} describe a cluster: give workers too")
        super().__init__(name, manifest=manifest, namespace=namespace, kubeconfig=kubeconfig, context=context)

    @classmethod
    def from_yaml(cls, path: str | Path, **connection: Unpack[Connection]) -> Self:
        """The RayCluster of a YAML file with one object; `connection`: `kubeconfig` and `context`."""
        return cls(**_read_yaml(path, cls.kind), **connection)

    async def scale(self, workers: int | Mapping[str, int]) -> Self:
        """Set the number of replicas of its only worker group, or of groups by name; raises ValueError for unknown groups."""
        async with self._connected() as (client, key):

            async def write() -> None:
                patch = manifests.group_sizes_patch(await self._get(client, key), workers)
                await client.patch(RESOURCES[self.kind], key, patch, kind=PatchKind.JSON, field_manager=FIELD_MANAGER)

            await self._again(write)
        return self

    def _status_of(self, obj: Manifest) -> Status:
        status = obj.get("status") or {}
        lane = lane_of(self.kind, obj, Clock().now())
        is_current = status.get("observedGeneration", 0) >= obj["metadata"].get("generation", 0)
        has_head = is_condition_true(status.get("conditions") or (), constants.HEAD_POD_READY)
        is_ready = is_current and has_head and lane.ready >= lane.wanted
        return status_of(lane, str(status.get("state") or ""), is_ready=is_ready, is_finished=False)


class TrainingJob(Workload):
    """A TrainingJob.

    With `trainers` (a number, or minimum and maximum) it describes a job, see `manifests.trainingjob` for `image`, `entrypoint`,
    `pservers`, `cpus`, `memory`, `gpus` and `env`; with `manifest` it is any TrainingJob; with neither it is one that exists.
    """

    kind = TRAININGJOB

    def __init__(
        self,
        name: str,
        *,
        trainers: int | tuple[int, int] | None = None,
        manifest: Manifest | None = None,
        namespace: str | None = None,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
        **described: Unpack[manifests.TrainingJobOptions],
    ) -> None:
        if trainers is not None and manifest is not None:
            raise ValueError("give trainers or manifest, not both")
        if trainers is not None:
            manifest = manifests.trainingjob(name, trainers=trainers, **described)
        elif described:
            raise TypeError(f"{', '.join(described)} describe a job: give trainers too")
        super().__init__(name, manifest=manifest, namespace=namespace, kubeconfig=kubeconfig, context=context)

    @classmethod
    def from_yaml(cls, path: str | Path, **connection: Unpack[Connection]) -> Self:
        """The TrainingJob of a YAML file with one object; `connection`: `kubeconfig` and `context`."""
        return cls(**_read_yaml(path, cls.kind), **connection)

    async def scale(self, trainers: int) -> Self:
        """Request a number of trainers, as `kubectl scale` does; fair sharing keeps it within the capacity."""
        if trainers < 0:
            raise ValueError(f"the number of trainers must not be negative, not {trainers}")
        body = {"spec": {"trainer": {"replicas": trainers}}}
        async with self._connected() as (client, key):
            try:
                await client.patch(RESOURCES[self.kind], key, body, field_manager=FIELD_MANAGER)
            except ApiStatusError as error:
                raise self._error(error) from error
        return self

    def _status_of(self, obj: Manifest) -> Status:
        phase = str((obj.get("status") or {}).get("phase") or "")
        lane = lane_of(self.kind, obj, Clock().now())
        return status_of(
            lane,
            phase,
            is_ready=phase in ("Running", "Scaling", "Succeeded"),
            is_finished=phase in ("Succeeded", "Failed"),
        )


def _read_yaml(path: str | Path, kind: str) -> dict[str, Any]:
    documents = [document for document in yaml.safe_load_all(Path(path).read_text()) if document]
    found = [document for document in documents if isinstance(document, dict) and document.get("kind") == kind]
    if len(found) != 1:
        raise ValueError(f"{path} has {len(found)} objects of kind {kind}: it must have one")
    metadata = found[0].get("metadata") or {}
    return {"name": str(metadata.get("name") or ""), "namespace": metadata.get("namespace"), "manifest": found[0]}
