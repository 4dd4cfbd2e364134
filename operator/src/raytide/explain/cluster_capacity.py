"""Capacity of the cluster: how much of what its nodes offer is requested by RayClusters, TrainingJobs and other pods.

Takes changes of pods and nodes, each reduced to a small view, and returns one `ResourceUse` per resource: CPU, memory and GPUs.
Sums and counts only, no names of namespaces or workloads. A change costs the same on a large cluster as on a small one, and `resources` as
much as there are nodes. Reads no clock and does no I/O. Called by `raytide ui`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from raytide.api.capacity import decode_capacity_node, decode_capacity_pod
from raytide.api.pod_requirements import CPU, Amounts

MEMORY: Final = "memory"


class Holder(StrEnum):
    """What a pod belongs to, by its labels."""

    RAYCLUSTER = "rayClusters"
    TRAININGJOB = "trainingJobs"
    OTHER = "otherPods"


_HOLDERS: Final = tuple(Holder)


class PodRequests(NamedTuple):
    """One pod that has not ended."""

    node: str
    """Empty if it has none."""
    holder: Holder
    amounts: Amounts
    """Its requests; `cpu` in millicores."""


class NodeOffer(NamedTuple):
    """One node."""

    name: str
    amounts: Amounts
    """Allocatable; `cpu` in millicores."""
    is_usable: bool
    """Whether it is ready and not cordoned."""


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """One resource; the parts of nodes add up to `allocatable`, unless a node is overcommitted. `cpu` in millicores."""

    name: str
    allocatable: int
    requested: tuple[int, ...]
    """By pods on nodes, in the order of `Holder`."""
    free: int
    unusable: int
    """Free, but on nodes that are cordoned or not ready."""
    unscheduled: int
    """Requested by pods without a node; not part of `allocatable`."""


@dataclass(frozen=True, slots=True)
class CapacityView:
    """What a caller sees of the capacity."""

    resources: tuple[ResourceUse, ...] = ()
    nodes: int = 0
    problem: str = ""
    """Why it is not shown; empty if it is, or will be."""


def decode_pod_requests(item: msgspec.Raw | bytes) -> PodRequests:
    """The view of one pod's JSON; raises msgspec.MsgspecError, or QuantityError."""
    pod = decode_capacity_pod(item)
    holder = Holder.RAYCLUSTER if pod.cluster else Holder.TRAININGJOB if pod.job else Holder.OTHER
    return PodRequests(pod.node, holder, pod.requests)


def decode_node_offer(item: msgspec.Raw | bytes) -> NodeOffer:
    """The view of one node's JSON; raises the same errors."""
    node = decode_capacity_node(item)
    return NodeOffer(node.name, node.allocatable, node.is_ready and not node.is_cordoned)


@dataclass(slots=True)
class _Sums:
    """What pods request, by resource and holder, and how many pods these are."""

    amounts: list[int]
    pods: int = 0


class ClusterCapacity:
    """Sums of requests by node."""

    def __init__(self, gpus: Iterable[str]) -> None:
        """`gpus` are the names of the extended resources that count besides `cpu` and `memory`."""
        self._names: Final = (CPU, *sorted(set(gpus) - {CPU, MEMORY}), MEMORY)
        self._nodes: dict[str, NodeOffer] = {}
        self._requested: dict[str, _Sums] = {}
        """By node; empty for pods that have none."""
        self._nothing: Final = _Sums([0] * (len(self._names) * len(_HOLDERS)))
        self._view: CapacityView | None = None
        """None since the last change."""

    def change_pod(self, old: PodRequests | None, new: PodRequests | None) -> None:
        """A pod was added (`old` is None), changed, or is gone (`new` is None)."""
        if old == new:
            return
        if old is not None:
            self._add(old, -1)
        if new is not None:
            self._add(new, 1)
        self._view = None

    def change_node(self, old: NodeOffer | None, new: NodeOffer | None) -> None:
        """The same for a node."""
        if old == new:
            return
        if old is not None:
            self._nodes.pop(old.name, None)
        if new is not None:
            self._nodes[new.name] = new
        self._view = None

    def view(self) -> CapacityView:
        """CPU, the GPUs that exist or are requested, and memory."""
        if self._view is None:
            found = [self._use(place, name) for place, name in enumerate(self._names)]
            shown = tuple(each for each in found if each.name in (CPU, MEMORY) or each.allocatable or each.unscheduled)
            self._view = CapacityView(shown, len(self._nodes))
        return self._view

    def _add(self, pod: PodRequests, times: int) -> None:
        sums = self._requested.get(pod.node)
        if sums is None:
            sums = self._requested[pod.node] = _Sums(list(self._nothing.amounts))
        sums.pods += times
        if not sums.pods:
            del self._requested[pod.node]
            return
        place = _HOLDERS.index(pod.holder)
        for name in self._names:
            sums.amounts[place] += pod.amounts.get(name, 0) * times
            place += len(_HOLDERS)

    def _use(self, place: int, name: str) -> ResourceUse:
        begin, end = place * len(_HOLDERS), (place + 1) * len(_HOLDERS)
        requested = [0] * len(_HOLDERS)
        allocatable = free = unusable = 0
        for node in self._nodes.values():
            offered = node.amounts.get(name, 0)
            used = self._requested.get(node.name, self._nothing).amounts[begin:end]
            for holder, more in enumerate(used):
                requested[holder] += more
            left = max(0, offered - sum(used))
            allocatable += offered
            free += left if node.is_usable else 0
            unusable += 0 if node.is_usable else left
        unscheduled = sum(self._requested.get("", self._nothing).amounts[begin:end])
        return ResourceUse(name, allocatable, tuple(requested), free, unusable, unscheduled)


def as_json(view: CapacityView) -> dict[str, Any]:
    """The view as a JSON object: CPUs in cores, memory in bytes."""
    return {
        "nodes": view.nodes,
        "problem": view.problem,
        "resources": [
            {
                "name": use.name,
                "allocatable": _amount(use.name, use.allocatable),
                **{each.value: _amount(use.name, part) for each, part in zip(_HOLDERS, use.requested, strict=True)},
                "free": _amount(use.name, use.free),
                "unusable": _amount(use.name, use.unusable),
                "unscheduled": _amount(use.name, use.unscheduled),
            }
            for use in view.resources
        ],
    }


def _amount(name: str, number: int) -> float:
    return number / 1000 if name == CPU else number
