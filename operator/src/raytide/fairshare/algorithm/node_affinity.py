"""Node affinity: whether a pod's constraints allow a node, regardless of capacity.

Compares a node's labels, name and taints with a pod's node selector, required node affinity and tolerations, as
kube-scheduler's filters do. `NodeKinds` groups nodes that no constraint of the pool can distinguish, so that a thousand
nodes take a few checks. Capacity is in `placement.py`. Rules TJ §7 item 3.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from raytide.api.pod_requirements import Amounts, NodeRequirement, PodConstraints, PodToleration
from raytide.fairshare.algorithm.model import Node, Taint

_KEEPS_AWAY: Final = frozenset({"NoSchedule", "NoExecute"})
_NAME_FIELD: Final = "metadata.name"


def admits(node: Node, constraints: PodConstraints) -> bool:
    """Whether the node's labels, name and taints allow the pod."""
    return (
        all(node.labels.get(key) == value for key, value in constraints.node_selector)
        and (not constraints.terms or any(_meets(node, term) for term in constraints.terms))
        and all(_is_tolerated(taint, constraints.tolerations) for taint in node.taints if taint.effect in _KEEPS_AWAY)
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


class NodeKinds:
    """Nodes grouped by what the constraints of one pool can distinguish; checks each (kind, constraints) once."""

    def __init__(self, nodes: Sequence[Node], constraints: Iterable[PodConstraints]) -> None:
        looked_at, sees_names = _looked_at(constraints)
        present = {key for node in nodes for key in node.labels}
        keys = sorted(looked_at & present)  # a key that no node has distinguishes none
        self._members: dict[tuple[object, ...], list[int]] = {}
        self._first: dict[tuple[object, ...], Node] = {}
        self._largest: dict[tuple[object, ...], dict[str, int]] = {}
        self._admitting: dict[PodConstraints, list[tuple[object, ...]]] = {}
        for index, node in enumerate(nodes):
            labels = tuple(node.labels.get(key) for key in keys)
            kind = (labels, node.taints, node.name if sees_names else "")
            self._members.setdefault(kind, []).append(index)
            self._first.setdefault(kind, node)
            _raise_to(self._largest.setdefault(kind, {}), node.allocatable)

    @property
    def count(self) -> int:
        """How many kinds there are."""
        return len(self._members)

    def largest(self, constraints: PodConstraints) -> dict[str, int]:
        """The most of each resource that one of the nodes that admit the pod has."""
        found: dict[str, int] = {}
        for kind in self._kinds(constraints):
            _raise_to(found, self._largest[kind])
        return found

    def admitting(self, constraints: PodConstraints) -> list[int]:
        """The positions of all nodes that admit the pod, ascending."""
        return sorted(index for kind in self._kinds(constraints) for index in self._members[kind])

    def _kinds(self, constraints: PodConstraints) -> list[tuple[object, ...]]:
        """The kinds of nodes that admit the pod."""
        if constraints not in self._admitting:
            self._admitting[constraints] = [kind for kind, node in self._first.items() if admits(node, constraints)]
        return self._admitting[constraints]


def _raise_to(largest: dict[str, int], amounts: Amounts) -> None:
    for name, amount in amounts.items():
        if amount > largest.get(name, 0):
            largest[name] = amount


def _looked_at(constraints: Iterable[PodConstraints]) -> tuple[set[str], bool]:
    """The label keys that any of the constraints reads, and whether any reads node names."""
    keys: set[str] = set()
    sees_names = False
    for each in constraints:
        keys.update(key for key, _ in each.node_selector)
        for requirement in (one for term in each.terms for one in term):
            if requirement.is_field:
                sees_names = True
            else:
                keys.add(requirement.key)
    return keys, sees_names


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
