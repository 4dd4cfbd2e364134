"""Ray 2.60's scheduling decision, made with the parts of the product's scheduler, to compare these with Ray's (AS §8).

Runs the steps of Ray's own scheduler in its order and with its defects: nodes created to reach a minimum are one object
(B-3), draining and terminating nodes are capacity (B-6, B-7), an unknown type of a live node is an exception (B-1). The classes below
override what Raytide does otherwise; all else is the code under test. `schedule_as_ray` raises RaySchedulingError where Ray raises.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from raytide.autoscaler.model import (
    COUNTABLE,
    RESOURCE_UNIT_SCALING,
    Amounts,
    Demand,
    Gang,
    Instance,
    NodeType,
    Request,
    SchedulingReply,
    SchedulingRequest,
    Status,
    Termination,
    TerminationCause,
)
from raytide.autoscaler.scheduling.node_classes import (
    CONSTRAINT,
    DEMAND,
    BinFill,
    Free,
    Move,
    Node,
    NodeClass,
    NodeClasses,
    NodeDisposition,
    Plan,
    ScoreTerms,
)
from raytide.autoscaler.scheduling.node_factory import NodeFactory
from raytide.autoscaler.scheduling.packing import pack_tiers
from raytide.autoscaler.scheduling.resource_shapes import ACCELERATORS, RequestedNames, Run, Shape, merged_by_affinity
from raytide.autoscaler.scheduling.scoring import Candidate, LaunchBudget, LaunchPool, NodeScorer
from raytide.autoscaler.scheduling.session import Session, demands_of, idle_key, launches_of, total_of

UNLIMITED = 1_000_000_000
FIRST_OWN, BEHIND_OWN = ("node:", 0), ("node;", 0)
"""Resources named `node:…` lie between these two in sorted amounts."""
_WITHOUT_TIMEOUT = frozenset({Status.QUEUED, Status.ALLOCATED, Status.RAY_INSTALLING})
"""Pending nodes are terminated as idle only by a setting that is off by default (AS:S-33)."""


class RaySchedulingError(Exception):
    """Ray's scheduler raises on this input; the argument is the exception's name."""


class RayNames(RequestedNames):
    """Requests are placed in the order in which they come, an amount of 0 names its resource (AS:S-15, S-21), and devices are added up."""

    _planned_by_device = frozenset()

    def __init__(self, inputs: SchedulingRequest) -> None:
        super().__init__(inputs)
        self.has_node_resources = any(name.startswith("node:") for name in self.resources)

    @staticmethod
    def _named(request: Request) -> Amounts:
        return request.amounts

    def runs(self, demands: Iterable[Demand]) -> list[Run]:
        """Only equal neighbors are joined."""
        asked = [Run(self.shape(demand.request), demand.count) for demand in demands if demand.count > 0]
        asked.sort(key=lambda run: run.shape.order, reverse=True)
        joined: list[Run] = []
        for run in asked:
            if joined and joined[-1].shape is run.shape:
                joined[-1].count += run.count
            else:
                joined.append(run)
        return joined


@dataclass(slots=True, eq=False)
class RayScoreTerms(ScoreTerms):
    """Ray fails on a node of which more is available than there is."""

    is_broken: bool = False


class RayNodeFactory(NodeFactory):
    """Draining nodes are capacity, and of unrequested resources only addresses are kept apart: the score depends on the rest."""

    _pending_statuses = COUNTABLE
    requested: RayNames

    def __init__(self, requested: RayNames, types: Iterable[NodeType]) -> None:
        super().__init__(requested, types)
        self._conserved = ACCELERATORS["GPU"]

    def _read_running(self, instance: Instance) -> Node:
        total, available = instance.total, instance.available
        first = bisect_left(total, FIRST_OWN)
        own = total[first : bisect_left(total, BEHIND_OWN, first)]
        if own and not self.requested.has_node_resources:
            left = bisect_left(available, FIRST_OWN)
            if available[left : left + len(own)] == own and all(amount > 0 for _, amount in own):
                total = total[:first] + total[first + len(own) :]
                available = available[:left] + available[left + len(own) :]
            else:
                own = ()
        else:
            own = ()
        accelerators = self._kept_for(total)
        labels = self._requested_labels(instance)
        return self._running_node(
            instance, (instance.node_type, instance.is_head, accelerators, total, available, labels, len(own))
        )

    def _read_pending(self, instance: Instance, disposition: NodeDisposition) -> Node | None:
        return super()._read_pending(instance, disposition) if instance.node_type in self._types else None

    def _score_terms(self, total: Amounts, available: Amounts, zero_terms: int) -> ScoreTerms:
        known = super()._score_terms(total, available, zero_terms)
        free = dict(available)
        is_broken = any(free.get(name, 0) > amount > 0 and name not in self.requested.index for name, amount in total)
        return RayScoreTerms(known.terms, known.zero_terms, is_broken)


class RayNodeClasses(NodeClasses):
    """Winners come first in the next step, and labels that a step added tell nodes apart."""

    def __init__(self, requested: RequestedNames) -> None:
        super().__init__(requested)
        self.marks: dict[Node, frozenset[tuple[str, str]]] = {}
        self._unfitting: dict[int, list[NodeClass]] = {}
        """By the id of a plan, running classes that none of its shapes fits: sorted last (AS:S-17)."""

    def tier(self, plan: Plan) -> list[list[Node]]:
        """Existing nodes that compete: of pending ones in the same state only the first, whatever it holds already."""
        unfitting = self._unfitting[id(plan)] = []
        running, pending = [], []
        for one in self.classes():
            if not one.traits.is_running:
                pending += one.members
            elif _fits_any(one.free[plan.book], plan.shapes):
                running.append(one.members)
            else:
                unfitting.append(one)
        lines: dict[tuple[object, ...], list[Node]] = {}
        for node in sorted(pending, key=_position):
            node_class = node.node_class
            state = (node_class.traits, node_class.free[plan.book], node_class.labels, self.marks.get(node))
            lines.setdefault(state, []).append(node)
        return [*running, *lines.values()]

    def accept(self, plan: Plan) -> None:
        """Apply a plan; winners first in order of winning, nodes that nothing fits last (AS:S-18)."""
        super().accept(plan)
        winners = [node for move in plan.moves for node in move.nodes]
        launched = [node for launch in plan.launches for node in launch.nodes]
        placed, behind = {*winners, *launched}, set(self._unfitting.pop(id(plan)))
        others = sorted((n for one in self.classes() for n in one.members if n not in placed), key=_position)
        ahead = [node for node in others if node.node_class not in behind]
        order = [*winners, *ahead, *(node for node in others if node.node_class in behind), *launched]
        for position, node in enumerate(order):
            node.position = position
        self._next_position = len(order)
        for one in self.classes():
            one.members.sort(key=_position)

    def _place(self, move: Move, plan: Plan) -> Iterable[NodeClass]:
        goals = super()._place(move, plan)
        for node in move.nodes if move.fill.marks else ():
            self.marks[node] = self.marks.get(node, frozenset()) | set(move.fill.marks)
        return goals


class RayNodeScorer(NodeScorer):
    """Raises where Ray's assertions fail, also for nodes that take nothing."""

    def rescore(self, candidate: Candidate) -> None:
        """Fill and score it."""
        super().rescore(candidate)
        if self.is_open:
            node_class = candidate.node_class
            fill = self._fill(node_class.free[self._book], node_class.label_map)
            if not fill.takes:
                self._score(node_class, fill)

    def _admits(self, shape: Shape, labels: Mapping[str, str]) -> bool:
        pair = shape.request.anti_affinity
        if shape.has_match(labels) and pair is not None and labels.get(pair[0], pair[1]) != pair[1]:
            raise RaySchedulingError("AssertionError")
        return super()._admits(shape, labels)

    def _score(self, node_class: NodeClass, fill: BinFill) -> tuple[float, ...]:
        facts = node_class.traits.score_terms[self._book]
        assert isinstance(facts, RayScoreTerms)
        is_negative = any(
            (total - fill.left[resource] / RESOURCE_UNIT_SCALING) / total < 0
            for total, resource, _ in facts.terms
            if resource >= 0
        )
        if is_negative or facts.is_broken:
            raise RaySchedulingError("AssertionError")
        return super()._score(node_class, fill)


