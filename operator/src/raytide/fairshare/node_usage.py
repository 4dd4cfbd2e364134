"""Node usage: what is in use on each node, and what is about to be free.

A `PodUsage` is what the pods of one owner use: a job that takes part, or the pods of other workloads on one node. `NodeUsage` sums the
these and replaces single ones, so that the next snapshot costs as much as has changed (PF:P10). Output: the
planner's nodes, the pending pods of other workloads, and the sum that counts against growth by limits. A pod on a node
that is unknown or not usable is charged nothing. Filled by snapshot.py (TJ §3 rows 5 and 17).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from raytide.api.capacity import CapacityNode, CapacityPod
from raytide.api.pod_requirements import PODS, Amounts, PodConstraints, PodShape
from raytide.fairshare.algorithm.model import ExternalPods, Node, Taint
from raytide.fairshare.pod_placement import RolePods
from raytide.fairshare.pod_requirements import shape_from

TAINTS_OF_A_STATE: Final = "node.kubernetes.io/"
"""Prefix of the taints that Kubernetes sets for a node's state: cordoned, not ready, unreachable, under pressure."""

_Kind: TypeAlias = tuple[tuple[tuple[str, int], ...], PodConstraints, int, bool]
"""Requests without `pods`, constraints, priority, whether it is unschedulable: pods equal in these are grouped."""


def added(*many: Amounts) -> dict[str, int]:
    """The sum, resource by resource."""
    total: dict[str, int] = {}
    for one in many:
        add(total, one)
    return total


def add(total: dict[str, int], more: Amounts, times: int = 1) -> None:
    """Add `more` to `total` so many times; a resource that becomes zero is removed."""
    for name, amount in more.items():
        left = total.get(name, 0) + amount * times
        if left:
            total[name] = left
        else:
            total.pop(name, None)


@dataclass(slots=True)
class ResourceUsage:
    """What is in use on one node."""

    used: dict[str, int] = field(default_factory=dict)
    terminating: dict[str, int] = field(default_factory=dict)
    charged: dict[str, int] = field(default_factory=dict)
    """What counts against the load by limits, if the node is usable."""

    @property
    def is_nothing(self) -> bool:
        """Whether nothing is in use there."""
        return not (self.used or self.terminating or self.charged)

    def add(self, more: "ResourceUsage", times: int) -> None:
        """Add another one (1), or subtract it (-1)."""
        add(self.used, more.used, times)
        add(self.terminating, more.terminating, times)
        add(self.charged, more.charged, times)


@dataclass(slots=True)
class PodUsage:
    """What the pods of one owner use, by node; not changed any more once it is in a `NodeUsage`."""

    by_node: dict[str, ResourceUsage] = field(default_factory=dict)
    waiting: list[CapacityPod] = field(default_factory=list)
    """Pods of other workloads without a node."""

    def add_external_pods(self, pods: Iterable[CapacityPod], *, is_terminating: bool = False) -> None:
        """Add pods that fair sharing does not size, by their requests; those without a node are pending."""
        for pod in pods:
            if pod.node:
                taken = self._take(pod, is_terminating=is_terminating or pod.is_terminating)
                add(taken.charged, pod.requests)
            elif not (pod.is_terminating or pod.is_scheduling_gated or is_terminating):
                self.waiting.append(pod)

    def add_role(self, standing: RolePods) -> None:
        """Add the pods of one role of a TrainingJob that takes part; against the load limit they count by their limits."""
        for pod in standing.kept:
            if pod.node:
                add(self._take(pod, is_terminating=False).charged, pod.limits)
        for pod in standing.released:
            if pod.node:
                add(self._take(pod, is_terminating=True).charged, pod.limits)

    def _take(self, pod: CapacityPod, *, is_terminating: bool) -> ResourceUsage:
        taken = self._on(pod.node)
        add(taken.used, pod.requests)
        if is_terminating:
            add(taken.terminating, pod.requests)
        return taken

    def _on(self, name: str) -> ResourceUsage:
        found = self.by_node.get(name)
        if found is None:
            found = self.by_node[name] = ResourceUsage()
        return found


