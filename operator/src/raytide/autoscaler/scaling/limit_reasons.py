"""Reasons why a worker group is smaller than demanded or is shrinking.

Takes the decision, the node types, blocked groups and running drains. Returns the reasons for the record, which the
operator copies into conditions: a code, a count and a message each; reasons that concern no single group are listed
under the head's name. The same situation always yields the same text, so that only changes are written and logged.
Called by group_decisions.py; codes are those of conditions and of pod_failure.py (SC:S21, B-14).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from raytide.autoscaler.feasibility import EmptyNodes, could_hold, empty_nodes
from raytide.autoscaler.model import (
    HEAD_TYPE,
    Demand,
    Gang,
    NodeType,
    Request,
    SchedulingReply,
)
from raytide.autoscaler.request_text import shape_of
from raytide.autoscaler.scheduling.resource_shapes import merged_by_affinity
from raytide.autoscaler.scheduling.session import MAX_NODES
from raytide.autoscaler.state.group_availability import Stuck
from raytide.diagnosis.catalogue import DRAINING
from raytide.diagnosis.model import Diagnosis

MAX_REACHED: Final = "MaxReached"
"""The group is at `maxReplicas`, or a placement group needs more nodes than that; the message has the pending demand."""
NO_FITTING_GROUP: Final = "NoFittingGroup"
"""The demand can never run: no group has nodes that could run it. The message has the shape of the requests, and the
amounts that exceed those of any node."""
HEAD_DOWN: Final = "HeadDown"
"""Ray's head node is not running: nothing is scaled."""
UPSCALING_LIMITED: Final = "UpscalingLimited"
"""`upscalingMode: Conservative`: a group launches at most as many nodes as it has running, at least one."""
INVALID_GROUP: Final = "InvalidGroup"
"""A field of the group, or of the cluster, cannot be used, such as a resource that is no number; the message names it."""
NODE_BUSY: Final = "NodeBusy"
"""The demand waits for live nodes that are busy: no group launches nodes that could run it."""
TOPOLOGY_UNMET: Final = "TopologyUnmet"
"""A placement group with a `topology_strategy` waits: no value of its label has enough nodes, or the strategy is not
supported. The message names the label."""
CONSTRAINT_UNMET: Final = "ConstraintUnmet"
"""`request_resources()` asks for more than all groups may have at their `maxReplicas`."""

MAX_SHAPES: Final = 3
"""Shapes, and exceeded amounts, named in one message; other shapes are counted."""


