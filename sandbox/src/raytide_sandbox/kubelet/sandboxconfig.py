"""Sandbox configuration of a pod.

Takes a pod and its in-memory volumes; returns the configuration of its sandbox. Limits are shown to the containers and
never enforced; a sandbox shows one value, the largest limit of the pod's containers. Pure; called by podworker.py.
"""

import contextlib
from collections.abc import Callable

from raytide.api.quantity import QuantityError, to_bytes, to_millis
from raytide_sandbox.container_runtime.interface import MemoryVolume, PodSandboxConfig
from raytide_sandbox.kubelet.podspec import PodSpec


def build_sandbox_config(pod: PodSpec, in_memory: tuple[MemoryVolume, ...]) -> PodSandboxConfig:
    """Build names, limits and in-memory volumes of a sandbox."""
    return PodSandboxConfig(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        hostname=pod.hostname,
        subdomain=pod.subdomain,
        labels=pod.labels,
        memory_limit_bytes=_largest_limit(pod, "memory", to_bytes),
        cpu_limit_millis=_largest_limit(pod, "cpu", to_millis),
        memory_volumes=in_memory,
        host_aliases=pod.host_aliases,
    )


def _largest_limit(pod: PodSpec, resource: str, read: Callable[[str], int]) -> int | None:
    found = []
    for spec in pod.containers:
        limits = (spec.raw.get("resources") or {}).get("limits") or {}
        with contextlib.suppress(QuantityError):
            if limits.get(resource) is not None:
                found.append(read(limits[resource]))
    return max(found, default=None)
