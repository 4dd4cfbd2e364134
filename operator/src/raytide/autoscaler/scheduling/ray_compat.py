"""Ray 2.60's scheduling decision, for comparison.

Runs the steps of Ray's own scheduler in its order and with its defects: nodes created to reach a minimum are one object
(B-3), draining and terminating nodes are capacity (B-6, B-7), an unknown type of a live node is an exception (B-1).
Used only to compare schedule.py with Ray's scheduler (AS §8). Pure; an exception of Ray's becomes `SchedulingReply.error`.
"""

from collections import Counter, defaultdict
from dataclasses import replace

from raytide.autoscaler.model import (
    Demand,
    Gang,
    NodeType,
    SchedulingReply,
    SchedulingRequest,
    Status,
    Termination,
    TerminationCause,
)
from raytide.autoscaler.scheduling.node_classes import CONSTRAINT, DEMAND, Node, NodeDisposition
from raytide.autoscaler.scheduling.node_factory import NodeFactory
from raytide.autoscaler.scheduling.resource_shapes import RaySchedulingError, RequestedNames, merged_by_affinity
from raytide.autoscaler.scheduling.session import Session, demands_of, idle_key, launches_of, total_of

_WITHOUT_TIMEOUT = frozenset({Status.QUEUED, Status.ALLOCATED, Status.RAY_INSTALLING})
"""Pending nodes are terminated as idle only by a setting that is off by default (AS:S-33)."""


def schedule_as_ray(inputs: SchedulingRequest) -> SchedulingReply:
    """The decision, or the exception's name in `error`."""
    try:
        return _schedule(inputs)
    except RaySchedulingError as error:
        return SchedulingReply(error=str(error))


def _schedule(inputs: SchedulingRequest) -> SchedulingReply:
    # Ray's own autoscaler treats every host of a TPU slice as its first one.
    types = [
        replace(one, num_of_hosts=1, resources=one.first_resources or one.resources, first_resources=())
        for one in inputs.types
    ]
    reader = NodeFactory(RequestedNames(inputs), types, is_exact=True)
    nodes = _within_limits(inputs, types, reader)
    session = Session(inputs, types, reader, nodes, Counter(node.type_name for node in nodes))
    is_unmet = False
    if inputs.constraint is not None:
        plan = session.plan(inputs.constraint, CONSTRAINT)
        is_unmet = bool(plan.left)
        if not is_unmet:
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
        is_constraint_unmet=is_unmet,
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
        plan = session.plan([Demand(bundle) for bundle in merged_by_affinity(gang.bundles)], DEMAND)
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
