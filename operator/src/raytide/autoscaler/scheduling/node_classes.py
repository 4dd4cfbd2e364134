"""Node classes and the fleet of one decision.

Nodes with equal totals, free amounts, relevant labels and placements form one class; packing works on classes and takes
members from the front. A fleet holds the classes of one decision and applies accepted plans to them, so nothing is
copied or undone: a plan that is not accepted changes nothing. Every node is planned for twice, for demand and for the resource constraint (AS:S-5): two free amounts, two score terms.
Filled by node_factory.py, read by packing.py, used by session.py.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from raytide.autoscaler.model import Amounts, Instance, Labels, TerminationCause
from raytide.autoscaler.scheduling.resource_shapes import RequestedNames, Run, Shape

DEMAND: Final = 0
CONSTRAINT: Final = 1

Free: TypeAlias = tuple[int, ...]
"""Free amount of each requested resource, by its index; behind these, those of single devices (RequestedNames.devices)."""
Term: TypeAlias = tuple[float, int, float]
"""One resource in the score: (total, index or -1, the constant term if -1)."""


class NodeDisposition(IntEnum):
    """What this decision means for a node."""

    KEPT = 0
    TO_LAUNCH = 1
    TO_TERMINATE = 2
    WAITING = 3
    """Requested and waiting for capacity: it holds only demand that fits no other node."""


class Placed(NamedTuple):
    """What earlier steps placed on a node, as far as the score needs it."""

    mask: int = 0
    accelerators: int = 0
    """Accelerators named by requests placed on it, one bit each."""
    ranked: tuple[Shape, ...] = ()
    """Shapes with selectors, in placement order, each once."""
    is_used: bool = False


NOTHING: Final = Placed()


@dataclass(slots=True, eq=False)
class ScoreTerms:
    """Score input of a node before anything is placed (AS:S-21)."""

    terms: tuple[Term, ...]
    zero_terms: int
    """Number of further terms that are 0 whatever is placed."""


@dataclass(slots=True, eq=False)
class NodeTraits:
    """Properties that placement does not change."""

    type_name: str
    priority: int
    is_head: bool
    is_running: bool
    total: Amounts
    """Without the node's own resources, which are kept apart."""
    total_mask: int
    accelerators: int
    """Accelerators the score reserves it for, one bit each; 0: not reserved."""
    score_terms: tuple[ScoreTerms, ScoreTerms]


@dataclass(slots=True, eq=False)
class NodeClass:
    """Nodes that no request distinguishes."""

    traits: NodeTraits
    free: tuple[Free, Free]
    labels: Labels
    placed: tuple[Placed, Placed] = (NOTHING, NOTHING)
    disposition: NodeDisposition = NodeDisposition.KEPT
    members: list["Node"] = field(default_factory=list)
    """In order of position."""
    label_map: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.label_map = dict(self.labels)


class Node:
    """One node that exists, is launching, or is to be launched."""

    __slots__ = ("_first_home", "cause", "instance", "node_class", "position")

    def __init__(self, node_class: NodeClass, instance: Instance | None = None) -> None:
        self.node_class = self._first_home = node_class
        self.instance = instance
        self.cause: TerminationCause | None = None
        self.position = -1
        """Order in the fleet; negative before it belongs to one."""

    def forget(self) -> None:
        """Reset to the state before packing, for another fleet."""
        self.node_class = self._first_home
        self.position = -1

    def copy(self) -> "Node":
        """A copy in the state before packing."""
        duplicate = Node(self._first_home, self.instance)
        duplicate.cause = self.cause
        return duplicate

    @property
    def is_head(self) -> bool:
        """Whether the head runs on it."""
        return self.node_class.traits.is_head

    @property
    def type_name(self) -> str:
        """Name of its Ray node type, which is its worker group; empty for a node outside the groups."""
        return self.node_class.traits.type_name


@dataclass(slots=True, eq=False)
class BinFill:
    """What one node takes: counts per run, and its free amounts afterwards."""

    takes: list[tuple[int, int]]
    left: Free
    marks: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Move:
    """A fill and the nodes that each take it."""

    nodes: Sequence[Node]
    fill: BinFill


@dataclass(slots=True)
class Plan:
    """Result of one packing; it has no effect until a fleet accepts it."""

    book: int
    shapes: list[Shape]
    moves: list[Move] = field(default_factory=list)
    launches: list[Move] = field(default_factory=list)
    left: list[Run] = field(default_factory=list)
    is_tied: bool = False
    """Whether two types to launch had equal scores at some point."""


