"""The node that comes closest to one more pod, and what it lacks for it, in words.

Used for the pods of submitted RayClusters that get no node. Decides nothing; pure. Called by raycluster_outcome.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from raytide.api.pod_requirements import PODS, Amounts, PodConstraints
from raytide.diagnosis.render import counted
from raytide.fairshare.algorithm.format_quantity import spell, spell_with_name
from raytide.fairshare.algorithm.model import ClusterSnapshot, Node, Shape
from raytide.fairshare.algorithm.node_affinity import admits


@dataclass(frozen=True, slots=True)
class _Gap:
    """What one node lacks for one more pod."""

    node: Node
    free: Amounts
    missing: Amounts


class _FreeCapacity:
    """Every usable node with what is free there."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self.unusable: Final = sum(not node.is_usable for node in snapshot.nodes)
        self._nodes = [node for node in snapshot.nodes if node.is_usable]

    def gaps(self, shape: Shape) -> list[_Gap]:
        """The nodes that admit such a pod, by what they lack, the least first; nodes that lack nothing lead."""
        allowed = (node for node in self._nodes if admits(node, shape.constraints))
        return sorted((self._node_gap(node, shape) for node in allowed), key=lambda gap: _distance(gap, shape))

    def excluded(self, constraints: PodConstraints) -> int:
        """How many usable nodes its constraints keep it from."""
        return sum(not admits(node, constraints) for node in self._nodes)

    def _node_gap(self, node: Node, shape: Shape) -> _Gap:
        wants = {PODS: 1, **shape.requests}
        free = {
            name: node.allocatable.get(name, 0) - node.used.get(name, 0) + node.terminating.get(name, 0)
            for name in wants
            if name != PODS or PODS in node.allocatable
        }
        missing = {name: wants[name] - left for name, left in free.items() if left < wants[name]}
        return _Gap(node, free, missing)


def _distance(gap: _Gap, shape: Shape) -> tuple[int, float, str]:
    parts = [amount / max(1, shape.requests.get(name, 1)) for name, amount in gap.missing.items()]
    return len(parts), sum(parts), gap.node.name


def why_unschedulable(snapshot: ClusterSnapshot, shape: Shape) -> str:
    """Why one more pod of that shape fits on no node of the snapshot, in words."""
    return "; ".join(_node_lines(shape, _FreeCapacity(snapshot)))


def _node_lines(shape: Shape, capacity: _FreeCapacity) -> Iterator[str]:
    gaps = capacity.gaps(shape)
    if excluded := capacity.excluded(shape.constraints):
        yield f"{counted(excluded, 'node')} excluded by node selector, affinity or taints"
    if capacity.unusable:
        yield f"{counted(capacity.unusable, 'node')} not usable: not ready, or cordoned"
    if not gaps:
        yield "it may run on none of the usable nodes"
    elif gaps[0].missing:
        first = gaps[0]
        lacks = ", ".join(_lack(name, amount, first, shape) for name, amount in first.missing.items())
        others = f", of {len(gaps)} that it may run on" if len(gaps) > 1 else ""
        yield f"node {first.node.name} comes closest{others}: it lacks {lacks}"


def _lack(name: str, amount: int, gap: _Gap, shape: Shape) -> str:
    wanted = {PODS: 1, **shape.requests}[name]
    there = max(0, gap.free[name])
    total = gap.node.allocatable.get(name, 0)
    return f"{spell_with_name(name, amount)} (it requests {spell_with_name(name, wanted)}; {spell(name, there)} of {spell(name, total)} free)"
