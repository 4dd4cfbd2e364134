"""Resource sums and worker limits of a RayCluster for its status.

Takes the spec as the user wrote it, and returns exact sums in canonical form, of the user's containers only, without
injected ones. Separate from status because admission and tools use it too. Rules RC §1.5, RC:K-5.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from raytide.api.gpu_resource import is_gpu
from raytide.api.quantity import MAX_INT32, ZERO, Quantity, QuantityError
from raytide.api.raycluster import RayCluster, WorkerGroupSpec

TPU: Final = "google.com/tpu"


def min_workers(groups: Iterable[WorkerGroupSpec]) -> int:
    """Minimum number of pods, of all groups that are not suspended."""
    return sum((group.min_replicas or 0) * group.num_of_hosts for group in groups if not group.suspend)


def max_workers(groups: Iterable[WorkerGroupSpec]) -> int:
    """Maximum number of pods, capped at the largest int32, which is also the value of an absent maximum."""
    maximum = sum(
        (MAX_INT32 if group.max_replicas is None else group.max_replicas) * group.num_of_hosts
        for group in groups
        if not group.suspend
    )
    return min(maximum, MAX_INT32)


def desired_resources(cluster: RayCluster, *, replicas_by_group: Mapping[str, int]) -> dict[str, str]:
    """The four resource sums of status; unclamped `replicas` count, as in KubeRay, unless given by group."""
    amounts = list(_amounts(cluster, replicas_by_group))
    return {
        "desiredCPU": _total(amounts, lambda name: name == "cpu"),
        "desiredMemory": _total(amounts, lambda name: name == "memory"),
        "desiredGPU": _total(amounts, is_gpu),
        "desiredTPU": _total(amounts, lambda name: name == TPU),
    }


def template_resources(template: Mapping[str, Any]) -> Iterator[tuple[str, Quantity]]:
    """Per container and resource the request, else the limit; an invalid quantity counts as zero."""
    for container in (template.get("spec") or {}).get("containers") or ():
        resources = container.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        for name, text in asked.items():
            try:
                yield name, Quantity.parse(text)
            except QuantityError:
                yield name, ZERO


def _amounts(cluster: RayCluster, replicas_by_group: Mapping[str, int]) -> Iterator[tuple[str, Quantity]]:
    yield from template_resources(cluster.spec.head_group_spec.template)
    for group in cluster.spec.worker_group_specs:
        if not group.suspend:
            pods = replicas_by_group.get(group.group_name, group.replicas or 0) * group.num_of_hosts
            yield from ((name, amount * pods) for name, amount in template_resources(group.template))


def _total(amounts: Sequence[tuple[str, Quantity]], is_meant: Any) -> str:
    return str(sum((amount for name, amount in amounts if is_meant(name)), start=ZERO))
