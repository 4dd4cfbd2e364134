"""Which node is best for what is still asked for?

BEST of AS §2.4 as a contest: candidates are classes of equal nodes, or types to launch; each is filled and scored once,
and again only when a run it draws on holds less than it takes. The winner is the one with the highest score, in exactly
Ray's floating point operations; of equal ones the earliest (AS:S-21..S-25). Knows what is left of each run, and nothing
of nodes; run by packing.py.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate
from itertools import count as counting
from typing import TypeAlias

from raytide.autoscaler.model import UNIT, NodeType
from raytide.autoscaler.scheduling.fleet import NOTHING, Fill, Free, Node, NodeClass, Placed, placed_after
from raytide.autoscaler.scheduling.shapes import RayFailure, Run, Shape

EMPTY = Fill([], ())
Key: TypeAlias = tuple[float, ...]
"""The score, availabilities and priority of a candidate, negated: the least is the best."""


@dataclass(slots=True, eq=False)
class Pool:
    """The nodes of one type that may still be launched; hosts of a begun replica come first."""

    type: NodeType
    home: NodeClass
    room: int
    """Nodes; whole replicas."""
    first: NodeClass | None = None
    """Of the first host of each replica, if it differs from the others."""
    begun: int = 0
    """Hosts that come anyway, because their replica does (B-8)."""
    is_first_due: bool = False
    """Whether the first one is among those."""

    def supply(self, home: NodeClass) -> int:
        """How many hosts of this class the replica has that is begun, or the next one, if there is room for it."""
        if self.begun:
            return int(self.is_first_due) if home is self.first else self.begun - self.is_first_due
        if self.room < self.type.num_of_hosts:
            return 0
        return 1 if home is self.first else self.type.num_of_hosts - (self.first is not None)

    def begin(self) -> None:
        """Launch a whole replica, host by host."""
        self.begun = self.type.num_of_hosts
        self.is_first_due = self.first is not None

    def use(self, home: NodeClass, hosts: int) -> None:
        """These hosts of the replica that is begun have something to hold."""
        self.begun -= hosts
        self.is_first_due = self.is_first_due and home is not self.first

    def rest(self) -> list[tuple[NodeClass, int]]:
        """Hosts that come although nothing needs them."""
        others = self.begun - self.is_first_due
        found = [(self.first, 1)] if self.first is not None and self.is_first_due else []
        return [*found, (self.home, others)] if others else found


@dataclass(slots=True)
class Market:
    """What may be launched, and by which scores beside the fill."""

    pools: list[Pool]
    room: int | None
    """Of the whole cluster; None: no limit."""
    recoverable: Mapping[str, float]
    availability: Mapping[str, float]


@dataclass(slots=True, eq=False)
class Candidate:
    """Nodes of one class, or nodes to launch of one type, that compete for requests."""

    home: NodeClass
    number: int
    """Only to tell candidates apart."""
    position: int
    """Of two equal ones the earlier wins."""
    members: Sequence[Node] = ()
    first: int = 0
    """Members before it are taken."""
    pool: Pool | None = None
    key: Key = ()
    fill: Fill = EMPTY
    version: int = 0
    """Of `key` and `fill`; entries with another are out of date."""


class Contest:
    """BEST of AS §2.4, kept up to date while its winners take what they fill."""

    def __init__(self, runs: Sequence[Run], book: int, market: Market, *, is_exact: bool) -> None:
        self.shapes = [run.shape for run in runs]
        self.counts = [run.count for run in runs]
        self._book = book
        self._market = market
        self._is_exact = is_exact
        self._heap: list[tuple[Key, int, int, Candidate]] = []
        self._users: list[list[tuple[int, int, int, Candidate]]] = [[] for _ in runs]
        """By run: candidates that take from it, the greediest first."""
        self._numbers = counting()
        self._alone = [placed_after(NOTHING, ((number, 1),), self.shapes) for number in range(len(runs))]
        self._beside: dict[str, Key] = {}
        self._refresh()

    def _refresh(self) -> None:
        """Leave out runs that are used up; for each place in the line, the least that anybody behind it needs."""
        self._spent = 0
        self.active = [run for run, count in enumerate(self.counts) if count > 0]
        self.is_open = bool(self.active)
        needs = [dict(self.shapes[run].needs) for run in self.active]
        self._least: list[tuple[int, list[int]]] = []
        for resource in set(needs[0]).intersection(*needs[1:]) if needs else ():
            behind = accumulate((need[resource] for need in reversed(needs[1:])), min)
            self._least.append((resource, [*reversed([*behind]), 0]))

    def admit(
        self, home: NodeClass, position: int, *, members: Sequence[Node] = (), pool: Pool | None = None
    ) -> Candidate:
        """Let such nodes compete."""
        candidate = Candidate(home, next(self._numbers), position, members, pool=pool)
        self.enter(candidate)
        return candidate

    def enter(self, candidate: Candidate) -> None:
        """Fill and score a candidate; it competes if it takes anything."""
        candidate.version += 1
        if not self.is_open:
            return
        home = candidate.home
        fill = self._fill(home.free[self._book], home.label_map)
        if not fill.takes:
            if self._is_exact:
                self._score(home, fill)
            return
        candidate.fill = fill
        candidate.key = self._key(candidate)
        for run, count in fill.takes:
            heappush(self._users[run], (-count, candidate.number, candidate.version, candidate))
        self._push(candidate)

    def _push(self, candidate: Candidate) -> None:
        heappush(self._heap, (candidate.key, candidate.position, candidate.version, candidate))

    def best(self) -> Candidate | None:
        """The winner, taken out of the contest; None if nobody takes anything."""
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
        """Whether another would have done as well."""
        rival = self._top()
        return rival is not None and rival.key == winner.key

    def dismiss(self, candidate: Candidate) -> None:
        """It competes no more."""
        candidate.version += 1

    def repetitions(self, winner: Candidate, supply: int) -> int:
        """How often in a row, at most `supply` times, it would win again with the same fill."""
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
        """Let the winner take its fill `times`; whoever counted on what is gone is filled again."""
        counts = self.counts
        for run, count in winner.fill.takes:
            counts[run] -= count * times
            self._spent += not counts[run]
        self.is_open = self._spent < len(self.active)
        if not has_more:
            winner.version += 1
        disappointed: list[Candidate] = []
        for run, _ in winner.fill.takes:
            users, limit = self._users[run], counts[run]
            while users and -users[0][0] > limit:
                _, _, version, user = heappop(users)
                if version == user.version:
                    user.version += 1
                    disappointed.append(user)
        if self._spent * 8 > len(self.active):
            self._refresh()
        for candidate in disappointed:
            self.enter(candidate)
        if has_more and winner not in disappointed:
            self._push(winner)

    def _fill(self, free: Free, labels: Mapping[str, str]) -> Fill:  # noqa: C901 - the hot loop, kept in one piece
        """FILL of AS §2.4: in order, without going back."""
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
                takes.append((run, count))
                for resource, line in least:
                    if left[resource] < line[place]:
                        return Fill(takes, tuple(left), tuple(marks))
        return Fill(takes, tuple(left), tuple(marks))

    def _admits(self, shape: Shape, labels: Mapping[str, str]) -> bool:
        """Whether labels allow the shape: selectors, and nobody of the same group there (AS §2.4 FILL 1, 2)."""
        if not shape.has_match(labels):
            return False
        pair = shape.request.anti_affinity
        if pair is None or pair[0] not in labels:
            return True
        if labels[pair[0]] == pair[1]:
            return False
        if self._is_exact:
            raise RayFailure("AssertionError")
        return False

    def _key(self, candidate: Candidate) -> Key:
        home, market = candidate.home, self._market
        name = home.traits.type_name
        beside = self._beside.get(name)
        if beside is None:
            recoverable, availability = market.recoverable.get(name, 1.0), market.availability.get(name, 1.0)
            beside = self._beside[name] = (-recoverable, -home.traits.priority, -availability)
        is_begun = candidate.pool is not None and candidate.pool.begun > 0
        return (-is_begun, *self._score(home, candidate.fill), *beside)

    def _score(self, home: NodeClass, fill: Fill) -> Key:
        """The five values of AS:S-21, each negated, in exactly Ray's floating point operations."""
        traits, book = home.traits, self._book
        placed = home.placed[book]
        if len(fill.takes) == 1 and placed is NOTHING:
            placed = self._alone[fill.takes[0][0]]
        elif fill.takes:
            placed = placed_after(placed, fill.takes, self.shapes)
        facts = traits.books[book]
        terms, left = [], fill.left
        for total, resource, constant in facts.terms:
            if resource < 0:
                terms.append(constant)
                continue
            share = (total - left[resource] / UNIT) / total
            if share < 0 and self._is_exact:
                raise RayFailure("AssertionError")
            terms.append(total * (share**3))
        if facts.is_broken and self._is_exact:
            raise RayFailure("AssertionError")
        least = 0.0 if facts.zeros or not terms else min(terms)
        mean = sum(terms) / (len(terms) + facts.zeros) if terms else 0.0
        matching = (placed.mask & traits.total_mask).bit_count()
        is_accelerator_right = not traits.accelerators or traits.accelerators & placed.accelerators > 0
        rank = _rank(placed, home, fill) if placed.ranked else 0
        return (-rank, -is_accelerator_right, -matching, -least, -mean)


def _rank(placed: Placed, home: NodeClass, fill: Fill) -> int:
    """Of the first placed request of which a selector matches (AS:S-21, first value)."""
    labels = {**home.label_map, **dict(fill.marks)} if fill.marks else home.label_map
    return next((rank for shape in placed.ranked if (rank := shape.rank(labels))), 0)


def _ahead_of(position: int, winner: Candidate) -> int:
    """How many of the winner's members stand before a rival of equal score, the first one in any case."""
    return max(1, bisect_left(winner.members, position, lo=winner.first, key=_position) - winner.first)


def _position(node: Node) -> int:
    return node.position
