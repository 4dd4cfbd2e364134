"""Which nodes are alike, and where is what placed?

Nodes with the same totals, free amounts, labels that anybody asks for, and placements form one class; packing looks
at classes and takes members from the front. A fleet holds the classes of one decision and writes accepted plans into
them, so nothing is ever copied or undone: a plan that is not accepted was never written. Every node has two books,
demand and constraint (AS:S-5). Filled by reading.py, read by packing.py, used by schedule.py.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from raytide.autoscaler.model import Amounts, Cause, Instance, Labels
from raytide.autoscaler.scheduling.shapes import Run, Shape, Vocabulary

DEMAND: Final = 0
CONSTRAINT: Final = 1

Free: TypeAlias = tuple[int, ...]
"""What is left of each resource that anybody asks for, by its index."""
Term: TypeAlias = tuple[float, int, float]
"""One resource in the score: (total, index or -1, the constant term if -1)."""


class Fate(IntEnum):
    """What this decision means for a node."""

    STAYS = 0
    COMES = 1
    ENDS = 2
    WAITS = 3
    """For room: it holds only what nothing else can hold."""


class Placed(NamedTuple):
    """What earlier steps put on a node, as far as the score asks for it."""

    mask: int = 0
    accelerators: int = 0
    """Those that requests on it name, one bit each."""
    ranked: tuple[Shape, ...] = ()
    """Shapes with selectors, in order of placement, each once."""
    is_used: bool = False


NOTHING: Final = Placed()


@dataclass(slots=True, eq=False)
class BookTraits:
    """What the score knows of a node before anything is placed (AS:S-21)."""

    terms: tuple[Term, ...]
    zeros: int
    """Further terms that are 0 whatever is placed."""
    is_broken: bool
    """More is free than there is in all; Ray fails on it."""


@dataclass(slots=True, eq=False)
class Traits:
    """What placing does not change."""

    type_name: str
    priority: int
    is_head: bool
    is_running: bool
    total: Amounts
    """Without what was kept apart as the node's own."""
    total_mask: int
    accelerators: int
    """Those for which the score keeps it, one bit each; 0: it is for everybody."""
    books: tuple[BookTraits, BookTraits]


@dataclass(slots=True, eq=False)
class NodeClass:
    """Nodes that no request can tell apart."""

    traits: Traits
    free: tuple[Free, Free]
    labels: Labels
    placed: tuple[Placed, Placed] = (NOTHING, NOTHING)
    fate: Fate = Fate.STAYS
    members: list["Node"] = field(default_factory=list)
    """In order of position."""
    label_map: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.label_map = dict(self.labels)


class Node:
    """One node that exists, is on its way, or is to be launched."""

    __slots__ = ("_first_home", "cause", "home", "instance", "own", "position", "use")

    def __init__(self, home: NodeClass, instance: Instance | None = None, use: float = 0.0, own: Amounts = ()) -> None:
        self.home = self._first_home = home
        self.instance = instance
        self.use = use
        """Mean share in use, without what this decision places (AS:S-10)."""
        self.own = own
        """Totals that no request names and that its class therefore leaves out, such as its address."""
        self.cause: Cause | None = None
        self.position = -1
        """In the order of the fleet; negative before it belongs to one."""

    def forget(self) -> None:
        """Be as before any packing, for another fleet."""
        self.home = self._first_home
        self.position = -1

    def twin(self) -> "Node":
        """Another such node, as before any packing."""
        twin = Node(self._first_home, self.instance, self.use, self.own)
        twin.cause = self.cause
        return twin

    @property
    def is_head(self) -> bool:
        """Whether the head runs on it."""
        return self.home.traits.is_head

    @property
    def type_name(self) -> str:
        """Its node type; empty if unmanaged."""
        return self.home.traits.type_name


@dataclass(slots=True, eq=False)
class Fill:
    """What one node takes: how many of which run, and what is left of it."""

    takes: list[tuple[int, int]]
    left: Free
    marks: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Move:
    """These nodes each take this fill."""

    nodes: Sequence[Node]
    fill: Fill


@dataclass(slots=True)
class Plan:
    """What one packing would do; nothing is done until a fleet accepts it."""

    book: int
    shapes: list[Shape]
    moves: list[Move] = field(default_factory=list)
    launches: list[Move] = field(default_factory=list)
    dull: list[NodeClass] = field(default_factory=list)
    """Running classes that none of the shapes fits: Ray puts them behind the others (AS:S-17)."""
    left: list[Run] = field(default_factory=list)
    is_tied: bool = False
    """Whether two types to launch were equally good at some point."""


