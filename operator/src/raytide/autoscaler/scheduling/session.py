"""Scheduling session: the fleet of one decision and its steps.

Holds the fleet and the number of nodes per type that count against the limits, and places one step's requests after
another: each step sees what earlier ones placed and launched. The fleet changes only when a plan is accepted. Used by
schedule.py.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from raytide.autoscaler.model import (
    RESOURCE_UNIT_SCALING,
    Amounts,
    Demand,
    Instance,
    NodeType,
    OnProgress,
    SchedulingRequest,
    unwatched,
)
from raytide.autoscaler.scheduling.node_classes import Node, NodeClasses, NodeDisposition, Plan
from raytide.autoscaler.scheduling.node_factory import NodeFactory
from raytide.autoscaler.scheduling.packing import pack
from raytide.autoscaler.scheduling.resource_shapes import Run
from raytide.autoscaler.scheduling.scoring import LaunchBudget, LaunchPool

MAX_NODES: Final = 20_000
"""Node limit of the planning for one Ray cluster: far above what Ray supports, and low enough for the sidecar's memory
whatever the demand and `maxReplicas` are."""


class Session:
    """One decision in progress."""

    def __init__(
        self,
        inputs: SchedulingRequest,
        types: Sequence[NodeType],
        reader: NodeFactory,
        nodes: Iterable[Node],
        occupied: Counter[str],
        *,
        launched: Counter[str] | None = None,
        on_progress: OnProgress = unwatched,
    ) -> None:
        self.fleet = NodeClasses(reader.requested)
        self.fleet.settle(nodes)
        self.occupied = occupied
        """Nodes by type that count against its maximum and the cluster's."""
        self._launched = Counter(launched or {})
        """Nodes by type that this decision launches; also included in `occupied`."""
        self._inputs = inputs
        self._types = types
        self._reader = reader
        self._on_progress = on_progress

    def widen(
        self, types: Sequence[NodeType], nodes: Iterable[Node] = (), hosts: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        """Replace the types to launch from now on, and add these nodes to the fleet.

        `hosts` is by type how many of the nodes count against the maxima.
        """
        self._types = types
        self.fleet.settle(nodes)
        self.occupied.update(hosts)

    def runs(self, demands: Iterable[Demand]) -> list[Run]:
        """Demands in placement order."""
        return self._reader.requested.runs(demands)

    def plan(self, demands: Iterable[Demand], book: int, *, is_launching: bool = True) -> Plan:
        """Plan the placement of these demands."""
        budget = self._budget(is_launching=is_launching)
        return pack(self.fleet, self.runs(demands), book, budget, self._on_progress)

    def accept(self, plan: Plan) -> None:
        """Apply a plan and count its launches."""
        self.fleet.accept(plan)
        for launch in plan.launches:
            for node in launch.nodes[:1]:
                self.occupied[node.type_name] += len(launch.nodes)
                self._launched[node.type_name] += len(launch.nodes)

    def _budget(self, *, is_launching: bool) -> LaunchBudget:
        inputs = self._inputs
        pools = []
        for one in self._types if is_launching else ():
            if one.is_head:
                continue
            hosts = one.num_of_hosts
            remaining = one.max_nodes // hosts * hosts - self.occupied[one.name]
            if one.available is not None:
                remaining = min(remaining, one.available // hosts * hosts - self._launched[one.name])
            if remaining > 0:
                pools.append(LaunchPool(one, self._reader.fresh(one), remaining, self._reader.fresh_first(one)))
        remaining_of_all = min(inputs.max_nodes or MAX_NODES, MAX_NODES) - self.occupied.total()
        return LaunchBudget(pools, remaining_of_all, inputs.recoverable, inputs.availability)


def idle_key(node: Node) -> tuple[bool, int, float]:
    """Sort key, ascending, of nodes to terminate (AS:S-10): not joined yet, longest idle, least used."""
    instance = node.instance
    if instance is None or not node.node_class.traits.is_running:
        return (False, 0, 0.0)
    return (bool(instance.node_id), -instance.idle_ms, _share_in_use(instance))


def _share_in_use(instance: Instance) -> float:
    """Mean over its resources, without what this decision places (AS:S-10)."""
    free = dict(instance.available)
    shares = [
        (amount / RESOURCE_UNIT_SCALING - free.get(name, 0) / RESOURCE_UNIT_SCALING) / (amount / RESOURCE_UNIT_SCALING)
        for name, amount in instance.total
        if amount > 0
    ]
    return sum(shares) / len(shares) if shares else 0.0


def demands_of(runs: Iterable[Run]) -> tuple[Demand, ...]:
    """Runs as demands, equal ones joined."""
    counts: Counter[object] = Counter()
    requests = {}
    for run in runs:
        counts[run.shape] += run.count
        requests[run.shape] = run.shape.request
    return tuple(Demand(requests[shape], counts[shape]) for shape in requests)


def launches_of(fleet: NodeClasses, types: Sequence[NodeType]) -> dict[str, int]:
    """Nodes to launch by type, in the order of the types."""
    counts: Counter[str] = Counter()
    for one in fleet.classes():
        if one.disposition is NodeDisposition.TO_LAUNCH:
            counts[one.traits.type_name] += len(one.members)
    return {one.name: counts[one.name] for one in types if counts[one.name]}


def total_of(node: Node) -> Amounts:
    """Its resources: those Ray reports of a running node, those of its type for any other (AS:S-3, AS:S-4)."""
    traits = node.node_class.traits
    return node.instance.total if traits.is_running and node.instance is not None else traits.total