class NodeUsage:
    """What the pods of all owners use, by node."""

    def __init__(self) -> None:
        self._taken: dict[str, ResourceUsage] = {}
        self._built: dict[str, tuple[CapacityNode, Node]] = {}
        """The planner's nodes of the last snapshot that have not changed since."""
        self._host_ports: dict[str, int] = {}

    def replace(self, old: PodUsage | None, new: PodUsage | None) -> None:
        """Replace what the pods of one owner use; None: nothing."""
        for usage, times in ((old, -1), (new, 1)):
            for name, more in usage.by_node.items() if usage is not None else ():
                taken = self._taken.setdefault(name, ResourceUsage())
                taken.add(more, times)
                if taken.is_nothing:
                    del self._taken[name]
                self._built.pop(name, None)

    def nodes(self, nodes: Iterable[CapacityNode], host_ports: Iterable[str] = ()) -> tuple[Node, ...]:
        """The planner's nodes, sorted by name; each has one of each of these ports."""
        if (ports := dict.fromkeys(host_ports, 1)) != self._host_ports:
            self._built, self._host_ports = {}, ports
        built = {node.name: self._node(node) for node in sorted(nodes, key=lambda each: each.name)}
        self._built = built
        return tuple(node for _, node in built.values())

    def _node(self, node: CapacityNode) -> tuple[CapacityNode, Node]:
        known = self._built.get(node.name)
        if known is not None and (known[0] is node or known[0] == node):
            return known
        taken = self._taken.get(node.name) or ResourceUsage()
        found = Node(
            name=node.name,
            allocatable={**node.allocatable, **self._host_ports} if self._host_ports else node.allocatable,
            used=dict(taken.used),
            terminating=dict(taken.terminating),
            charged=dict(taken.charged),
            labels=node.labels,
            taints=_taints(node),
            is_usable=node.is_ready and not node.is_cordoned,
        )
        return node, found


def external_pods(waiting: Iterable[CapacityPod]) -> tuple[ExternalPods, ...]:
    """Pending pods of other workloads, equal ones grouped, by descending priority, then age; none that match no node."""
    found: dict[_Kind, list[CapacityPod]] = {}
    for pod in waiting:
        if pod.is_too_large:
            continue
        kind = (_pairs(pod.requests), pod.constraints, pod.priority, pod.is_unschedulable)
        found.setdefault(kind, []).append(pod)
    return tuple(sorted((_external_pod(kind, pods) for kind, pods in found.items()), key=_place_in_line))


def _external_pod(kind: _Kind, pods: list[CapacityPod]) -> ExternalPods:
    oldest = min(pods, key=lambda pod: (pod.created_at, pod.namespace, pod.name))
    counted = PodShape(oldest.requests, dict(kind[0]), oldest.constraints)
    return ExternalPods(
        shape_from(counted),
        len(pods),
        oldest.priority,
        oldest.created_at,
        is_unschedulable=oldest.is_unschedulable,
        name=f"{oldest.namespace}/{oldest.name}",
        owner_uid=oldest.owner_uid,
    )


def _place_in_line(pods: ExternalPods) -> tuple[int, str, str]:
    return -pods.priority, pods.created_at, pods.name


def _pairs(amounts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, amount) for name, amount in amounts.items() if name != PODS))


def _taints(node: CapacityNode) -> tuple[Taint, ...]:
    """The node's taints; of an unusable node only those that remain when it is back, so that pods can wait for it."""
    is_usable = node.is_ready and not node.is_cordoned
    taints = (Taint(*taint) for taint in node.taints)
    return tuple(taint for taint in taints if is_usable or not taint.key.startswith(TAINTS_OF_A_STATE))
