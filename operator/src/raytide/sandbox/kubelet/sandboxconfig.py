"""What must a runtime know of a pod as a whole?

Takes a pod and its volumes in memory; gives the values for its sandbox. Limits are only shown, never enforced: a
container would see the largest among the pod's containers, since a sandbox has one view of them. Pure; called by
podworker.py.
"""

import contextlib
from collections.abc import Callable

from raytide.api.quantity import QuantityError, to_bytes, to_millis
from raytide.sandbox.kubelet.podspec import PodSpec
from raytide.sandbox.node.runtime import MemoryVolume, PodSandboxConfig


def build_sandbox_config(pod: PodSpec, in_memory: tuple[MemoryVolume, ...]) -> PodSandboxConfig:
    """Names, limits and memory of a pod."""
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