class RaySession(Session):
    """One decision in progress, in Ray's way: one tier of existing nodes, and heads are launched."""

    fleet: RayNodeClasses

    def __init__(
        self,
        inputs: SchedulingRequest,
        types: Sequence[NodeType],
        reader: RayNodeFactory,
        nodes: Iterable[Node],
        occupied: Counter[str],
    ) -> None:
        super().__init__(inputs, types, reader, (), occupied)
        self.fleet = RayNodeClasses(reader.requested)
        self.fleet.settle(nodes)

    def plan(self, demands: Iterable[Demand], book: int, *, is_launching: bool = True) -> Plan:
        """Plan the placement of these demands."""
        runs = self.runs(demands)
        plan = Plan(book, [run.shape for run in runs])
        budget = self._budget(is_launching=is_launching)
        pack_tiers(plan, RayNodeScorer(runs, book, budget), [self.fleet.tier(plan)], budget)
        return plan

    def _budget(self, *, is_launching: bool) -> LaunchBudget:
        inputs = self._inputs
        pools = []
        for one in self._types if is_launching else ():
            remaining = one.max_nodes - self.occupied[one.name]
            if one.available is not None:
                remaining = min(remaining, one.available - self._launched[one.name])
            if remaining > 0:
                pools.append(LaunchPool(one, self._reader.fresh(one), remaining))
        remaining_of_all = (inputs.max_nodes or UNLIMITED) - self.occupied.total()
        return LaunchBudget(pools, remaining_of_all, inputs.recoverable, inputs.availability)


