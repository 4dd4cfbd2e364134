"""Manifests of RayClusters and TrainingJobs from a few numbers, and changes to stored ones.

Takes names, sizes and images; returns the object as `kubectl apply` would get it, or a patch. No I/O. Called by workloads.py.
"""

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict

from raytide.api.meta import Manifest

RAY_IMAGE: Final = "rayproject/ray:2.60.0"
WORKERS: Final = "workers"
"""Name of the only group of a RayCluster with a number of workers."""
GPU: Final = "nvidia.com/gpu"
_VERSION: Final = re.compile(r":(\d+\.\d+\.\d+)")
_KEPT: Final = ("replicas", "scaleStrategy")
"""Fields of a worker group that autoscalers write."""


class RayClusterOptions(TypedDict, total=False):
    """Parameters of `raycluster` besides the name and the workers."""

    max_workers: int | None
    image: str
    cpus: float
    memory: str
    gpus: int
    env: Mapping[str, str] | None


class TrainingJobOptions(TypedDict, total=False):
    """Parameters of `trainingjob` besides the name and the trainers."""

    image: str
    entrypoint: str
    pservers: int
    cpus: float
    memory: str
    gpus: int
    env: Mapping[str, str] | None


def raycluster(
    name: str,
    *,
    workers: int | Mapping[str, int] = 0,
    max_workers: int | None = None,
    image: str = RAY_IMAGE,
    cpus: float = 1,
    memory: str = "2Gi",
    gpus: int = 0,
    env: Mapping[str, str] | None = None,
) -> Manifest:
    """A RayCluster whose head has no GPUs, and whose workers have `cpus`, `memory` and `gpus` each.

    `workers` is the number of workers of one group, or the numbers of several groups by name. With `max_workers`, Ray's
    autoscaler chooses the size of each group between its number and `max_workers`. Raises ValueError if a number is negative or
    above `max_workers`.
    """
    groups = {WORKERS: workers} if isinstance(workers, int) else dict(workers)
    for group, count in groups.items():
        if count < 0 or (max_workers is not None and count > max_workers):
            limit = "" if max_workers is None else f" and max_workers ({max_workers})"
            raise ValueError(f"workers of group {group} must be between 0{limit}, not {count}")
    version = _VERSION.search(image)
    variables = [{"name": key, "value": value} for key, value in (env or {}).items()]
    container: dict[str, Any] = {"image": image, **({"env": variables} if variables else {})}
    head = {**container, "name": "ray-head", "resources": _resources(cpus, memory, 0)}
    worker = {**container, "name": "ray-worker", "resources": _resources(cpus, memory, gpus)}
    spec: dict[str, Any] = {
        **({"rayVersion": version.group(1)} if version else {}),
        **({"enableInTreeAutoscaling": True} if max_workers is not None else {}),
        "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [head]}}},
        "workerGroupSpecs": [
            {
                "groupName": group,
                **({"replicas": count} if max_workers is None else {"minReplicas": count, "maxReplicas": max_workers}),
                "rayStartParams": {},
                "template": {"spec": {"containers": [copy.deepcopy(worker)]}},
            }
            for group, count in groups.items()
        ],
    }
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name}, "spec": spec}


def trainingjob(
    name: str,
    *,
    image: str = "",
    entrypoint: str = "",
    trainers: int | tuple[int, int],
    pservers: int = 0,
    cpus: float = 1,
    memory: str = "2Gi",
    gpus: int = 0,
    env: Mapping[str, str] | None = None,
) -> Manifest:
    """A TrainingJob with a number of trainers, or with a minimum and a maximum between which fair sharing chooses.

    Each trainer and each parameter server has `cpus` and `memory`, each trainer `gpus`. Raises ValueError if the minimum is below
    1 or above the maximum, or if image or entrypoint is missing.
    """
    minimum, maximum = (trainers, trainers) if isinstance(trainers, int) else trainers
    if not (image and entrypoint):
        raise ValueError("give image and entrypoint, the command that each trainer runs")
    if not 1 <= minimum <= maximum:
        raise ValueError(
            f"trainers must be at least 1, and the minimum at most the maximum, not {minimum} to {maximum}"
        )
    envs = {"envs": dict(env)} if env else {}
    spec: dict[str, Any] = {
        "image": image,
        "framework": "generic",
        "trainer": {
            "entrypoint": entrypoint,
            "min-instance": minimum,
            "max-instance": maximum,
            "resources": _resources(cpus, memory, gpus),
            **envs,
        },
    }
    if pservers:
        roles = {"min-instance": pservers, "max-instance": pservers}
        spec["pserver"] = {**roles, "resources": _resources(cpus, memory, 0), **envs}
    return {"apiVersion": "paddlepaddle.org/v1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}


def to_apply(desired: Manifest, stored: Manifest | None) -> Manifest:
    """What is applied over the stored object: `desired` with the sizes that it does not set, which autoscalers have written.

    A list of groups is replaced as a whole, so a group without `replicas` would otherwise lose its workers. The resourceVersion
    of the stored object makes a change in between a conflict.
    """
    applied = copy.deepcopy(desired)
    if stored is None:
        return applied
    applied["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
    groups = {group.get("groupName"): group for group in _groups(stored)}
    for group in _groups(applied):
        there = groups.get(group.get("groupName"), {})
        group.update({key: there[key] for key in _KEPT if key not in group and key in there})
    return applied


def group_sizes_patch(stored: Manifest, sizes: int | Mapping[str, int]) -> list[dict[str, Any]]:
    """JSON patch that sets `replicas` of worker groups, by name or of the only one; raises ValueError that names the groups there are.

    Each group is tested by its name at its position, so that a change in between is a conflict.
    """
    names = [str(group.get("groupName")) for group in _groups(stored)]
    if isinstance(sizes, int):
        if len(names) != 1:
            example = " ".join(f"{name}={sizes}" for name in names)
            raise ValueError(
                f"it has {len(names)} worker groups: give sizes by group{example and f', such as {example}'}"
            )
        sizes = {names[0]: sizes}
    patch: list[dict[str, Any]] = []
    for name, size in sizes.items():
        if name not in names:
            raise ValueError(f"it has no worker group {name}; its groups are {', '.join(names) or 'none'}")
        if size < 0:
            raise ValueError(f"the size of group {name} must not be negative, not {size}")
        path = f"/spec/workerGroupSpecs/{names.index(name)}"
        patch.append({"op": "test", "path": f"{path}/groupName", "value": name})
        patch.append({"op": "add", "path": f"{path}/replicas", "value": size})
    return patch


def _groups(obj: Manifest) -> Sequence[dict[str, Any]]:
    groups = (obj.get("spec") or {}).get("workerGroupSpecs")
    return [group for group in groups if isinstance(group, dict)] if isinstance(groups, list) else []


def _resources(cpus: float, memory: str, gpus: int) -> dict[str, dict[str, str]]:
    amounts = {"cpu": f"{round(cpus * 1000)}m", "memory": memory, **({GPU: str(gpus)} if gpus else {})}
    return {"requests": amounts, "limits": dict(amounts)}