class NodeClasses:
    """All nodes of one decision, by class."""

    def __init__(self, requested: RequestedNames) -> None:
        self.requested = requested
        self._classes: dict[tuple[object, ...], NodeClass] = {}
        self._next_position = 0

    def settle(self, nodes: Iterable[Node]) -> None:
        """Put nodes into their classes, after those already there, in this order."""
        goals: dict[tuple[NodeClass, bool], NodeClass] = {}
        for node in nodes:
            key = (node.node_class, node.cause is None)
            node_class = goals.get(key)
            if node_class is None:
                node_class = goals[key] = self.like(
                    node.node_class,
                    disposition=node.node_class.disposition if node.cause is None else NodeDisposition.TO_TERMINATE,
                )
            node.node_class = node_class
            node.position = self._next_position
            self._next_position += 1
            node_class.members.append(node)

    def classes(self) -> Iterator[NodeClass]:
        """Classes with members."""
        return (one for one in self._classes.values() if one.members)

    def nodes(self) -> list[Node]:
        """All nodes, in order."""
        return sorted((n for one in self._classes.values() for n in one.members), key=_position)

    def counts(self, *, is_counting_ending: bool) -> Counter[str]:
        """Nodes by type."""
        counts: Counter[str] = Counter()
        for one in self._classes.values():
            if is_counting_ending or one.disposition is not NodeDisposition.TO_TERMINATE:
                counts[one.traits.type_name] += len(one.members)
        return counts

    def like(self, node_class: NodeClass, *, disposition: NodeDisposition) -> NodeClass:
        """The class of such nodes with that disposition."""
        return self._intern(node_class.traits, node_class.free, node_class.labels, node_class.placed, disposition)

    def accept(self, plan: Plan) -> None:
        """Apply a plan."""
        touched: set[NodeClass] = set()
        for move in plan.moves:
            touched.update(node.node_class for node in move.nodes)
            touched.update(self._place(move, plan))
        for node_class in touched:
            node_class.members = [node for node in node_class.members if node.node_class is node_class]
        for node_class in touched:
            node_class.members.sort(key=_position)
        for launch in plan.launches:
            self._place(launch, plan)
            for node in launch.nodes:
                node.position = self._next_position
                self._next_position += 1

    def _place(self, move: Move, plan: Plan) -> Iterable[NodeClass]:
        """Move nodes to their classes after this fill; return these classes."""
        goals: dict[NodeClass, NodeClass] = {}
        for node in move.nodes:
            source = node.node_class
            goal = goals.get(source)
            if goal is None:
                goal = goals[source] = self._after(source, move.fill, plan)
            if goal is not source or node.position < 0:
                node.node_class = goal
                goal.members.append(node)
        return goals.values()

    def _after(self, node_class: NodeClass, fill: BinFill, plan: Plan) -> NodeClass:
        """The class of a member of `home` after this fill."""
        if not fill.takes:
            return self.like(node_class, disposition=node_class.disposition)
        placed = placed_after(node_class.placed[plan.book], fill.takes, plan.shapes)
        lasting = self.requested.lasting_labels
        labels = node_class.labels
        marks = [pair for pair in fill.marks if pair[0] in lasting]
        if marks:
            labels = tuple(sorted({**node_class.label_map, **dict(marks)}.items()))
        if plan.book == DEMAND:
            return self._intern(
                node_class.traits,
                (fill.left, node_class.free[1]),
                labels,
                (placed, node_class.placed[1]),
                node_class.disposition,
            )
        return self._intern(
            node_class.traits,
            (node_class.free[0], fill.left),
            labels,
            (node_class.placed[0], placed),
            node_class.disposition,
        )

    def _intern(
        self,
        traits: NodeTraits,
        free: tuple[Free, Free],
        labels: Labels,
        placed: tuple[Placed, Placed],
        disposition: NodeDisposition,
    ) -> NodeClass:
        key = (traits, free, labels, placed, disposition)
        known = self._classes.get(key)
        if known is None:
            known = self._classes[key] = NodeClass(traits, free, labels, placed, disposition)
        return known


def placed_after(placed: Placed, takes: Iterable[tuple[int, int]], shapes: Sequence[Shape]) -> Placed:
    """The placements after these takes."""
    mask, accelerators, ranked, _ = placed
    for run, _ in takes:
        shape = shapes[run]
        mask |= shape.mask
        accelerators |= shape.accelerators
        if shape.request.selectors and shape not in ranked:
            ranked = (*ranked, shape)
    return Placed(mask, accelerators, ranked, is_used=True)


def _position(node: Node) -> int:
    return node.position