def schedule_as_ray(inputs: SchedulingRequest) -> SchedulingReply:
    """The decision; raises RaySchedulingError."""
    # Ray's own autoscaler treats every host of a TPU slice as its first one.
    types = [
        replace(one, num_of_hosts=1, resources=one.first_resources or one.resources, first_resources=())
        for one in inputs.types
    ]
    reader = RayNodeFactory(RayNames(inputs), types)
    nodes = _within_limits(inputs, types, reader)
    session = RaySession(inputs, types, reader, nodes, Counter(node.type_name for node in nodes))
    unmet: tuple[Demand, ...] = ()
    if inputs.constraint is not None:
        plan = session.plan(inputs.constraint, CONSTRAINT)
        unmet = demands_of(plan.left)
        if not unmet:
            session.accept(plan)
    unplaced_gangs = _place_gangs(session, inputs.gangs)
    plan = session.plan(inputs.tasks, DEMAND)
    session.accept(plan)
    _end_idle(session, inputs, types)
    settled = session.fleet.nodes()
    return SchedulingReply(
        launches=launches_of(session.fleet, types),
        terminations=tuple(
            Termination(node.instance.instance_id if node.instance else "", node.cause)
            for node in settled
            if node.cause is not None
        ),
        unplaced=demands_of(plan.left),
        unplaced_gangs=tuple(unplaced_gangs),
        unmet=unmet,
        totals=tuple(total_of(node) for node in settled if node.cause is None),
    )


