"""Kubernetes operator for RayCluster and TrainingJob, with an autoscaler sidecar for Ray, and a Python client.

    import raytide
    cluster = raytide.RayCluster("demo", workers=2).apply()
    cluster.wait()

The client (`raytide.client`) is imported when one of its names is used.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

from raytide.api import constants

if TYPE_CHECKING:
    from raytide.client import workloads as aio
    from raytide.client.blocking import RayCluster, TrainingJob
    from raytide.client.outcome import NotFoundError, WaitTimeoutError, WorkloadError, WorkloadFailedError

__version__ = constants.VERSION

_CLIENT: Final = {
    **dict.fromkeys(("RayCluster", "TrainingJob"), "raytide.client.blocking"),
    **dict.fromkeys(
        ("NotFoundError", "WaitTimeoutError", "WorkloadError", "WorkloadFailedError"), "raytide.client.outcome"
    ),
}
"""Names of the client, and their modules."""

__all__ = [
    "NotFoundError",
    "RayCluster",
    "TrainingJob",
    "WaitTimeoutError",
    "WorkloadError",
    "WorkloadFailedError",
    "__version__",
    "aio",
]


def __getattr__(name: str) -> Any:
    if name == "aio":
        return importlib.import_module("raytide.client.workloads")
    if name in _CLIENT:
        return getattr(importlib.import_module(_CLIENT[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
