"""Node factory: planning nodes from instances and node types.

Turns instances into nodes of a class each: a running one with the resources Ray reports, any other with those of its
type (AS:S-2..S-4). Resources that no request names, such as a node's address, its object store and other placement
groups, are kept apart, so that nodes are equal if no request distinguishes them. Instances that cannot reach
RAY_RUNNING and draining ones are no capacity (B-6). Pure; called by schedule.py.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from raytide.autoscaler.model import (
    COUNTABLE,
    RESOURCE_UNIT_SCALING,
    Amounts,
    Instance,
    Labels,
    NodeType,
    Status,
    TerminationCause,
    implicit_amount,
)
from raytide.autoscaler.scheduling.devices import devices_of
from raytide.autoscaler.scheduling.node_classes import (
    Free,
    Node,
    NodeClass,
    NodeDisposition,
    NodeTraits,
    ScoreTerms,
    Term,
)
from raytide.autoscaler.scheduling.resource_shapes import ACCELERATORS, RequestedNames, accelerators_in, positive

_PLACEMENT_GROUP = "_group_"
"""Part of the name of every resource that Ray adds to a node for a placement group."""
_NodeClassKey: TypeAlias = tuple[str, bool, int, Amounts, Amounts, Labels, int]
"""Node type, is head, accelerators it is reserved for, total, available, labels, number of other unused resources."""


class NodeFactory:
    """Builds nodes from instances and types; equal ones share a class."""

    _pending_statuses = COUNTABLE - {Status.RAY_STOP_REQUESTED}
    """Of instances that will be capacity."""

    def __init__(self, requested: RequestedNames, types: Iterable[NodeType], *, is_conserving: bool = True) -> None:
        self.requested = requested
        self._types: Mapping[str, NodeType] = {one.name: one for one in types}
        self._conserved = -1 if is_conserving else 0
        """Accelerators that nodes are kept for, one bit each."""
        self._running: dict[_NodeClassKey, NodeClass] = {}
        self._typed: dict[tuple[str, bool, NodeDisposition, bool], NodeClass] = {}
        self._replicas_with_first: set[tuple[str, str]] = set()
        """(type, replica) with a host known to be the first."""
        self._nameless: Counter[str] = Counter()
        """By type, hosts without a Ray node and without a known replica."""
        self._traits: dict[tuple[object, ...], NodeTraits] = {}

    def nodes(self, instances: Iterable[Instance], pending: NodeDisposition = NodeDisposition.KEPT) -> list[Node]:
        """Nodes that count, in instance order; `pending` is the disposition of those not running yet."""
        nodes = []
        instances = tuple(instances)
        self._find_first(instances)
        for instance in instances:
            if instance.status is Status.RAY_RUNNING:
                nodes.append(self._read_running(instance))
            elif instance.status in self._pending_statuses:
                node = self._read_pending(instance, pending)
                if node is not None:
                    nodes.append(node)
        return nodes

    def fresh(self, node_type: NodeType) -> NodeClass:
        """Class of this type's nodes to launch, except for a replica's first host if that differs."""
        return self._of_type(node_type, NodeDisposition.TO_LAUNCH, is_head=False)

    def fresh_first(self, node_type: NodeType) -> NodeClass | None:
        """Class of each launched replica's first host, if it differs from the others."""
        return (
            self._of_type(node_type, NodeDisposition.TO_LAUNCH, is_head=False, is_first=True)
            if node_type.has_first
            else None
        )

    def fresh_replica(self, node_type: NodeType) -> list[NodeClass]:
        """Classes of all hosts of a replica to launch."""
        node_class, first = self.fresh(node_type), self.fresh_first(node_type)
        return [first or node_class, *(node_class for _ in range(node_type.num_of_hosts - 1))]

    def _find_first(self, instances: Iterable[Instance]) -> None:
        """Collect the replicas whose first host is running: its resources identify it."""
        marks = {
            one.name: frozenset(name for name, _ in one.first_resources) - frozenset(name for name, _ in one.resources)
            for one in self._types.values()
            if one.has_first
        }
        for instance in instances if marks else ():
            mark = marks.get(instance.node_type)
            if mark and instance.status is Status.RAY_RUNNING and any(name in mark for name, _ in instance.total):
                self._replicas_with_first.add((instance.node_type, instance.replica))

    def _is_first(self, node_type: NodeType, instance: Instance) -> bool:
        """Whether this host without a Ray node counts as the first of its replica; each replica has one."""
        if not node_type.has_first:
            return False
        if not instance.replica:
            self._nameless[node_type.name] += 1
            return self._nameless[node_type.name] % node_type.num_of_hosts == 1
        key = (node_type.name, instance.replica)
        is_first = key not in self._replicas_with_first
        self._replicas_with_first.add(key)
        return is_first

    def _read_running(self, instance: Instance) -> Node:
        """Classify by what requests name only; one pass, because hardly any two nodes report the same amounts."""
        index = self.requested.index
        unused = accelerators = 0
        asked: list[tuple[str, int]] = []
        for pair in instance.total:
            name, amount = pair
            if name in index:
                asked.append(pair)
            elif amount > 0 and _PLACEMENT_GROUP not in name:
                unused += 1
            if amount > 0 and name in ACCELERATORS:
                accelerators |= ACCELERATORS[name]
        free = dict(instance.available) if asked else {}
        available = tuple((name, min(amount, free[name])) for name, amount in asked if name in free)
        accelerators &= self._conserved
        labels = self._requested_labels(instance)
        return self._running_node(
            instance, (instance.node_type, instance.is_head, accelerators, tuple(asked), available, labels, unused)
        )

    def _running_node(self, instance: Instance, key: _NodeClassKey) -> Node:
        node_class = self._running.get(key)
        if node_class is None:
            node_class = self._running[key] = self._running_class(key)
        return Node(node_class, instance)

    def _running_class(self, key: _NodeClassKey) -> NodeClass:
        type_name, is_head, accelerators, total, available, labels, zero_terms = key
        traits = self._traits_of(
            type_name, total, available, zero_terms, is_head=is_head, is_running=True, accelerators=accelerators
        )
        return NodeClass(traits, (self._vector(available), self._vector(total)), labels)

    def _read_pending(self, instance: Instance, disposition: NodeDisposition) -> Node | None:
        node_type = self._types.get(instance.node_type)
        if node_type is not None:
            is_first = self._is_first(node_type, instance)
            return Node(self._of_type(node_type, disposition, is_head=instance.is_head, is_first=is_first), instance)
        if instance.is_unmanaged:
            return None
        node = Node(
            self._of_type(NodeType(instance.node_type), NodeDisposition.KEPT, is_head=instance.is_head), instance
        )
        node.cause = TerminationCause.OUTDATED
        return node

    def _of_type(
        self, node_type: NodeType, disposition: NodeDisposition, *, is_head: bool, is_first: bool = False
    ) -> NodeClass:
        key = (node_type.name, is_head, disposition, is_first)
        known = self._typed.get(key)
        if known is None:
            total = node_type.first_resources if is_first else node_type.resources
            accelerators = self._kept_for(total)
            traits = self._traits_of(
                node_type.name, total, total, 0, is_head=is_head, is_running=False, accelerators=accelerators
            )
            asked = self.requested.labels
            offered = node_type.first_labels if is_first else node_type.labels
            labels = tuple(pair for pair in offered if pair[0] in asked)
            vector = self._vector(total)
            known = self._typed[key] = NodeClass(traits, (vector, vector), labels, disposition=disposition)
        return known

    def _requested_labels(self, instance: Instance) -> Labels:
        """Static labels overlaid by dynamic ones, limited to those named by requests."""
        asked = self.requested.labels
        if not asked:
            return ()
        labels = {key: value for key, value in instance.labels if key in asked}
        labels.update((key, value) for key, value in instance.dynamic_labels if key in asked)
        return tuple(sorted(labels.items()))

    def _vector(self, amounts: Amounts) -> Free:
        known, requested = dict(amounts), self.requested
        free = [known.get(n, implicit_amount(n)) for n in requested.resources]
        for resource, place in requested.devices.items():
            free += devices_of(free[resource], place.stop - place.start)
        return tuple(free)

    def _kept_for(self, total: Amounts) -> int:
        """The accelerators the score reserves such a node for."""
        return accelerators_in(positive(total)) & self._conserved

    def _traits_of(
        self,
        type_name: str,
        total: Amounts,
        available: Amounts,
        zero_terms: int,
        *,
        is_head: bool,
        is_running: bool,
        accelerators: int,
    ) -> NodeTraits:
        index = self.requested.index
        unrequested = tuple(pair for pair in available if pair[0] not in index)
        available_names = tuple(name for name, _ in available if name in index)
        # Of requested resources the names are enough: the score computes their terms from what is free at that moment.
        key = (type_name, is_head, is_running, accelerators, total, unrequested, available_names, zero_terms)
        known = self._traits.get(key)
        if known is None:
            node_type = self._types.get(type_name)
            known = self._traits[key] = NodeTraits(
                type_name,
                node_type.priority if node_type else 0,
                is_head,
                is_running,
                total,
                sum(1 << index[name] for name, _ in total if name in index),
                accelerators,
                (self._score_terms(total, available, zero_terms), self._score_terms(total, total, zero_terms)),
            )
        return known

    def _score_terms(self, total: Amounts, available: Amounts, zero_terms: int) -> ScoreTerms:
        """The terms of AS:S-21 (4) and (5), in resource order; those that placement cannot change are constants."""
        terms: list[Term] = []
        free = dict(available)
        for name, amount in total:
            if not amount or name not in free:
                continue
            whole, resource = amount / RESOURCE_UNIT_SCALING, self.requested.index.get(name, -1)
            share = (whole - free[name] / RESOURCE_UNIT_SCALING) / whole
            term = whole * (share**3)
            if resource < 0 and term == 0:
                zero_terms += 1
            else:
                terms.append((whole, resource, term))
        return ScoreTerms(tuple(terms), zero_terms)