@dataclass(frozen=True, slots=True)
class LimitInputs:
    """Inputs for the reasons."""

    types: tuple[NodeType, ...]
    reply: SchedulingReply
    nodes: Mapping[str, int]
    """By group, the target number of nodes."""
    limits: Mapping[str, Diagnosis] = field(default_factory=dict)
    """By group, why it gets no nodes at present."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """By group, problems of its spec; an empty name means the whole cluster."""
    leaving: Mapping[str, int] = field(default_factory=dict)
    """By group, nodes with a drain in progress."""
    held_back: Mapping[str, int] = field(default_factory=dict)
    """By group, launches deferred by the upscaling mode."""


def reasons(inputs: LimitInputs) -> dict[str, tuple[Diagnosis, ...]]:
    """Reasons by group, for groups that have any; the most important first."""
    waiting = _Waiting(inputs)
    found = {kind.name: tuple(_of_group(kind, inputs, waiting)) for kind in inputs.types if not kind.is_head}
    for group, message in inputs.problems.items():
        if group not in found:
            found[group or HEAD_TYPE] = (*found.get(group or HEAD_TYPE, ()), Diagnosis(INVALID_GROUP, 1, message))
    found[HEAD_TYPE] = (*found.get(HEAD_TYPE, ()), *_of_cluster(inputs, waiting))
    return {group: why for group, why in found.items() if why}


def head_down(message: str) -> Diagnosis:
    """The reason for scaling nothing while the demand is unknown."""
    return Diagnosis(HEAD_DOWN, 1, message)


def _of_group(kind: NodeType, inputs: LimitInputs, waiting: "_Waiting") -> Iterable[Diagnosis]:
    limit = inputs.limits.get(kind.name)
    if limit is not None:
        # A gate may last for days: it limits nothing while other groups take all demand.
        if limit.reason != Stuck.SCALE_GATED or limit.count or waiting.could_use(kind):
            yield limit
    elif demands := waiting.of_group(kind):
        yield Diagnosis(MAX_REACHED, _count(demands)).having(shapes=_shapes(demands), **_maximum(kind, inputs))
    held_back = inputs.held_back.get(kind.name, 0)
    if held_back:
        yield Diagnosis(UPSCALING_LIMITED, held_back).having(nodes=str(held_back))
    leaving = inputs.leaving.get(kind.name, 0)
    if leaving:
        yield Diagnosis(DRAINING, leaving).having(nodes=str(leaving))
    problem = inputs.problems.get(kind.name)
    if problem:
        yield Diagnosis(INVALID_GROUP, 1, problem)


def _maximum(kind: NodeType, inputs: LimitInputs) -> dict[str, str]:
    """Which maximum keeps demand waiting: `maximum`, which the group has reached, `nodes` of the whole cluster, or `limit`, which is too small."""
    most = str(kind.max_nodes // max(1, kind.num_of_hosts))
    if _is_at_maximum(kind, inputs):
        return {"maximum": most}
    if sum(inputs.nodes.values()) + kind.num_of_hosts >= MAX_NODES:
        return {"nodes": str(MAX_NODES)}
    return {"limit": most}


def _of_cluster(inputs: LimitInputs, waiting: "_Waiting") -> Iterable[Diagnosis]:
    reply = inputs.reply
    single = [*reply.impossible, *reply.impossible_constraint]
    bundles = _bundles(reply.impossible_gangs)
    if single or bundles:
        nodes, nodes_of_groups = (
            EmptyNodes(node for kind in kinds for node in empty_nodes(kind))
            for kinds in (inputs.types, [kind for kind in inputs.types if not kind.is_head])
        )
        unfit = [*single, *(bundle for bundle in bundles if not nodes.could_hold(bundle.request))]
        most = nodes_of_groups.exceeded(demand.request for demand in unfit)[:MAX_SHAPES]
        yield Diagnosis(NO_FITTING_GROUP, _count([*single, *bundles])).having(
            shapes=_shapes(unfit), most=shape_of(Request(most)) if most else ""
        )
    if demands := waiting.of_live_nodes():
        yield Diagnosis(NODE_BUSY, _count(demands)).having(shapes=_shapes(demands))
    yield from _unmet_topologies(reply)
    unmet = [demand for demand in reply.unmet if demand not in reply.impossible_constraint]
    if unmet:
        yield Diagnosis(CONSTRAINT_UNMET, 1).having(shapes=_shapes(unmet))


def _unmet_topologies(reply: SchedulingReply) -> Iterator[Diagnosis]:
    """One reason for all gangs that wait for nodes with one value of a label."""
    gangs = [gang for gang in _waiting_gangs(reply) if gang.topology is not None]
    known = [gang.topology.label for gang in gangs if gang.topology is not None and gang.topology.is_known]
    unknown = [gang.topology.label for gang in gangs if gang.topology is not None and not gang.topology.is_known]
    if gangs:
        bundles = _bundles(gangs)
        yield Diagnosis(TOPOLOGY_UNMET, _count(bundles)).having(
            shapes=_shapes(bundles), label=_some(known), unsupported=_some(unknown)
        )


def _is_at_maximum(kind: NodeType, inputs: LimitInputs) -> bool:
    return inputs.nodes.get(kind.name, 0) >= kind.max_nodes


class _Waiting:
    """Feasible demand without a place, and the groups whose nodes could run it.

    Equal requests of tasks and of many gangs are one entry. A gang waits as a whole.
    """

    def __init__(self, inputs: LimitInputs) -> None:
        self._inputs = inputs
        self._kinds = [kind for kind in inputs.types if not kind.is_head]
        self._limited = {
            kind.name for kind in self._kinds if kind.name in inputs.limits or _is_at_maximum(kind, inputs)
        }
        self._groups_by_request: dict[Request, frozenset[str]] = {}
        self._counts: Counter[Request] = Counter()
        self._above_maximum: Counter[Request] = Counter()
        """Of those, work that waits although no group that could run a part of it is at its maximum or blocked."""
        for demands in _feasible(inputs.reply):
            self._add(demands)

    def _add(self, demands: Sequence[Demand]) -> None:
        """Add a task's demand, or all bundles of a gang."""
        counts: Counter[Request] = Counter()
        for demand in demands:
            counts[Request(demand.request.amounts, demand.request.selectors)] += demand.count
        groups = [self._groups(request) for request in counts]
        self._counts += counts
        if all(groups) and not any(self._limited & names for names in groups):
            self._above_maximum += counts

    def _groups(self, request: Request) -> frozenset[str]:
        """Groups whose empty nodes could hold it."""
        known = self._groups_by_request.get(request)
        if known is None:
            known = frozenset(kind.name for kind in self._kinds if could_hold(kind, request))
            self._groups_by_request[request] = known
        return known

    def of_group(self, kind: NodeType) -> list[Demand]:
        """Demand that waits because of the group's maximum."""
        counts = self._counts if _is_at_maximum(kind, self._inputs) else self._above_maximum
        return [Demand(request, n) for request, n in counts.items() if kind.name in self._groups(request)]

    def could_use(self, kind: NodeType) -> bool:
        """Whether nodes of the group could run any demand that waits."""
        reply = self._inputs.reply
        demands = (*reply.unplaced, *reply.unmet, *_bundles(reply.unplaced_gangs))
        requests = (Request(demand.request.amounts, demand.request.selectors) for demand in demands)
        return any(kind.name in self._groups(request) for request in requests)

    def of_live_nodes(self) -> list[Demand]:
        """Demand that nodes of no group could run: as it is feasible, a live node could."""
        return [Demand(request, n) for request, n in self._counts.items() if not self._groups(request)]