def _within_limits(inputs: SchedulingRequest, types: list[NodeType], reader: NodeFactory) -> list[Node]:
    """Planning nodes after AS:S-7, S-8 and S-9, in Ray's order."""
    nodes = reader.nodes(inputs.instances)
    there = Counter(node.type_name for node in nodes)
    added: list[Node] = []
    for one in types:
        # One object many times over: terminating it terminates them all (B-3).
        added += [Node(reader.fresh(one))] * (one.min_nodes - there[one.name])
    by_type: dict[str, list[Node]] = defaultdict(list)
    for node in added + nodes:
        by_type[node.type_name].append(node)
    limits = {one.name: one.max_nodes for one in types}
    ending: list[Node] = []
    for name, alike in by_type.items():
        if name not in limits:
            raise RaySchedulingError("KeyError")
        excess = len(alike) - limits[name]
        if excess > 0:
            ending += _end(alike, excess, TerminationCause.MAX_NUM_NODE_PER_TYPE)
    nodes = ending + [node for alike in by_type.values() for node in alike]
    staying = [node for node in nodes if node.cause is None]
    excess = len(staying) - inputs.max_nodes
    if inputs.max_nodes and excess > 0:
        before = [node for node in nodes if node.cause is not None]
        nodes = before + _end(staying, excess, TerminationCause.MAX_NUM_NODES) + staying
    return _each_its_own(nodes)


def _end(nodes: list[Node], excess: int, cause: TerminationCause) -> list[Node]:
    """Mark `excess` nodes and remove them from `nodes`, which is left in the order of Ray's survivors (AS:S-10)."""
    nodes.sort(key=idle_key)
    head = next((node for node in nodes if node.is_head), None)
    if head is not None:
        nodes.remove(head)
    victims, survivors = nodes[:excess], nodes[excess:]
    nodes[:] = [*survivors, head] if head is not None else survivors
    for node in victims:
        node.cause = cause
    return victims


def _each_its_own(nodes: list[Node]) -> list[Node]:
    """Replace repeated objects by copies, since packing needs distinct nodes."""
    seen: set[Node] = set()
    own = []
    for node in nodes:
        one = node.copy() if node in seen else node
        seen.add(one)
        own.append(one)
    return own


def _place_gangs(session: Session, gangs: tuple[Gang, ...]) -> list[Gang]:
    """Place gangs one after the other, each as a whole; return the unplaced ones (AS:S-12)."""

    def constraints(gang: Gang) -> tuple[int, int]:
        bound = sum((b.affinity is not None) + (b.anti_affinity is not None) for b in gang.bundles)
        return (bound, len(gang.bundles))

    unplaced = []
    for gang in sorted(gangs, key=constraints, reverse=True):
        plan = session.plan([Demand(bundle) for bundle in merged_by_affinity(gang.bundles, is_by_device=False)], DEMAND)
        if plan.left:
            unplaced.append(gang)
        else:
            session.accept(plan)
    return unplaced


def _end_idle(session: Session, inputs: SchedulingRequest, types: list[NodeType]) -> None:
    """Terminate nodes idle beyond their timeout that hold no demand (AS:S-30)."""
    by_name = {one.name: one for one in types}
    there = session.fleet.counts(is_counting_ending=False)
    ended: Counter[str] = Counter()
    for node in sorted(session.fleet.nodes(), key=idle_key):
        node_class, instance, name = node.node_class, node.instance, node.type_name
        if (
            node_class.disposition is not NodeDisposition.KEPT
            or node.is_head
            or instance is None
            or instance.status in _WITHOUT_TIMEOUT
        ):
            continue
        own = by_name[name].idle_timeout_s
        timeout_s = inputs.idle_timeout_s if own is None else own
        idle_ms = instance.idle_ms if node_class.traits.is_running else 0
        if timeout_s is None or idle_ms <= timeout_s * 1000 or any(placed.is_used for placed in node_class.placed):
            continue
        if there[name] - ended[name] <= by_name[name].min_nodes:
            continue
        ended[name] += 1
        node.cause = TerminationCause.IDLE
        node_class.members.remove(node)
        node.node_class = session.fleet.like(node_class, disposition=NodeDisposition.TO_TERMINATE)
        node.node_class.members.append(node)


def _fits_any(free: Free, shapes: Sequence[Shape]) -> bool:
    """Whether one of the shapes fits the free amounts, labels ignored (AS:S-17)."""
    return not shapes or any(all(free[r] >= amount for r, amount in shape.needs) for shape in reversed(shapes))


def _position(node: Node) -> int:
    return node.position
