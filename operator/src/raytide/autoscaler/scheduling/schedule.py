"""Scheduler: launches and terminations for the current demand.

Takes the node types, the instances and all demand. Returns launches per type, terminations, unplaced demand and the
part of it that is infeasible. It follows the order of Ray's steps (AS §2.2) on classes of equal nodes and fixes Ray's
defects: terminating, draining and unknown nodes are no capacity and never stop the decision (B-1, B-6, B-7), replicas
are launched and terminated whole (B-8), a constraint that fits in part launches that part (B-15), nodes joined by hand
are used and never terminated (V-9, B-24). It is idempotent: with its launches pending it launches nothing more. Pure;
called by decide.py. tests/oracle compares its parts with Ray's own scheduler.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from raytide.autoscaler.feasibility import EmptyNode, EmptyNodes, empty_nodes
from raytide.autoscaler.model import (
    Demand,
    Gang,
    OnProgress,
    Request,
    SchedulingReply,
    SchedulingRequest,
    Selector,
    Termination,
    TerminationCause,
    unwatched,
)
from raytide.autoscaler.scheduling.node_classes import CONSTRAINT, DEMAND, Node, NodeClass, NodeDisposition, Plan
from raytide.autoscaler.scheduling.node_factory import NodeFactory
from raytide.autoscaler.scheduling.resource_shapes import RequestedNames, merged_by_affinity
from raytide.autoscaler.scheduling.session import MAX_NODES, Session, demands_of, launches_of, total_of
from raytide.autoscaler.scheduling.terminations import (
    Replica,
    end_idle,
    hosts_of,
    min_replicas_of,
    replicas_by_type,
    terminate_excess,
)
from raytide.autoscaler.scheduling.topology import Placements, Topologies, alike, bound_to

MAX_ROUNDS = 16
"""Each round but the last adds launches; in practice the second round is the last."""


def schedule(inputs: SchedulingRequest, on_progress: OnProgress = unwatched) -> SchedulingReply:
    """Decide; `on_progress` is called for every placement."""
    return _Scheduler(inputs, on_progress).decide()


@dataclass(slots=True)
class _Draft:
    """One round of packing."""

    session: Session
    unplaced: tuple[Demand, ...] = ()
    unplaced_gangs: tuple[Gang, ...] = ()
    unmet: tuple[Demand, ...] = ()
    """Unplaced part of the constraint."""
    is_repeatable: bool = False
    """The same packing would result with its launches pending: no second round is needed."""

    @property
    def is_short(self) -> bool:
        """Whether any demand is unplaced."""
        return bool(self.unplaced or self.unplaced_gangs or self.unmet)

    def coming(self) -> list[Node]:
        """Nodes to launch."""
        return [
            node
            for one in self.session.fleet.classes()
            if one.disposition is NodeDisposition.TO_LAUNCH
            for node in one.members
        ]


class _Scheduler:
    """One scheduling input with everything derived from it once."""

    def __init__(self, inputs: SchedulingRequest, on_progress: OnProgress) -> None:
        self._inputs = inputs
        self._on_progress = on_progress
        self._types = {one.name: one for one in inputs.types}
        self._turns = {one.name: turn for turn, one in enumerate(inputs.types)}
        self._reader = NodeFactory(RequestedNames(inputs), inputs.types, is_conserving=inputs.has_gpu_conservation)
        ordered = sorted(inputs.instances, key=lambda instance: instance.instance_id)
        self._nodes = self._reader.nodes(ordered)
        staying = (node.node_class.labels for node in self._nodes if node.cause is None)
        self._topologies = Topologies(inputs.gangs, inputs.types, staying)
        self._replicas = terminate_excess(replicas_by_type(self._nodes, self._types), self._types, self._max_workers())
        self._occupied = hosts_of(self._replicas, inputs.types)
        self._occupied.update(node.type_name for node in self._nodes if node.is_head)
        # A cluster above its limit launches nothing until it is below: terminations may still be rejected.
        self._occupied[""] = sum(node.cause is TerminationCause.MAX_NUM_NODES for node in self._nodes)

    def decide(self) -> SchedulingReply:
        """Pack until the launches suffice even when they compete as pending nodes in the next tick."""
        coming = self._to_minimum()
        for _ in range(MAX_ROUNDS):
            draft = self._draft(self._nodes, coming)
            launched = draft.coming()
            if len(launched) == len(coming) or (draft.is_repeatable and not coming and not self._has_pending()):
                break
            coming = self._draft([node.copy() for node in self._nodes], [node.copy() for node in launched]).coming()
            if len(launched) == len(coming):
                break
        return self._decision(draft)

    def _has_pending(self) -> bool:
        return any(not node.node_class.traits.is_running for node in self._nodes)

    def _max_workers(self) -> int | None:
        heads = sum(node.is_head for node in self._nodes)
        return self._inputs.max_nodes - heads if self._inputs.max_nodes else None

    def _to_minimum(self) -> list[Node]:
        """Nodes to launch so that every type reaches its minimum, within the cluster's limit (AS:S-7)."""
        coming: list[Node] = []
        limit, total = min(self._inputs.max_nodes or MAX_NODES, MAX_NODES), self._occupied.total()
        for one in self._inputs.types:
            hosts = one.num_of_hosts
            missing = min_replicas_of(one) - self._occupied[one.name] // hosts
            if one.available is not None:
                missing = min(missing, one.available // hosts)
            missing = min(missing, (limit - total) // hosts)
            if missing > 0:
                coming += [Node(node_class) for _ in range(missing) for node_class in self._reader.fresh_replica(one)]
                total += missing * hosts
        return coming

    def _draft(self, there: Sequence[Node], coming: Sequence[Node]) -> _Draft:
        """Place all demand, given these launches."""
        inputs = self._inputs
        nodes = sorted([*there, *coming], key=self._turn)
        for node in nodes:
            node.forget()
        launched = Counter(node.type_name for node in coming)
        occupied = self._occupied + launched
        session = Session(
            inputs,
            inputs.types,
            self._reader,
            nodes,
            occupied,
            launched=launched,
            on_progress=self._on_progress,
        )
        draft = _Draft(session)
        if inputs.constraint:
            plan = session.plan(inputs.constraint, CONSTRAINT)
            session.accept(plan)
            draft.unmet = demands_of(plan.left)
        placements, ordered = Placements(), _in_order(inputs.gangs)
        draft.unplaced_gangs = tuple(gang for gang in ordered if not self._place(gang, session, placements))
        plan = session.plan(inputs.tasks, DEMAND)
        session.accept(plan)
        draft.unplaced = demands_of(plan.left)
        is_simple = not inputs.constraint and not inputs.gangs
        draft.is_repeatable = is_simple and not plan.is_tied and all(t.num_of_hosts == 1 for t in inputs.types)
        return draft

    def _turn(self, node: Node) -> int:
        """Running nodes first, then pending ones by type: a launched node sorts where it will sort once pending."""
        return -1 if node.node_class.traits.is_running else self._turns.get(node.type_name, len(self._turns))

    def _place(self, gang: Gang, session: Session, placements: Placements) -> bool:
        """Place all bundles or none (AS:S-12)."""
        plan = self._plan(gang, session, placements)
        if plan is not None:
            session.accept(plan)
        return plan is not None

    def _plan(self, gang: Gang, session: Session, placements: Placements) -> Plan | None:
        """A plan for all bundles; with a topology on existing nodes with one value of its label, if there are enough."""
        for is_launching in (True,) if gang.topology is None else (False, True):
            selectors = self._topologies.selectors(gang, is_launching=is_launching)
            for selector in placements.remaining(gang, selectors, is_launching) if gang.topology else selectors:
                bundles = bound_to(gang.bundles, selector)
                plan = session.plan(_demands(bundles), DEMAND, is_launching=is_launching)
                if not plan.left:
                    return plan
        return None

    def _decision(self, draft: _Draft) -> SchedulingReply:
        session, inputs = draft.session, self._inputs
        empty = EmptyNodes(self._empty_nodes() if draft.is_short else ())
        impossible, impossible_constraint = (
            tuple(demand for demand in demands if not empty.could_hold(demand.request))
            for demands in (draft.unplaced, draft.unmet)
        )
        impossible_gangs = tuple(
            gang for gang in draft.unplaced_gangs if not all(map(empty.could_hold, merged_by_affinity(gang.bundles)))
        )
        planned = [node for one in session.fleet.classes() for node in one.members]
        launches = launches_of(session.fleet, inputs.types)
        waiting = [gang for gang in draft.unplaced_gangs if gang not in impossible_gangs]
        if inputs.full or inputs.waiting:
            tasks = tuple(demand for demand in draft.unplaced if demand not in impossible)
            waiting = self._ask_all_the_same(session, draft.unmet, waiting, tasks)
            asked = launches_of(session.fleet, inputs.types)
            launches |= {name: count for name, count in asked.items() if name in inputs.full}
        if waiting:
            self._hold(session, self._within_limits(waiting))
        end_idle(self._replicas, inputs, lambda node: _is_used(node.node_class))
        return SchedulingReply(
            launches=launches,
            terminations=tuple(
                Termination(node.instance.instance_id, node.cause)
                for node in self._nodes
                if node.instance is not None and node.cause is not None
            ),
            unplaced=draft.unplaced,
            impossible=impossible,
            unplaced_gangs=draft.unplaced_gangs,
            impossible_gangs=impossible_gangs,
            unmet=draft.unmet,
            impossible_constraint=impossible_constraint,
            totals=tuple(total_of(node) for node in planned if node.cause is None),
            needed=frozenset(
                node.instance.instance_id
                for one in session.fleet.classes()
                if _is_used(one)
                for node in one.members
                if node.instance is not None and node.cause is None
            ),
        )

    def _empty_nodes(self) -> Iterator[EmptyNode]:
        """The nodes that feasibility is decided on: those of every type, and the running ones if they were empty."""
        for one in self._inputs.types:
            yield from empty_nodes(one)
        running = (node.node_class for node in self._nodes if node.cause is None and node.node_class.traits.is_running)
        for node_class in dict.fromkeys(running):
            yield node_class.traits.total, node_class.labels

    def _ask_all_the_same(
        self, session: Session, unmet: Sequence[Demand], gangs: list[Gang], tasks: Sequence[Demand]
    ) -> list[Gang]:
        """Place the remaining demand as if full types had capacity; return the gangs that still do not fit.

        A gang is placed on full types alone if they can hold the rest of it. Otherwise other types are considered as
        well, but nothing of them is launched yet: those nodes would only wait.
        """
        inputs, full = self._inputs, self._inputs.full
        with_capacity = [replace(one, available=None) if one.name in full else one for one in inputs.types]
        waiting, hosts = self._waiting_for_capacity()
        session.widen([one for one in with_capacity if one.name in full], waiting, hosts)
        session.accept(session.plan(unmet, CONSTRAINT))
        placements = Placements()
        gangs = [gang for gang in gangs if not self._place(gang, session, placements)]
        session.widen(with_capacity)
        placements = Placements()
        gangs = [gang for gang in gangs if not self._place(gang, session, placements)]
        session.accept(session.plan(tasks, DEMAND))
        return gangs

    def _waiting_for_capacity(self) -> tuple[list[Node], Counter[str]]:
        """Nodes waiting for capacity, within the maxima, and by type how many more nodes count against these."""
        staying = [node for node in self._nodes if node.cause is None]
        ordered = sorted(self._inputs.waiting, key=lambda instance: instance.instance_id)
        found = self._reader.nodes(ordered, NodeDisposition.WAITING)
        replicas, there = replicas_by_type([*staying, *found], self._types), set(staying)
        nodes: list[Node] = []
        hosts: Counter[str] = Counter()
        for one in self._inputs.types:
            begun: list[Replica] = []
            alone: list[Replica] = []
            for replica in replicas.get(one.name, ()):
                (alone if there.isdisjoint(replica.nodes) else begun).append(replica)
            alone = alone[: max(0, one.max_nodes // one.num_of_hosts - len(begun))]
            hosts[one.name] = len(alone) * one.num_of_hosts
            nodes += [node for replica in (*begun, *alone) for node in replica.nodes if node not in there]
        return nodes, hosts

    def _within_limits(self, gangs: Iterable[Gang]) -> list[Sequence[Request]]:
        """The bundles of the gangs that fit within the limits on an otherwise empty cluster, or on the existing nodes if idle.

        A gang that exceeds the limits waits for a user's change; nodes held for it would be held forever.
        """
        inputs = self._inputs
        types = [replace(one, available=None) for one in inputs.types]
        staying = [node.copy() for node in self._nodes if node.cause is None]
        bare = [node.copy() for node in staying if node.is_head or not node.type_name]
        heads = Counter(node.type_name for node in bare if node.is_head)
        sessions = (
            Session(inputs, types, self._reader, bare, heads, on_progress=self._on_progress),
            Session(inputs, types, self._reader, staying, self._occupied, on_progress=self._on_progress),
        )
        known: dict[object, Selector | None] = {}
        placements = Placements()
        found: list[Sequence[Request]] = []
        for gang in gangs:
            kind = alike(gang)
            if kind not in known:
                selectors = self._topologies.selectors(gang)
                known[kind] = next(
                    (
                        selector
                        for selector in (placements.remaining(gang, selectors, "") if gang.topology else selectors)
                        for session in sessions
                        if not session.plan(_demands(bound_to(gang.bundles, selector)), CONSTRAINT).left
                    ),
                    None,
                )
            selector = known[kind]
            if selector is not None:
                found.append(bound_to(gang.bundles, selector))
        return found

    @staticmethod
    def _hold(session: Session, gangs: Iterable[Sequence[Request]]) -> None:
        """Place the parts of pending gangs that fit on existing nodes, so that the nodes they need are not idle."""
        for bundles in gangs:
            session.accept(session.plan(_demands(bundles), DEMAND, is_launching=False))


def _in_order(gangs: Iterable[Gang]) -> list[Gang]:
    """Gangs with bundles left to place, most constrained first (AS:S-12), independent of input order."""

    def hardness(gang: Gang) -> tuple[int, int]:
        bound = sum((b.affinity is not None) + (b.anti_affinity is not None) for b in gang.bundles)
        return (bound, len(gang.bundles))

    with_bundles = (gang for gang in gangs if gang.bundles)
    return sorted(sorted(with_bundles, key=lambda gang: gang.details), key=hardness, reverse=True)


def _demands(bundles: Sequence[Request]) -> list[Demand]:
    return [Demand(bundle) for bundle in merged_by_affinity(bundles)]


def _is_used(node_class: NodeClass) -> bool:
    return any(placed.is_used for placed in node_class.placed)