def _feasible(reply: SchedulingReply) -> Iterator[list[Demand]]:
    """Without gangs that have a topology: what they lack is not only the nodes of a group."""
    impossible = set(reply.impossible)
    yield from ([demand] for demand in reply.unplaced if demand not in impossible)
    yield from (_bundles([gang]) for gang in _waiting_gangs(reply) if gang.topology is None)


def _waiting_gangs(reply: SchedulingReply) -> Iterator[Gang]:
    impossible = set(reply.impossible_gangs)
    yield from (gang for gang in reply.unplaced_gangs if gang not in impossible)


def _bundles(gangs: Iterable[Gang]) -> list[Demand]:
    """What each gang needs on one node: bundles that have to share a node are one request."""
    return [Demand(bundle) for gang in gangs for bundle in merged_by_affinity(gang.bundles)]


def _count(demands: Iterable[Demand]) -> int:
    return sum(demand.count for demand in demands)


# --- text ------------------------------------------------------------------------------------------------------------


def _shapes(demands: Iterable[Demand]) -> str:
    """`{CPU: 1} × 12, {GPU: 2} × 3 and 4 other shapes`."""
    count_by_shape: dict[str, int] = {}
    for demand in demands:
        shape = shape_of(demand.request)
        count_by_shape[shape] = count_by_shape.get(shape, 0) + demand.count
    named = [f"{shape} x {count}" for shape, count in sorted(count_by_shape.items())]
    others = len(named) - MAX_SHAPES
    return ", ".join(named[:MAX_SHAPES]) + (f" and {others} other shapes" if others > 0 else "")


def _some(labels: Iterable[str]) -> str:
    """At most `MAX_SHAPES` of the labels."""
    named = sorted(set(labels))
    others = len(named) - MAX_SHAPES
    return " or ".join(named[:MAX_SHAPES]) + (f" and {others} others" if others > 0 else "")
