"""Scoring of candidate nodes for the remaining demand.

BEST of AS §2.4 as a contest: candidates are classes of equal nodes, or types to launch. Each is filled and scored once,
and again only when a run it draws on holds less than it takes. The winner has the highest score, in exactly Ray's
floating point operations; of equal ones the earliest wins (AS:S-21..S-25). It tracks what is left of each run, not the
state of nodes; run by packing.py.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate
from itertools import count as counting
from typing import TypeAlias

from raytide.autoscaler.model import RESOURCE_UNIT_SCALING, NodeType
from raytide.autoscaler.scheduling.devices import held_by, left_by
from raytide.autoscaler.scheduling.node_classes import NOTHING, BinFill, Free, Node, NodeClass, Placed, placed_after
from raytide.autoscaler.scheduling.resource_shapes import Run, Shape

EMPTY = BinFill([], ())
Key: TypeAlias = tuple[float, ...]
"""The score, availabilities and priority of a candidate, negated: the least is the best."""


@dataclass(slots=True, eq=False)
class LaunchPool:
    """The nodes of one type that may still be launched; hosts of a begun replica come first."""

    type: NodeType
    node_class: NodeClass
    remaining: int
    """Nodes; whole replicas."""
    first: NodeClass | None = None
    """Class of the first host of each replica, if it differs from the others."""
    begun: int = 0
    """Remaining hosts of the begun replica, launched in any case (B-8)."""
    is_first_due: bool = False
    """Whether the first host is among those."""

    def supply(self, node_class: NodeClass) -> int:
        """Hosts of this class in the begun replica, or in the next one if there is capacity for it."""
        if self.begun:
            return int(self.is_first_due) if node_class is self.first else self.begun - self.is_first_due
        if self.remaining < self.type.num_of_hosts:
            return 0
        return 1 if node_class is self.first else self.type.num_of_hosts - (self.first is not None)

    def begin(self) -> None:
        """Begin a replica."""
        self.begun = self.type.num_of_hosts
        self.is_first_due = self.first is not None

    def use(self, node_class: NodeClass, hosts: int) -> None:
        """Take hosts of the begun replica that hold demand."""
        self.begun -= hosts
        self.is_first_due = self.is_first_due and node_class is not self.first

    def rest(self) -> list[tuple[NodeClass, int]]:
        """Hosts of the begun replica that hold no demand."""
        others = self.begun - self.is_first_due
        found = [(self.first, 1)] if self.first is not None and self.is_first_due else []
        return [*found, (self.node_class, others)] if others else found


@dataclass(slots=True)
class LaunchBudget:
    """What may be launched, and the score values other than the fill."""

    pools: list[LaunchPool]
    remaining: int
    """Nodes of the whole cluster."""
    recoverable: Mapping[str, float]
    availability: Mapping[str, float]


@dataclass(slots=True, eq=False)
class Candidate:
    """Nodes of one class, or nodes to launch of one type, that compete for requests."""

    node_class: NodeClass
    number: int
    """Tie-breaker between heap entries."""
    position: int
    """Of two equal candidates the earlier wins."""
    members: Sequence[Node] = ()
    first: int = 0
    """Index of the first member not taken yet."""
    pool: LaunchPool | None = None
    key: Key = ()
    fill: BinFill = EMPTY
    version: int = 0
    """Version of `key` and `fill`; heap entries with another one are stale."""


class NodeScorer:
    """BEST of AS §2.4, updated while its winners take what they fill."""

    def __init__(self, runs: Sequence[Run], book: int, budget: LaunchBudget) -> None:
        self.shapes = [run.shape for run in runs]
        self.counts = [run.count for run in runs]
        self._book = book
        self._budget = budget
        self._heap: list[tuple[Key, int, int, Candidate]] = []
        self._users: list[list[tuple[int, int, int, Candidate]]] = [[] for _ in runs]
        """By run: candidates that take from it, the largest take first."""
        self._numbers = counting()
        self._alone = [placed_after(NOTHING, ((number, 1),), self.shapes) for number in range(len(runs))]
        self._type_keys: dict[str, Key] = {}
        self._refresh()

    def _refresh(self) -> None:
        """Drop exhausted runs; for each place in the order, compute the least amount any later run needs."""
        self._exhausted = 0
        self.active = [run for run, count in enumerate(self.counts) if count > 0]
        self.is_open = bool(self.active)
        needs = [dict(self.shapes[run].needs) for run in self.active]
        self._least: list[tuple[int, list[int]]] = []
        for resource in set(needs[0]).intersection(*needs[1:]) if needs else ():
            behind = accumulate((need[resource] for need in reversed(needs[1:])), min)
            self._least.append((resource, [*reversed([*behind]), 0]))

    def add_candidate(
        self, node_class: NodeClass, position: int, *, members: Sequence[Node] = (), pool: LaunchPool | None = None
    ) -> Candidate:
        """Create a candidate for nodes of this class, and score it; without `members` they would be launched from `pool`."""
        candidate = Candidate(node_class, next(self._numbers), position, members, pool=pool)
        self.rescore(candidate)
        return candidate

    def rescore(self, candidate: Candidate) -> None:
        """Fill and score a candidate; it competes if it takes anything."""
        candidate.version += 1
        if not self.is_open:
            return
        node_class = candidate.node_class
        fill = self._fill(node_class.free[self._book], node_class.label_map)
        if not fill.takes:
            return
        candidate.fill = fill
        candidate.key = self._key(candidate)
        for run, count in fill.takes:
            heappush(self._users[run], (-count, candidate.number, candidate.version, candidate))
        self._push(candidate)

    def _push(self, candidate: Candidate) -> None:
        heappush(self._heap, (candidate.key, candidate.position, candidate.version, candidate))

    def best(self) -> Candidate | None:
        """The winner, removed from the contest; None if no candidate takes anything."""
        top = self._top()
        if top is not None:
            heappop(self._heap)
        return top

    def _top(self) -> Candidate | None:
        heap = self._heap
        while heap:
            _, _, version, candidate = heap[0]
            if version == candidate.version:
                return candidate
            heappop(heap)
        return None

    def is_tied(self, winner: Candidate) -> bool:
        """Whether another candidate has the same score."""
        rival = self._top()
        return rival is not None and rival.key == winner.key

    def remove(self, candidate: Candidate) -> None:
        """Remove a candidate from the contest."""
        candidate.version += 1

    def repetitions(self, winner: Candidate, supply: int) -> int:
        """How often in a row, at most `supply` times, the winner would win again with the same fill."""
        if supply == 1:
            return 1
        rival = self._top()
        if rival is not None and rival.key == winner.key:
            supply = 1 if winner.pool else min(supply, _ahead_of(rival.position, winner))
        for run, count in winner.fill.takes:
            supply = min(supply, (self.counts[run] - self._greatest_take(run)) // count + 1)
        return supply

    def _greatest_take(self, run: int) -> int:
        users = self._users[run]
        while users[0][2] != users[0][3].version:
            heappop(users)
        return -users[0][0]

    def take(self, winner: Candidate, times: int, *, has_more: bool) -> None:
        """Let the winner take its fill `times` times; refill candidates whose fill is no longer available."""
        counts = self.counts
        for run, count in winner.fill.takes:
            counts[run] -= count * times
            self._exhausted += not counts[run]
        self.is_open = self._exhausted < len(self.active)
        if not has_more:
            winner.version += 1
        outdated: list[Candidate] = []
        for run, _ in winner.fill.takes:
            users, limit = self._users[run], counts[run]
            while users and -users[0][0] > limit:
                _, _, version, user = heappop(users)
                if version == user.version:
                    user.version += 1
                    outdated.append(user)
        if self._exhausted * 8 > len(self.active):
            self._refresh()
        for candidate in outdated:
            self.rescore(candidate)
        if has_more and winner not in outdated:
            self._push(winner)

    def _fill(self, free: Free, labels: Mapping[str, str]) -> BinFill:  # noqa: C901, PLR0912 - the hot loop, kept in one piece
        """FILL of AS §2.4: in order, without backtracking."""
        left, takes, marks = list(free), [], []
        counts, shapes, least = self.counts, self.shapes, self._least
        for place, run in enumerate(self.active):
            shape, count = shapes[run], counts[run]
            if not count:
                continue
            for resource, amount in shape.needs:
                remaining = left[resource]
                if remaining < amount:
                    break
                if remaining < amount * count:
                    count = remaining // amount
            else:
                if shape.devices and not (count := _held_by_devices(shape, left, count)):
                    continue
                if shape.is_label_bound:
                    if not self._admits(shape, labels):
                        continue
                    pair = shape.request.anti_affinity
                    if pair is not None:
                        count = 1
                        labels = {**labels, pair[0]: pair[1]}
                        marks.append(pair)
                for resource, amount in shape.needs:
                    left[resource] -= amount * count
                for devices, amount in shape.devices:
                    left[devices] = left_by(left[devices], amount, count)
                takes.append((run, count))
                for resource, line in least:
                    if left[resource] < line[place]:
                        return BinFill(takes, tuple(left), tuple(marks))
        return BinFill(takes, tuple(left), tuple(marks))

    def _admits(self, shape: Shape, labels: Mapping[str, str]) -> bool:
        """Whether labels allow the shape: selectors match and no anti-affinity conflict (AS §2.4 FILL 1, 2)."""
        if not shape.has_match(labels):
            return False
        pair = shape.request.anti_affinity
        return pair is None or pair[0] not in labels

    def _key(self, candidate: Candidate) -> Key:
        node_class, budget = candidate.node_class, self._budget
        name = node_class.traits.type_name
        type_key = self._type_keys.get(name)
        if type_key is None:
            recoverable, availability = budget.recoverable.get(name, 1.0), budget.availability.get(name, 1.0)
            type_key = self._type_keys[name] = (-recoverable, -node_class.traits.priority, -availability)
        is_begun = candidate.pool is not None and candidate.pool.begun > 0
        return (-is_begun, *self._score(node_class, candidate.fill), *type_key)

    def _score(self, node_class: NodeClass, fill: BinFill) -> Key:
        """The five values of AS:S-21, each negated, in exactly Ray's floating point operations."""
        traits, book = node_class.traits, self._book
        placed = node_class.placed[book]
        if len(fill.takes) == 1 and placed is NOTHING:
            placed = self._alone[fill.takes[0][0]]
        elif fill.takes:
            placed = placed_after(placed, fill.takes, self.shapes)
        facts = traits.score_terms[book]
        terms, left = [], fill.left
        for total, resource, constant in facts.terms:
            if resource < 0:
                terms.append(constant)
                continue
            share = (total - left[resource] / RESOURCE_UNIT_SCALING) / total
            terms.append(total * (share**3))
        least = 0.0 if facts.zero_terms or not terms else min(terms)
        mean = sum(terms) / (len(terms) + facts.zero_terms) if terms else 0.0
        matching = (placed.mask & traits.total_mask).bit_count()
        is_accelerator_right = not traits.accelerators or traits.accelerators & placed.accelerators > 0
        rank = _rank(placed, node_class, fill) if placed.ranked else 0
        return (-rank, -is_accelerator_right, -matching, -least, -mean)


def _held_by_devices(shape: Shape, left: Sequence[int], count: int) -> int:
    """How many of `count` requests the single devices hold."""
    return min(count, *(held_by(left[devices], amount) for devices, amount in shape.devices))


def _rank(placed: Placed, node_class: NodeClass, fill: BinFill) -> int:
    """Rank of the first placed request with a matching selector (AS:S-21, first value)."""
    labels = {**node_class.label_map, **dict(fill.marks)} if fill.marks else node_class.label_map
    return next((rank for shape in placed.ranked if (rank := shape.rank(labels))), 0)


def _ahead_of(position: int, winner: Candidate) -> int:
    """How many of the winner's members come before a rival of equal score, at least one."""
    return max(1, bisect_left(winner.members, position, lo=winner.first, key=_position) - winner.first)


def _position(node: Node) -> int:
    return node.position