class Fleet:
    """All nodes of one decision, by class."""

    def __init__(self, vocabulary: Vocabulary, *, is_exact: bool) -> None:
        self.vocabulary = vocabulary
        self.is_exact = is_exact
        self._classes: dict[tuple[object, ...], NodeClass] = {}
        self._next_position = 0
        self.marks: dict[Node, frozenset[tuple[str, str]]] = {}
        """Labels this decision added; Ray compares them where our classes need not (only deciding as Ray)."""

    def settle(self, nodes: Iterable[Node]) -> None:
        """Put nodes into their classes, behind those already there, in this order."""
        goals: dict[tuple[NodeClass, bool], NodeClass] = {}
        for node in nodes:
            key = (node.home, node.cause is None)
            home = goals.get(key)
            if home is None:
                home = goals[key] = self.like(node.home, fate=node.home.fate if node.cause is None else Fate.ENDS)
            node.home = home
            node.position = self._next_position
            self._next_position += 1
            home.members.append(node)

    def classes(self) -> Iterator[NodeClass]:
        """Those with members."""
        return (one for one in self._classes.values() if one.members)

    def nodes(self) -> list[Node]:
        """All, in order."""
        return sorted((n for one in self._classes.values() for n in one.members), key=_position)

    def counts(self, *, is_counting_ending: bool) -> Counter[str]:
        """Nodes by type."""
        counts: Counter[str] = Counter()
        for one in self._classes.values():
            if is_counting_ending or one.fate is not Fate.ENDS:
                counts[one.traits.type_name] += len(one.members)
        return counts

    def like(self, home: NodeClass, *, fate: Fate) -> NodeClass:
        """The class of such nodes with that fate."""
        return self._intern(home.traits, home.free, home.labels, home.placed, fate)

    def accept(self, plan: Plan) -> None:
        """Write a plan down: everything of it happens."""
        winners: list[Node] = []
        touched: set[NodeClass] = set()
        for move in plan.moves:
            touched.update(node.home for node in move.nodes)
            touched.update(self._place(move, plan))
            winners += move.nodes
        for home in touched:
            home.members = [node for node in home.members if node.home is home]
        if self.is_exact:
            self._reorder(winners, plan.dull)
        for home in touched:
            home.members.sort(key=_position)
        for launch in plan.launches:
            self._place(launch, plan)
            for node in launch.nodes:
                node.position = self._next_position
                self._next_position += 1

    def _place(self, move: Move, plan: Plan) -> Iterable[NodeClass]:
        """Move nodes to the classes they belong to with this fill; these classes."""
        goals: dict[NodeClass, NodeClass] = {}
        for node in move.nodes:
            source = node.home
            goal = goals.get(source)
            if goal is None:
                goal = goals[source] = self._after(source, move.fill, plan)
            if goal is not source or node.position < 0:
                node.home = goal
                goal.members.append(node)
            if self.is_exact and move.fill.marks:
                self.marks[node] = self.marks.get(node, frozenset()) | set(move.fill.marks)
        return goals.values()

    def _after(self, home: NodeClass, fill: Fill, plan: Plan) -> NodeClass:
        """The class of a member of `home` that took this fill."""
        if not fill.takes:
            return self.like(home, fate=home.fate)
        placed = placed_after(home.placed[plan.book], fill.takes, plan.shapes)
        lasting = self.vocabulary.lasting_labels
        labels = home.labels
        marks = [pair for pair in fill.marks if pair[0] in lasting]
        if marks:
            labels = tuple(sorted({**home.label_map, **dict(marks)}.items()))
        if plan.book == DEMAND:
            return self._intern(home.traits, (fill.left, home.free[1]), labels, (placed, home.placed[1]), home.fate)
        return self._intern(home.traits, (home.free[0], fill.left), labels, (home.placed[0], placed), home.fate)

    def _reorder(self, winners: list[Node], dull: list[NodeClass]) -> None:
        """Winners to the front in order of winning, nodes that nothing fits behind the rest (AS:S-18)."""
        won = set(winners)
        behind = set(dull)
        others = sorted((n for one in self.classes() for n in one.members if n not in won), key=_position)
        ahead = [n for n in others if n.home not in behind]
        order = winners + ahead + [n for n in others if n.home in behind]
        for position, node in enumerate(order):
            node.position = position
        self._next_position = len(order)

    def _intern(
        self, traits: Traits, free: tuple[Free, Free], labels: Labels, placed: tuple[Placed, Placed], fate: Fate
    ) -> NodeClass:
        key = (traits, free, labels, placed, fate)
        known = self._classes.get(key)
        if known is None:
            known = self._classes[key] = NodeClass(traits, free, labels, placed, fate)
        return known


def placed_after(placed: Placed, takes: Iterable[tuple[int, int]], shapes: Sequence[Shape]) -> Placed:
    """What is placed once these are placed too."""
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
