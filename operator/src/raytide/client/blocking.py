"""RayClusters and TrainingJobs as Python objects, for callers without an event loop: `raytide.RayCluster`, `raytide.TrainingJob`.

The same methods as in workloads.py. One event loop of the process runs them in a thread of its own, so that they work in notebooks
too, where a loop is running already. Ctrl-C in the caller cancels the call.
"""

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Generic, Self, TypeVar, Unpack

from raytide.api.meta import Manifest
from raytide.client import workloads
from raytide.client.outcome import Status, Why

T = TypeVar("T")
W = TypeVar("W", bound=workloads.Workload)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="raytide-client", daemon=True).start()
    return loop


def run(call: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that runs in the client's loop."""
    future = asyncio.run_coroutine_threadsafe(call, _loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


class _Blocking(Generic[W]):
    """A workload whose methods return when they are done."""

    def __init__(self, workload: W) -> None:
        self.aio = workload
        """The same workload with coroutines."""

    @classmethod
    def _of(cls, workload: W) -> Self:
        made = cls.__new__(cls)
        _Blocking.__init__(made, workload)
        return made

    @property
    def name(self) -> str:
        """Its name."""
        return self.aio.name

    @property
    def namespace(self) -> str | None:
        """Its namespace; None: that of the kubeconfig's context, or `default`."""
        return self.aio.namespace

    @property
    def manifest(self) -> Manifest | None:
        """What `apply` writes; None for a workload that another client manages."""
        return self.aio.manifest

    def status(self) -> Status:
        """Its size and state now; raises NotFoundError or WorkloadError."""
        return run(self.aio.status())

    def get(self) -> Manifest:
        """The stored object; raises NotFoundError or WorkloadError."""
        return run(self.aio.get())

    def why(self) -> Why:
        """Why it is not larger: the explanation of `raytide why`; raises NotFoundError or WorkloadError."""
        return run(self.aio.why())

    def wait(self, timeout_s: float = 600.0, *, until: workloads.Until = "ready") -> Status | None:
        """Wait until it is ready, finished or deleted; see `workloads.Workload.wait`."""
        return run(self.aio.wait(timeout_s, until=until))

    def apply(self) -> Self:
        """Create it, or change the stored one to `manifest`; see `workloads.Workload.apply`."""
        run(self.aio.apply())
        return self

    def delete(self) -> None:
        """Delete it and its pods in the background; nothing happens if it does not exist."""
        run(self.aio.delete())

    def __repr__(self) -> str:
        return repr(self.aio)

    def _repr_html_(self) -> str:
        return self.status()._repr_html_()


class RayCluster(_Blocking[workloads.RayCluster]):
    """A RayCluster, see `workloads.RayCluster` for its parameters."""

    def __init__(self, name: str, **described: Unpack[workloads.RayClusterArguments]) -> None:
        super().__init__(workloads.RayCluster(name, **described))

    @classmethod
    def from_yaml(cls, path: str | Path, **connection: Unpack[workloads.Connection]) -> Self:
        """The RayCluster of a YAML file with one object; `connection`: `kubeconfig` and `context`."""
        return cls._of(workloads.RayCluster.from_yaml(path, **connection))

    def scale(self, workers: int | Mapping[str, int]) -> Self:
        """Set the number of replicas of its only worker group, or of groups by name."""
        run(self.aio.scale(workers))
        return self


class TrainingJob(_Blocking[workloads.TrainingJob]):
    """A TrainingJob, see `workloads.TrainingJob` for its parameters."""

    def __init__(self, name: str, **described: Unpack[workloads.TrainingJobArguments]) -> None:
        super().__init__(workloads.TrainingJob(name, **described))

    @classmethod
    def from_yaml(cls, path: str | Path, **connection: Unpack[workloads.Connection]) -> Self:
        """The TrainingJob of a YAML file with one object; `connection`: `kubeconfig` and `context`."""
        return cls._of(workloads.TrainingJob.from_yaml(path, **connection))

    def scale(self, trainers: int) -> Self:
        """Request a number of trainers, as `kubectl scale` does; fair sharing keeps it within the capacity."""
        run(self.aio.scale(trainers))
        return self
