"""What is taken of each node, and what is about to be free?

A `Holding` is what one holder takes: a job that takes part, or the pods on one node that nobody shares out. `Rooms` adds
holdings up and swaps one for another, so that the next snapshot costs what has changed and not what there is (PF:P10); it
gives the planner's nodes, the strangers that wait for one, and the sum that counts against growth by limits. A pod on a
node that is not usable, or not known, charges nothing. Filled by pools.py (TJ §3 rows 5 and 17).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from raytide.api.capacity import CapacityNode, CapacityPod
from raytide.api.pod_shape import PODS, PodConstraints, PodShape
from raytide.elastic.model import Amounts, Node, Shape, Stranger, Taint
from raytide.sharing.shapes import shape_from
from raytide.sharing.standing import Standing

TAINTS_OF_A_STATE: Final = "node.kubernetes.io/"
"""Kubernetes' own: cordoned, not ready, unreachable, under pressure."""

NOWHERE: Final = ""
"""Where pods without a node are counted."""

_Kind: TypeAlias = tuple[tuple[tuple[str, int], ...], PodConstraints, int, bool]
"""Requests without the place, constraints, priority, whether it was refused: pods of others alike in these are alike."""


def added(*many: Amounts) -> dict[str, int]:
    """The sum, resource by resource."""
    total: dict[str, int] = {}
    for one in many:
        add(total, one)
    return total


def add(total: dict[str, int], more: Amounts, times: int = 1) -> None:
    """Put so many times as much on top; what becomes nothing is not named any more."""
    for name, amount in more.items():
        left = total.get(name, 0) + amount * times
        if left:
            total[name] = left
        else:
            total.pop(name, None)


@dataclass(slots=True)
class Taken:
    """What is taken of one node."""

    used: dict[str, int] = field(default_factory=dict)
    leaving: dict[str, int] = field(default_factory=dict)
    charged: dict[str, int] = field(default_factory=dict)
    """What counts against the sum of usable nodes, if the node is usable; what has no node always counts."""

    @property
    def is_nothing(self) -> bool:
        """Whether nothing is taken there."""
        return not (self.used or self.leaving or self.charged)

    def add(self, more: "Taken", times: int) -> None:
        """Put another on top (1), or take it off again (-1)."""
        add(self.used, more.used, times)
        add(self.leaving, more.leaving, times)
        add(self.charged, more.charged, times)


@dataclass(slots=True)
class Holding:
    """What one holder takes, by node; not changed any more once it is in a `Rooms`."""

    by_node: dict[str, Taken] = field(default_factory=dict)
    waiting: list[CapacityPod] = field(default_factory=list)
    """Pods of strangers without a node."""

    def hold(self, pods: Iterable[CapacityPod], *, is_leaving: bool = False) -> None:
        """Pods of nobody who takes part: they count by their requests; those without a node wait as strangers."""
        for pod in pods:
            if pod.node:
                taken = self._take(pod, is_leaving=is_leaving or pod.is_terminating)
                add(taken.charged, pod.requests)
            elif not (pod.is_terminating or pod.is_scheduling_gated or is_leaving):
                self.waiting.append(pod)

    def keep(self, standing: Standing, shape: Shape | None, *, is_forbidden: bool = False) -> None:
        """Pods of one role of a job that takes part: they count by their limits, those that have no pod yet too.

        Those that the API refuses to create do not; the planner looks after instances itself.
        """
        for pod in standing.kept:
            taken = self._take(pod, is_leaving=False) if pod.node else self._on(NOWHERE)
            add(taken.charged, pod.limits)
        for pod in standing.leaving:
            if pod.node:
                add(self._take(pod, is_leaving=True).charged, pod.limits)
        if shape is not None and standing.uncreated and not is_forbidden:
            add(self._on(NOWHERE).charged, shape.limits, standing.uncreated)

    def _take(self, pod: CapacityPod, *, is_leaving: bool) -> Taken:
        taken = self._on(pod.node)
        add(taken.used, pod.requests)
        if is_leaving:
            add(taken.leaving, pod.requests)
        return taken

    def _on(self, name: str) -> Taken:
        found = self.by_node.get(name)
        if found is None:
            found = self.by_node[name] = Taken()
        return found


class Rooms:
    """All holdings together, by node."""

    def __init__(self) -> None:
        self._taken: dict[str, Taken] = {}
        self._built: dict[str, tuple[CapacityNode, Node]] = {}
        """The planner's nodes of the last snapshot, where nothing has changed since."""

    def swap(self, old: Holding | None, new: Holding | None) -> None:
        """One holder takes something else now; None: nothing."""
        for holding, times in ((old, -1), (new, 1)):
            for name, more in holding.by_node.items() if holding is not None else ():
                taken = self._taken.setdefault(name, Taken())
                taken.add(more, times)
                if taken.is_nothing:
                    del self._taken[name]
                self._built.pop(name, None)

    def nodes(self, nodes: Iterable[CapacityNode]) -> tuple[Node, ...]:
        """As the planner sees them, by name."""
        built = {node.name: self._node(node) for node in sorted(nodes, key=lambda each: each.name)}
        self._built = built
        return tuple(node for _, node in built.values())

    def charged(self, nodes: Iterable[Node]) -> dict[str, int]:
        """What counts against the sum of usable nodes for growth by limits."""
        places = (NOWHERE, *(node.name for node in nodes if node.is_usable))
        return added(*(self._taken[name].charged for name in places if name in self._taken))

    def _node(self, node: CapacityNode) -> tuple[CapacityNode, Node]:
        known = self._built.get(node.name)
        if known is not None and (known[0] is node or known[0] == node):
            return known
        taken = self._taken.get(node.name) or Taken()
        found = Node(
            name=node.name,
            allocatable=node.allocatable,
            used=dict(taken.used),
            leaving=dict(taken.leaving),
            labels=node.labels,
            taints=_taints(node),
            is_usable=node.is_ready and not node.is_cordoned,
        )
        return node, found


def strangers(waiting: Iterable[CapacityPod]) -> tuple[Stranger, ...]:
    """Those that wait for a node, equal ones together, the most important and oldest first."""
    found: dict[_Kind, list[CapacityPod]] = {}
    for pod in waiting:
        found.setdefault((_pairs(pod.requests), pod.constraints, pod.priority, pod.is_unschedulable), []).append(pod)
    ordered = sorted(((kind, _stranger(kind, pods)) for kind, pods in found.items()), key=_place_in_line)
    return tuple(stranger for _kind, stranger in ordered)


def _stranger(kind: _Kind, pods: list[CapacityPod]) -> Stranger:
    oldest = min(pods, key=lambda pod: (pod.created_at, pod.namespace, pod.name))
    counted = PodShape(oldest.requests, dict(kind[0]), oldest.constraints)
    return Stranger(
        shape_from(counted),
        len(pods),
        oldest.priority,
        oldest.created_at,
        is_unschedulable=oldest.is_unschedulable,
        name=f"{oldest.namespace}/{oldest.name}",
    )


def _place_in_line(item: tuple[_Kind, Stranger]) -> tuple[int, str, _Kind]:
    kind, stranger = item
    return -stranger.priority, stranger.created_at, kind


def _pairs(amounts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, amount) for name, amount in amounts.items() if name != PODS))


def _taints(node: CapacityNode) -> tuple[Taint, ...]:
    """Of a node that is away for now, those that it will still have when it is back: whom it could hold then can wait."""
    is_usable = node.is_ready and not node.is_cordoned
    taints = (Taint(*taint) for taint in node.taints)
    return tuple(taint for taint in taints if is_usable or not taint.key.startswith(TAINTS_OF_A_STATE))
