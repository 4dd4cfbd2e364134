"""Reclaim candidates: possible victims for a claimant, and whether they could ever suffice.

Input: a claimant's priority and a `ReclaimScope`: participants that may shrink, those that could without cool-downs, and those
that could regardless of priority; the last two only explain why a participant waits. `Potential` is the upper bound of
each node's capacity if all of them shrank to their minimums, so that hopeless claims cost almost nothing and shrink no
participant. Rules TJ §3 rows 6, 7, TJ §4; called by `minimums.py` and `reclaim.py`.
"""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from raytide.fairshare.algorithm.capacity_index import Vector, Wants
from raytide.fairshare.algorithm.participant_state import ParticipantState, Pods
from raytide.fairshare.algorithm.placement import PodShape, count_that_fits
from raytide.fairshare.algorithm.state import State


class ReclaimScope(Enum):
    """Which participants are considered as victims."""

    WILLING = "who may shrink, or has a lower priority"
    COOLING = "who would, were it not for a cool-down"
    ANYBODY = "who is elastic, of whatever priority"
    YIELDING = "who has a lower priority, and offered to give to strangers"


class Group(NamedTuple):
    """Participants that are equal as victims."""

    priority: int
    may_shrink: bool
    yields: bool


def may_give(donor: ParticipantState, priority: int, reach: ReclaimScope) -> bool:
    """Whether instances above its minimum may be reclaimed for a claimant of that priority."""
    of = donor.of
    if not of.is_scaling_enabled or donor.size <= of.floor:
        return False
    return _is_within(_group(donor), priority, reach)


class Potential:
    """Capacity of each node if all participants shrank to their minimums; built before anything is reclaimed."""

    def __init__(self, state: State) -> None:
        self._room = state.room
        self._soon = [list(spot.soon) for spot in state.room.spots]
        self._by_group: dict[Group, dict[int, Vector]] = {}
        self._vectors: dict[frozenset[Group], dict[int, Vector]] = {}
        self._counts: dict[tuple[int, frozenset[Group], int], int] = {}
        for share in state.shares:
            if share.of.is_scaling_enabled and share.size > share.of.floor:
                group = self._by_group.setdefault(_group(share), {})
                self._add(group, share.instances, share.size - share.of.floor)
                if share.companions is not None:
                    surplus = share.companions_at(share.size) - share.companions_at(share.of.floor)
                    self._add(group, share.companions, surplus)

    def _add(self, group: dict[int, Vector], pods: Pods, at_most: int) -> None:
        spot_of, wants = self._room.spot_of, pods.pod.wants
        for name, number in pods.where.items():
            spot = spot_of.get(name)
            if spot is not None and at_most > 0:
                _increase(group.setdefault(spot.index, [0] * len(spot.soon)), wants, min(number, at_most))

    def givers(self, priority: int, reach: ReclaimScope) -> frozenset[Group]:
        """The groups within reach; two reaches with equal groups need not be tried twice."""
        return frozenset(group for group in self._by_group if _is_within(group, priority, reach))

    def suffices(self, needs: Iterable[tuple[PodShape, int]], givers: frozenset[Group]) -> bool:
        """Whether each shape by itself would fit that many times."""
        return all(self._count(pod, count, givers) >= count for pod, count in needs)

    def _count(self, pod: PodShape, enough: int, givers: frozenset[Group]) -> int:
        key = (pod.number, givers, enough)
        if key not in self._counts:
            self._counts[key] = count_that_fits(pod, self._vectors_for(givers), enough=enough)
        return self._counts[key]

    def _vectors_for(self, givers: frozenset[Group]) -> dict[int, Vector]:
        if givers not in self._vectors:
            vectors = {index: list(soon) for index, soon in enumerate(self._soon)}
            for group in givers:
                for index, more in self._by_group[group].items():
                    vectors[index] = [own + other for own, other in zip(vectors[index], more, strict=True)]
            self._vectors[givers] = vectors
        return self._vectors[givers]


def _increase(vector: Vector, wants: Wants, times: int) -> None:
    for number, amount in wants:
        vector[number] += amount * times


def _group(donor: ParticipantState) -> Group:
    return Group(donor.of.priority, donor.of.may_shrink, donor.of.yields)


def _is_within(group: Group, priority: int, reach: ReclaimScope) -> bool:
    if reach is ReclaimScope.YIELDING:
        return group.yields and group.priority < priority
    if reach is ReclaimScope.ANYBODY or group.priority < priority:
        return True
    return group.priority == priority and (group.may_shrink or reach is ReclaimScope.COOLING)
