"""How far has this decision come?

Holds the fleet of one decision and how many nodes of each type are spoken for, and places one step's requests after
another: each sees what the ones before it placed and launched. Nothing happens to the fleet before a plan is accepted.
Shared by schedule.py and ray_exact.py, which differ in what they ask and count.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from raytide.autoscaler.model import Amounts, Demand, NodeType, OnProgress, SchedulingInput, unwatched
from raytide.autoscaler.scheduling.contest import Market, Pool
from raytide.autoscaler.scheduling.fleet import Fate, Fleet, Node, Plan
from raytide.autoscaler.scheduling.packing import pack
from raytide.autoscaler.scheduling.reading import Reader
from raytide.autoscaler.scheduling.shapes import Run

MOST_NODES: Final = 20_000
"""Nodes of one Ray cluster for which this sidecar plans: far more than Ray runs on, and few enough for its memory, whatever
is asked for and however large `maxReplicas` is."""


class Session:
    """One decision under way."""

    def __init__(
        self,
        question: SchedulingInput,
        types: Sequence[NodeType],
        reader: Reader,
        nodes: Iterable[Node],
        occupied: Counter[str],
        *,
        launched: Counter[str] | None = None,
        on_progress: OnProgress = unwatched,
    ) -> None:
        self.fleet = Fleet(reader.vocabulary, is_exact=question.is_ray_exact)
        self.fleet.settle(nodes)
        self.occupied = occupied
        """Nodes by type that count against its maximum and the cluster's."""
        self._launched = Counter(launched or {})
        """Nodes by type that this decision launches; they are in `occupied`, too."""
        self._question = question
        self._types = types
        self._reader = reader
        self._on_progress = on_progress

    def widen(
        self, types: Sequence[NodeType], nodes: Iterable[Node] = (), hosts: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        """From now on launch these types, and let these nodes hold something, too.

        `hosts` says by type for how many the nodes count against the maxima.
        """
        self._types = types
        self.fleet.settle(nodes)
        self.occupied.update(hosts)

    def runs(self, demands: Iterable[Demand]) -> list[Run]:
        """Demands in the order of placement."""
        return self._reader.vocabulary.runs(demands, is_merging=not self._question.is_ray_exact)

    def plan(self, demands: Iterable[Demand], book: int, *, is_launching: bool = True) -> Plan:
        """Where these would go."""
        market = self._market(is_launching=is_launching)
        return pack(self.fleet, self.runs(demands), book, market, self._on_progress)

    def accept(self, plan: Plan) -> None:
        """Let a plan happen."""
        self.fleet.accept(plan)
        for launch in plan.launches:
            for node in launch.nodes[:1]:
                self.occupied[node.type_name] += len(launch.nodes)
                self._launched[node.type_name] += len(launch.nodes)

    def _market(self, *, is_launching: bool) -> Market:
        question = self._question
        pools = []
        for one in self._types if is_launching else ():
            if one.is_head and not question.is_ray_exact:
                continue
            hosts = one.num_of_hosts
            room = one.max_nodes // hosts * hosts - self.occupied[one.name]
            if one.available is not None:
                room = min(room, one.available // hosts * hosts - self._launched[one.name])
            if room > 0:
                pools.append(Pool(one, self._reader.fresh(one), room, self._reader.fresh_first(one)))
        most = question.max_nodes or None
        if not question.is_ray_exact:
            most = min(most or MOST_NODES, MOST_NODES)
        room_of_all = None if most is None else most - self.occupied.total()
        return Market(pools, room_of_all, question.recoverable, question.availability)


def idle_key(node: Node) -> tuple[bool, int, float]:
    """Ascending: which node to end first (AS:S-10): not joined yet, longest idle, least used."""
    instance = node.instance
    if instance is None:
        return (False, 0, node.use)
    is_running = node.home.traits.is_running
    return (bool(instance.node_id) and is_running, -instance.idle_ms if is_running else 0, node.use)


def demands_of(runs: Iterable[Run]) -> tuple[Demand, ...]:
    """Runs as demands, equal ones joined."""
    counts: Counter[object] = Counter()
    requests = {}
    for run in runs:
        counts[run.shape] += run.count
        requests[run.shape] = run.shape.request
    return tuple(Demand(requests[shape], counts[shape]) for shape in requests)


def launches_of(fleet: Fleet, types: Sequence[NodeType]) -> dict[str, int]:
    """Nodes to launch by type, in the order of the types."""
    counts: Counter[str] = Counter()
    for one in fleet.classes():
        if one.fate is Fate.COMES:
            counts[one.traits.type_name] += len(one.members)
    return {one.name: counts[one.name] for one in types if counts[one.name]}


def resources_of(nodes: Collection[Node]) -> Amounts:
    """Totals of all these nodes (AS:S-32)."""
    alike = Counter(node.home.traits for node in nodes)
    sums: Counter[str] = Counter()
    for traits, count in alike.items():
        for name, amount in traits.total:
            sums[name] += amount * count
    for node in nodes:
        for name, amount in node.own:
            sums[name] += amount
    return tuple(sorted(sums.items()))
