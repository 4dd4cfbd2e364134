"""What is taken of each node, and what is about to be free?

Takes nodes, then pods one by one with the word whether they leave, gives the planner's nodes, the strangers that wait for
one, and the sum that counts against growth by limits. A pod on a node that is not usable, or not known, charges nothing.
Its values are built up by participants.py within one call and then frozen (TJ §3 rows 5 and 17).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final, TypeAlias

from raytide.api.capacity import CapacityNode, CapacityPod
from raytide.api.pod_shape import PODS, PodConstraints, PodShape
from raytide.elastic.model import Amounts, Node, Shape, Stranger, Taint
from raytide.sharing.shapes import shape_from
from raytide.sharing.standing import Standing

TAINTS_OF_A_STATE: Final = "node.kubernetes.io/"
"""Kubernetes' own: cordoned, not ready, unreachable, under pressure."""

_Kind: TypeAlias = tuple[tuple[tuple[str, int], ...], PodConstraints, int]
"""Requests without the place, constraints, priority: pods of others that are alike in these are alike."""


def added(*many: Amounts) -> dict[str, int]:
    """The sum, resource by resource."""
    total: dict[str, int] = {}
    for one in many:
        add(total, one)
    return total


def add(total: dict[str, int], more: Amounts, times: int = 1) -> None:
    """Put so many times as much on top."""
    if times == 0:
        return
    if times == 1:
        for name, amount in more.items():
            total[name] = total.get(name, 0) + amount
        return
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount * times


@dataclass(slots=True)
class _Taken:
    used: dict[str, int] = field(default_factory=dict)
    leaving: dict[str, int] = field(default_factory=dict)


class Rooms:
    """The nodes of one snapshot, filled pod by pod."""

    def __init__(self, nodes: Iterable[CapacityNode]) -> None:
        self._nodes = {node.name: node for node in sorted(nodes, key=lambda each: each.name)}
        self._taken = {name: _Taken() for name in self._nodes}
        self._usable = {name for name, node in self._nodes.items() if node.is_ready and not node.is_cordoned}
        self._strangers: dict[_Kind, Stranger] = {}
        self.charged: dict[str, int] = {}
        """What counts against the sum of usable nodes for growth by limits."""

    def hold(self, pods: Iterable[CapacityPod], *, is_leaving: bool = False) -> None:
        """Pods of nobody who takes part: they count by their requests; those without a node wait as strangers."""
        for pod in pods:
            if pod.node:
                self._take(pod, is_leaving=is_leaving or pod.is_terminating)
                if pod.node in self._usable:
                    add(self.charged, pod.requests)
            elif not (pod.is_terminating or pod.is_scheduling_gated or is_leaving):
                self._wait(pod)

    def keep(self, standing: Standing, shape: Shape | None) -> None:
        """Pods of one role of a job that takes part: they count by their limits, those that have no pod yet too."""
        charged = [pod.limits for pod in standing.kept if not pod.node or pod.node in self._usable]
        charged += [pod.limits for pod in standing.leaving if pod.node in self._usable]
        for pod in standing.kept:
            if pod.node:
                self._take(pod, is_leaving=False)
        for pod in standing.leaving:
            if pod.node:
                self._take(pod, is_leaving=True)
        for limits, alike in groupby(charged):
            add(self.charged, limits, sum(1 for _ in alike))
        if shape is not None:
            add(self.charged, shape.limits, standing.uncreated)

    def nodes(self) -> tuple[Node, ...]:
        """As the planner sees them, by name."""
        return tuple(
            Node(
                name=name,
                allocatable=node.allocatable,
                used=self._taken[name].used,
                leaving=self._taken[name].leaving,
                labels=node.labels,
                taints=_taints(node),
                is_usable=name in self._usable,
            )
            for name, node in self._nodes.items()
        )

    def strangers(self) -> tuple[Stranger, ...]:
        """Those that wait for a node, equal ones together, the most important and oldest first."""
        waiting = sorted(self._strangers.items(), key=lambda item: (-item[1].priority, item[1].created_at, item[0]))
        return tuple(stranger for _kind, stranger in waiting)

    def _take(self, pod: CapacityPod, *, is_leaving: bool) -> None:
        taken = self._taken.get(pod.node)
        if taken is None:
            return
        add(taken.used, pod.requests)
        if is_leaving:
            add(taken.leaving, pod.requests)

    def _wait(self, pod: CapacityPod) -> None:
        kind = (_pairs(pod.requests), pod.constraints, pod.priority)
        known = self._strangers.get(kind)
        if known is None:
            counted = PodShape(pod.requests, dict(kind[0]), pod.constraints)
            self._strangers[kind] = Stranger(shape_from(counted), 1, pod.priority, pod.created_at)
        else:
            oldest = min(known.created_at, pod.created_at)
            self._strangers[kind] = replace(known, count=known.count + 1, created_at=oldest)


def _pairs(amounts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, amount) for name, amount in amounts.items() if name != PODS))


def _taints(node: CapacityNode) -> tuple[Taint, ...]:
    """Of a node that is away for now, those that it will still have when it is back: whom it could hold then can wait."""
    is_usable = node.is_ready and not node.is_cordoned
    taints = (Taint(*taint) for taint in node.taints)
    return tuple(taint for taint in taints if is_usable or not taint.key.startswith(TAINTS_OF_A_STATE))
