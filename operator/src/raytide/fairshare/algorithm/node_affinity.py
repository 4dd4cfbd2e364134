"""Node affinity: whether a pod's constraints allow a node, regardless of capacity.

Compares a node's labels, name and taints with a pod's node selector, required node affinity and tolerations, as
kube-scheduler's filters do. `NodeKinds` groups the nodes that a constraint cannot distinguish, so that a thousand
nodes take a few checks. Capacity is in `placement.py`. Rules TJ §7 item 3.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from raytide.api.pod_requirements import Amounts, NodeRequirement, PodConstraints, PodToleration
from raytide.fairshare.algorithm.model import Node, Taint

_KEEPS_AWAY: Final = frozenset({"NoSchedule", "NoExecute"})
_NAME_FIELD: Final = "metadata.name"


def admits(node: Node, constraints: PodConstraints) -> bool:
    """Whether the node's labels, name and taints allow the pod."""
    return matches(node, constraints) and next(untolerated(node, constraints), None) is None


def matches(node: Node, constraints: PodConstraints) -> bool:
    """Whether the node's labels and name are as selector and required affinity of the pod want them."""
    return all(node.labels.get(key) == value for key, value in constraints.node_selector) and (
        not constraints.terms or any(_meets(node, term) for term in constraints.terms)
    )


def untolerated(node: Node, constraints: PodConstraints) -> Iterator[Taint]:
    """The taints of the node that keep the pod away."""
    return (
        taint
        for taint in node.taints
        if taint.effect in _KEEPS_AWAY and not _is_tolerated(taint, constraints.tolerations)
    )


def _meets(node: Node, term: Sequence[NodeRequirement]) -> bool:
    """Whether all of a term holds; an empty term matches nothing, as in Kubernetes."""
    return bool(term) and all(_holds(requirement, _value(node, requirement)) for requirement in term)


def _value(node: Node, requirement: NodeRequirement) -> str | None:
    if requirement.is_field:
        return node.name if requirement.key == _NAME_FIELD else None
    return node.labels.get(requirement.key)


def _holds(requirement: NodeRequirement, value: str | None) -> bool:
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement, value)
        case _:
            return False


def _compares(requirement: NodeRequirement, value: str | None) -> bool:
    """Gt and Lt: whole numbers on both sides, and exactly one to compare with."""
    if value is None or len(requirement.values) != 1:
        return False
    try:
        actual, bound = int(value), int(*requirement.values)
    except ValueError:
        return False
    return actual > bound if requirement.operator == "Gt" else actual < bound


def _is_tolerated(taint: Taint, tolerations: Iterable[PodToleration]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: PodToleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.operator in ("", "Equal") and (toleration.key, toleration.value) == (taint.key, taint.value)


@dataclass(slots=True)
class _Kind:
    """Nodes that a pod cannot distinguish."""

    first: Node
    members: list[int] = field(default_factory=list)
    """Positions, ascending."""
    largest: dict[str, int] = field(default_factory=dict)


class NodeKinds:
    """Nodes grouped, for each set of labels that constraints read, by what these can distinguish; checks each kind once."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._present = {key for node in nodes for key in node.labels}
        self._kinds: dict[tuple[frozenset[str], bool], list[_Kind]] = {}
        self._admitting: dict[PodConstraints, list[_Kind]] = {}

    def cost(self, constraints: PodConstraints) -> int:
        """How many comparisons it takes to place pods with these constraints, roughly."""
        return len(self._nodes) + len(self._distinguished(constraints)) * (1 + entries_of(constraints))

    def largest(self, constraints: PodConstraints) -> dict[str, int]:
        """The most of each resource that one of the nodes that admit the pod has."""
        found: dict[str, int] = {}
        for kind in self._admitted(constraints):
            _raise_to(found, kind.largest)
        return found

    def admitting(self, constraints: PodConstraints) -> list[int]:
        """The positions of all nodes that admit the pod, ascending."""
        return sorted(index for kind in self._admitted(constraints) for index in kind.members)

    def _admitted(self, constraints: PodConstraints) -> list[_Kind]:
        if constraints not in self._admitting:
            kinds = self._distinguished(constraints)
            self._admitting[constraints] = [kind for kind in kinds if admits(kind.first, constraints)]
        return self._admitting[constraints]

    def _distinguished(self, constraints: PodConstraints) -> list[_Kind]:
        looked_at, sees_names = _looked_at(constraints)
        keys = frozenset(looked_at & self._present)  # a key that no node has distinguishes none
        if (keys, sees_names) not in self._kinds:
            found: dict[tuple[object, ...], _Kind] = {}
            for index, node in enumerate(self._nodes):
                labels = tuple(node.labels.get(key) for key in keys)
                kind = found.setdefault((labels, node.taints, node.name if sees_names else ""), _Kind(node))
                kind.members.append(index)
                _raise_to(kind.largest, node.allocatable)
            self._kinds[keys, sees_names] = list(found.values())
        return self._kinds[keys, sees_names]


def entries_of(constraints: PodConstraints) -> int:
    """Entries of the selector, requirements and tolerations."""
    return len(constraints.node_selector) + sum(map(len, constraints.terms)) + len(constraints.tolerations)


def _raise_to(largest: dict[str, int], amounts: Amounts) -> None:
    for name, amount in amounts.items():
        if amount > largest.get(name, 0):
            largest[name] = amount


def _looked_at(constraints: PodConstraints) -> tuple[set[str], bool]:
    """The label keys that the constraints read, and whether they read the node's name."""
    requirements = [one for term in constraints.terms for one in term]
    keys = {key for key, _ in constraints.node_selector} | {one.key for one in requirements if not one.is_field}
    return keys, any(one.is_field for one in requirements)


def number_pools(node_count: int, admitted: Iterable[Iterable[int]]) -> list[int]:
    """The pool number of each node; -1 for a node that no constraint admits.

    `admitted` has the nodes that each constraint admits. The pools are the connected components, by union-find: two
    nodes are in the same pool if one constraint admits both, directly or through a chain of nodes.
    """
    parent = list(range(node_count))

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    is_admitted = [False] * node_count
    for admitted_nodes in admitted:
        first = -1
        for node in admitted_nodes:
            is_admitted[node] = True
            first = node if first < 0 else first
            parent[root(node)] = root(first)
    pool_by_root: dict[int, int] = {}
    return [
        pool_by_root.setdefault(root(node), len(pool_by_root)) if is_admitted[node] else -1
        for node in range(node_count)
    ]
