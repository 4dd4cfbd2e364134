"""Placement: the node for one more pod, and the capacity that is left.

For each pod shape the next node on which one fits by requests, constraints and number of pods, as kube-scheduler would
check. Records what was placed and released in this plan, and undoes it when an attempt fails. Each node has two
vectors: `free`, and `free_soon` once leaving pods are gone; the second never counts as free. The order of nodes
is the same for every order of the input; a node is never assigned more than it can hold.

Order of nodes: GPU pods go where the fewest of their GPUs are free, others where there are no GPUs; then where the
fewest kinds of pods may go, then where the least CPU is free, so that whole and rare nodes stay free for the pods that
need them. The order is that of the start of the plan, and kube-scheduler may choose otherwise: with pods of different
shapes a possible packing may not be found, and a found one may not happen. An excess shows at the next pass as pods
without a node.

Called by `allocate.py` and its parts; TJ §4, §7 item 3. During a plan capacity only grows where something is released,
so a shape that found no node checks only the nodes that gained since (PF:P10).
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from raytide.api.pod_requirements import CPU, HOST_PORT, PODS, Amounts, PodConstraints
from raytide.fairshare.algorithm.capacity_index import CapacityIndex, Requests, Vector, fits, times_that_fit
from raytide.fairshare.algorithm.model import MEMORY, Node, Shape
from raytide.fairshare.algorithm.node_affinity import NodeKinds, number_pools

ANY_NUMBER: Final = 1 << 60
"""Capacity of a node that does not limit its number of pods."""

UNOFFERED: Final = ""
"""Stands for all resources that no node has."""

_FEW: Final = 4
"""Fewer shapes than this check all nodes one by one; with more an index pays off."""


@dataclass(eq=False, slots=True)
class NodeCapacity:
    """One usable node: its index in the order of names, and its two vectors."""

    index: int
    name: str
    free: Vector
    free_soon: Vector


@dataclass(eq=False, slots=True)
class Cursor:
    """Where a shape fits next: nodes before `at` do not fit, except those in `regained`."""

    at: int = 0
    regained: list[int] = field(default_factory=list)
    seen: int = 0
    """The number of the last gain that has been considered."""


@dataclass(eq=False, slots=True)
class NodeOrder:
    """The nodes that a shape may use, best first."""

    nodes: list[NodeCapacity]
    position_of: dict[int, int]
    """Index of a node -> its place in this order."""
    allocatable: Vector
    """Of all of them together."""
    asked: int = 0
    """Number of shapes that have used it."""
    index: CapacityIndex | None = None
    indexed_at: int = 0
    """The number of the last gain when the index was built."""


@dataclass(eq=False, slots=True)
class PodShape:
    """One shape with the resource numbers of a pool; equal shapes are one object."""

    number: int
    requests: Requests
    limits: Requests
    resources: frozenset[int]
    """Those that it requests."""
    shape: Shape
    order: NodeOrder
    size: tuple[int, int, int]
    """GPUs, CPU, memory: the tie-breakers of the seed."""
    pool: int
    """The pool of its nodes; -1: no node admits it."""
    reachable: int
    """How many its nodes could hold by their sum, if they were empty."""
    unoffered: str = ""
    """The first resource that it requests and that no node has, in the order of names; it stands for all of these."""
    cursor: Cursor = field(default_factory=Cursor)
    cursor_soon: Cursor = field(default_factory=Cursor)
    """The same for capacity that is free once terminating pods are gone."""
    is_new: bool = True
    """Not placed or searched for yet."""


class ClusterCapacity:
    """All usable nodes and their free capacity in the course of one plan."""

    def __init__(self, nodes: Sequence[Node], shapes: Iterable[Shape], gpus: frozenset[str]) -> None:
        shapes = list({id(each): each for each in shapes}.values())  # most participants share a few objects
        self.gpus: Final = gpus
        self.resources: Final = _resources(nodes, shapes, gpus)
        self.number_of: Final = {name: number for number, name in enumerate(self.resources)}
        self.nodes: Final = sorted((node for node in nodes if node.is_usable), key=lambda node: node.name)
        self.node_capacities: Final = [self._node_capacity(index, node) for index, node in enumerate(self.nodes)]
        self.by_name: Final = {node.name: node for node in self.node_capacities}
        self._kinds = NodeKinds(self.nodes)
        largest = {each: self._kinds.largest(each) for each in {shape.constraints for shape in shapes}}
        # A shape that requests more than any of its nodes has keeps no node free, and joins no pools (TJ:D5).
        possible = {
            each.constraints
            for each in shapes
            if all(
                name == PODS or largest[each.constraints].get(name, 0) >= amount
                for name, amount in each.requests.items()
                if self._counts(name)
            )
        }
        self._asked_for = self._counts_of_kinds(possible)
        self.pool_of: Final = number_pools(len(self.nodes), map(self._kinds.admitting, possible))
        """Node -> its pool; -1: no shape may use it."""
        self._order_keys = [self._order_key(index, node) for index, node in enumerate(self.nodes)]
        self._gpus_of = [sum(node.allocatable.get(name, 0) for name in gpus) for node in self.nodes]
        self._orders: dict[tuple[PodConstraints, int], NodeOrder] = {}
        self._pods: dict[object, PodShape] = {}
        self._known: dict[int, tuple[Shape, PodShape]] = {}
        """By the identity of the shape: most participants share a few objects."""
        self._terminating = [node for node in self.node_capacities if node.free != node.free_soon]
        self._gains: dict[int, int] = {}
        """Node -> number of its last gain, in the order of these: each node once, however often an attempt is undone."""
        self._gain_count = 0

    def _node_capacity(self, index: int, node: Node) -> NodeCapacity:
        free = [self._free(node, name) for name in self.resources]
        free_soon = [own + node.terminating.get(name, 0) for own, name in zip(free, self.resources, strict=True)]
        return NodeCapacity(index, node.name, free, free_soon)

    @staticmethod
    def _free(node: Node, name: str) -> int:
        if name == PODS and PODS not in node.allocatable:
            return ANY_NUMBER
        return node.allocatable.get(name, 0) - node.used.get(name, 0)

    def _counts(self, name: str) -> bool:
        """Whether a plan looks at the resource: not at a port that no participant takes."""
        return name in self.number_of or not name.startswith(HOST_PORT)

    # --- shapes --------------------------------------------------------------------------------------------------------

    def pod(self, shape: Shape) -> PodShape:
        """The shape with this pool's resource numbers; every pod counts as one of `pods`."""
        known = self._known.get(id(shape))
        if known is not None:
            return known[1]
        pod = self._equal(shape)
        self._known[id(shape)] = shape, pod  # as long as the shape is kept, nothing else has its id
        return pod

    def _equal(self, shape: Shape) -> PodShape:
        """The single object for all equal shapes."""
        requests = {PODS: 1, **shape.requests}
        limits = {**requests, **shape.limits}
        key = (frozenset(requests.items()), frozenset(limits.items()), shape.constraints)
        found = self._pods.get(key)
        if found is None:
            found = self._pods[key] = self._new_pod(shape, requests, limits)
        return found

    def _new_pod(self, shape: Shape, requests: Amounts, limits: Amounts) -> PodShape:
        unoffered = min(
            (
                name
                for name, amount in requests.items()
                if amount > 0 and name not in self.number_of and self._counts(name)
            ),
            default="",
        )
        numbered = (*(((self.number_of[UNOFFERED], 1),) if unoffered else ()), *self.numbered(requests))
        gpu = next((number for number, _ in numbered if self.resources[number] in self.gpus), -1)
        size = (
            sum(amount for name, amount in requests.items() if name in self.gpus),
            requests.get(CPU, 0),
            requests.get(MEMORY, 0),
        )
        order = self._order(shape.constraints, gpu)
        pool = self.pool_of[order.nodes[0].index] if order.nodes else -1
        reachable = times_that_fit(numbered, order.allocatable)
        resources = frozenset(number for number, _ in numbered)
        pod = PodShape(
            len(self._pods), numbered, self.numbered(limits), resources, shape, order, size, pool, reachable, unoffered
        )
        pod.cursor_soon.at = len(pod.order.nodes)
        pod.cursor_soon.regained = sorted(
            pod.order.position_of[node.index] for node in self._terminating if node.index in pod.order.position_of
        )
        return pod

    def numbered(self, amounts: Amounts) -> Requests:
        """The amounts of resources that a node has, by number."""
        return tuple((self.number_of[name], amounts[name]) for name in self.resources if amounts.get(name, 0) > 0)

    def _order(self, constraints: PodConstraints, gpu: int) -> NodeOrder:
        found = self._orders.get((constraints, gpu))
        if found is None:
            nodes = [self.node_capacities[index] for index in self._kinds.admitting(constraints)]
            nodes.sort(key=lambda node: self._preference(node, gpu))
            found = NodeOrder(
                nodes, {node.index: position for position, node in enumerate(nodes)}, self._allocatable(nodes)
            )
            self._orders[constraints, gpu] = found
        return found

    def _allocatable(self, nodes: Iterable[NodeCapacity]) -> Vector:
        amounts = [self.nodes[node.index].allocatable for node in nodes]
        return [sum(each.get(name, ANY_NUMBER if name == PODS else 0) for each in amounts) for name in self.resources]

    def _counts_of_kinds(self, constraints: Iterable[PodConstraints]) -> list[int]:
        """How many different kinds of pods may use each node."""
        counts = [0] * len(self.node_capacities)
        for each in constraints:
            for index in self._kinds.admitting(each):
                counts[index] += 1
        return counts

    def _preference(self, node: NodeCapacity, gpu: int) -> tuple[int, ...]:
        """Computed once, when the shape is first used: usually before anything has been placed in the plan."""
        if gpu >= 0:
            spec, name = self.nodes[node.index], self.resources[gpu]
            return spec.allocatable.get(name, 0) - spec.used.get(name, 0), *self._order_keys[node.index]
        return self._gpus_of[node.index], *self._order_keys[node.index]

    def _order_key(self, index: int, node: Node) -> tuple[int, ...]:
        """Nodes for few kinds of pods first, then those with the least free capacity."""
        cpu, memory = (node.allocatable.get(name, 0) - node.used.get(name, 0) for name in (CPU, MEMORY))
        return self._asked_for[index], cpu, memory, index

    # --- nodes ---------------------------------------------------------------------------------------------------------

    def find(self, pod: PodShape, *, counts_terminating: bool = False) -> tuple[NodeCapacity, bool] | None:
        """The node for one more, and whether its capacity is free already; None if it fits nowhere, even soon.

        If `counts_terminating`, the capacity that terminating pods still use is not free.
        """
        if pod.is_new:
            self._first_look(pod)
        node = self._next(pod, pod.cursor, is_now=True)
        if node is not None:
            return node, True
        if counts_terminating:
            return None
        node = self._next(pod, pod.cursor_soon, is_now=False)
        return None if node is None else (node, False)

    def could_hold(self, pod: PodShape, among: Container[int] | None = None) -> bool:
        """Whether any node it may use (of those in `among`, if given) could hold one when empty."""
        names = self.resources
        return any(
            all(
                self.nodes[node.index].allocatable.get(names[number], ANY_NUMBER if names[number] == PODS else 0)
                >= amount
                for number, amount in pod.requests
            )
            for node in pod.order.nodes
            if among is None or node.index in among
        )

    def _first_look(self, pod: PodShape) -> None:
        """Move the cursors past all nodes if no node has capacity even soon."""
        pod.is_new = False
        order = pod.order
        order.asked += 1
        if order.asked < _FEW:
            return
        if order.index is None:
            order.index, order.indexed_at = (
                CapacityIndex([list(node.free_soon) for node in order.nodes]),
                self._gain_count,
            )
        if not order.index.holds(pod.requests):
            for cursor in (pod.cursor, pod.cursor_soon):
                cursor.at, cursor.seen, cursor.regained = len(order.nodes), order.indexed_at, []

    def _next(self, pod: PodShape, cursor: Cursor, *, is_now: bool) -> NodeCapacity | None:
        order = pod.order
        for index, number in reversed(self._gains.items()):
            if number <= cursor.seen:
                break
            position = order.position_of.get(index)
            if position is not None and position < cursor.at:
                heappush(cursor.regained, position)
        cursor.seen = self._gain_count
        while cursor.regained:
            node = order.nodes[cursor.regained[0]]
            if fits(pod.requests, node.free if is_now else node.free_soon):
                return node
            heappop(cursor.regained)
        nodes, end = order.nodes, len(order.nodes)
        while cursor.at < end:
            node = nodes[cursor.at]
            if fits(pod.requests, node.free if is_now else node.free_soon):
                return node
            cursor.at += 1
        return None

    def put(self, pod: PodShape, node: NodeCapacity) -> None:
        """Place one there."""
        free, free_soon = node.free, node.free_soon
        for resource, amount in pod.requests:
            free[resource] -= amount
            free_soon[resource] -= amount

    def unplace(self, pod: PodShape, node: NodeCapacity) -> None:
        """Undo `put`."""
        free, free_soon = node.free, node.free_soon
        for resource, amount in pod.requests:
            free[resource] += amount
            free_soon[resource] += amount
        self._record_gain(node)

    def release(self, pod: PodShape, node: NodeCapacity) -> None:
        """Record that one that is there will leave."""
        free_soon = node.free_soon
        for resource, amount in pod.requests:
            free_soon[resource] += amount
        self._record_gain(node)

    def _record_gain(self, node: NodeCapacity) -> None:
        self._gain_count += 1
        self._gains.pop(node.index, None)
        self._gains[node.index] = self._gain_count

    def keep(self, pod: PodShape, node: NodeCapacity) -> None:
        """Undo `release`."""
        free_soon = node.free_soon
        for resource, amount in pod.requests:
            free_soon[resource] -= amount


def _resources(nodes: Iterable[Node], shapes: Sequence[Shape], gpus: frozenset[str]) -> tuple[str, ...]:
    """Every resource that a shape requests and a node has, scarce ones first: the order in which shortages are reported.

    Tenants write requests: names that no node has are one resource together, and no number each in each node (FD:SEC3-1).
    """
    offered = {name for node in nodes for name in node.allocatable} | {CPU, MEMORY, PODS}
    requested = {name for shape in shapes for amounts in (shape.requests, shape.limits) for name in amounts}
    names = requested & offered
    unoffered = any(not name.startswith(HOST_PORT) for name in requested - offered)
    first = [*([UNOFFERED] if unoffered else []), *sorted(names & gpus), CPU, MEMORY]
    return (*first, *sorted(names - {*first, PODS}), PODS)


def count_that_fits(pod: PodShape, vectors: Mapping[int, Vector], *, enough: int) -> int:
    """How many fit on the nodes that the shape may use, given free capacity by node index; stops at `enough`."""
    found = 0
    scarce, minimum = pod.requests[0]
    for node in pod.order.nodes:
        vector = vectors[node.index]
        if vector[scarce] >= minimum:
            found += times_that_fit(pod.requests, vector)
            if found >= enough:
                return enough
    return found
