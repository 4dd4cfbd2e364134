"""Reclaim: the steps that victims have to shrink so that a claimant gets all it needs.

Takes single steps from the victim with the lowest priority, then the highest score, while something is missing; only
from victims that hold the missing resource on a node the claimant may use; at the end, steps that were not needed are
undone (TJ §3 rows 7, 8, 12). All or nothing: if the claimant does not get everything, the state is as before. Called by
`minimums.py`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from raytide.fairshare.algorithm.capacity_index import fits
from raytide.fairshare.algorithm.participant_state import ParticipantState, Pods
from raytide.fairshare.algorithm.placement import NodeCapacity, PodShape
from raytide.fairshare.algorithm.reclaim_candidates import ReclaimScope, may_give
from raytide.fairshare.algorithm.state import Placement, State

_LOOSE, _PENDING, _KNOWN, _ANY = range(4)
"""Where a leaving pod comes from: without a node, assigned in this plan, known to be next, or any."""

_WHOLE = 1 << 20

Gone: TypeAlias = tuple[Pods, str, int, int]
"""The pods, the node, how many, and which of the four kinds; more than one only without a node."""
Turn: TypeAlias = tuple[bool, int, int, int, ParticipantState]
"""Order of victims; the share is never compared, as no two have the same rank."""


@dataclass(eq=False, slots=True)
class Reclaimed:
    """One step taken from one victim."""

    donor: ParticipantState
    count: int
    """By how many instances it shrinks."""
    gone: list[Gone] = field(default_factory=list)

    @property
    def is_free(self) -> bool:
        """Whether it may be undone before later ones: a single instance that could have been any.

        Not where companions come with the instances: which step removes one depends on the size.
        """
        return len(self.gone) == 1 and self.gone[0][-1] == _ANY and self.donor.companions is None

    @property
    def is_of_waiting_pods(self) -> bool:
        """Whether only instances without a node leave."""
        return all(source == _LOOSE for *_, source in self.gone)

    @property
    def nodes(self) -> list[str]:
        """Nodes that instances leave."""
        return [name for pods, name, _, _ in self.gone if pods is self.donor.instances and name]


@dataclass(eq=False, slots=True)
class Reclaim:
    """An attempt: the steps taken and the pods placed so far."""

    state: State
    takes: list[Reclaimed] = field(default_factory=list)
    placements: list[Placement] = field(default_factory=list)
    spared: frozenset[int] = frozenset()
    """Ranks of participants that are not victims."""
    _asked_at: int = -1
    """Number of steps taken when all victims were tried again."""

    def succeeds(self, priority: int, needs: list[tuple[Pods, int]], reach: ReclaimScope) -> bool:
        """Whether everything was placed for a claimant of that priority; otherwise nothing has changed."""
        queue = self._queue(priority, needs, reach)
        aside: list[Turn] = []
        for pods, count in needs:
            missing = self.place(pods, count)
            while missing:
                found = self._next_donor(queue, aside, pods.pod)
                if found is None:
                    self.undo()
                    return False
                donor, name = found
                # All pending pods that compete for the capacity are removed before any running one.
                self._take(donor, name, pods.pod, None if name else donor.without_waiting(donor.size))
                if donor.smaller() is not None:
                    heappush(queue, _turn(donor, pods.pod))
                missing = self.place(pods, missing)
            for turn in aside:
                heappush(queue, turn)
            aside.clear()
        self._give_back()
        return True

    def places(self, needs: Iterable[tuple[Pods, int]]) -> bool:
        """Whether everything fits as things are; otherwise nothing is placed."""
        for pods, count in needs:
            if self.place(pods, count):
                self.undo()
                return False
        return True

    def places_beside(self, needs: Iterable[tuple[Pods, int]]) -> bool:
        """The same, but steps already taken stay taken."""
        for pods, count in needs:
            if self.place(pods, count):
                self.state.forget(self.placements)
                self.placements = []
                return False
        return True

    def takes_one(self, donor: ParticipantState, pod: PodShape) -> None:
        """Take one step from this participant, where it helps the shape most."""
        self._take(donor, self._where_it_helps(donor, pod) or "", pod)

    def cut(self, donor: ParticipantState, size: int) -> Reclaimed:
        """Shrink to that size, wherever the instances are."""
        take = Reclaimed(donor, donor.size - size)
        take.gone = [*self._leave(donor.instances, take.count, "", donor.instances.pod)]
        if donor.companions is not None:
            surplus = donor.companions.placed + donor.companions.loose - donor.companions_at(size)
            take.gone += self._leave(donor.companions, surplus, "", donor.companions.pod)
        donor.size = size
        self.takes.append(take)
        return take

    def undo(self) -> None:
        """Undo everything."""
        self.state.forget(self.placements)
        for take in reversed(self.takes):
            self._untake(take)
        self.placements, self.takes = [], []

    def _queue(self, priority: int, needs: list[tuple[Pods, int]], reach: ReclaimScope) -> list[Turn]:
        pod = needs[0][0].pod
        willing = (share for share in self.state.shares if share.rank not in self.spared)
        queue = [_turn(share, pod) for share in willing if may_give(share, priority, reach)]
        heapify(queue)
        return queue

    def place(self, pods: Pods, count: int) -> int:
        """Place as many as fit; returns how many do not."""
        placed = self.state.place(pods, count)
        self.placements += placed
        return count - len(placed)

    def _next_donor(self, queue: list[Turn], aside: list[Turn], pod: PodShape) -> tuple[ParticipantState, str] | None:
        """The best-off victim that holds what is short, and the node; the others are tried again after more steps."""
        while True:
            while queue:
                turn = heappop(queue)
                name = self._where_it_helps(turn[-1], pod)
                if name is not None:
                    return turn[-1], name
                aside.append(turn)
            if not aside or len(self.takes) == self._asked_at:
                return None
            self._asked_at = len(self.takes)
            queue += aside
            heapify(queue)
            aside.clear()

    def _where_it_helps(self, donor: ParticipantState, pod: PodShape) -> str | None:
        """The node, of those the claimant may use, that is nearest to holding one more if the victim shrinks there."""
        if _competes(donor, pod):
            return ""
        best: tuple[int, int] | None = None
        best_name = None
        for pods in (donor.instances, donor.companions):
            if pods is None or not self._gives(donor, pods):
                continue
            for name in self._would_leave(donor, pods):
                spot = self.state.room.spot_of.get(name)
                rank = None if spot is None else pod.order.rank.get(spot.index)
                if spot is None or rank is None or not _holds_what_is_short(pods.pod, pod, spot):
                    continue
                distance = (_distance(pods.pod, pod, spot), rank)
                if best is None or distance < best:
                    best, best_name = distance, name
        return best_name

    @staticmethod
    def _gives(donor: ParticipantState, pods: Pods) -> bool:
        """Companions leave only if fewer go with the minimum."""
        if pods is donor.instances:
            return True
        return donor.companions_at(donor.size) > donor.companions_at(donor.of.floor)

    @staticmethod
    def _would_leave(donor: ParticipantState, pods: Pods) -> Iterable[str]:
        if pods.leaves_first:
            surplus = donor.size - donor.of.floor
            if pods is donor.companions:
                surplus = donor.companions_at(donor.size) - donor.companions_at(donor.of.floor)
            known = max(0, surplus - pods.loose - len(pods.pending))
            return {*pods.pending, *pods.leaves_first[len(pods.leaves_first) - min(known, len(pods.leaves_first)) :]}
        return filter(pods.may_leave, pods.where)

    # --- one step ------------------------------------------------------------------------------------------------------

    def _take(self, donor: ParticipantState, name: str, pod: PodShape, after: int | None = None) -> None:
        """Take one step, or shrink to `after` if that removes only instances without a node."""
        after = donor.smaller() if after is None else after
        if after is None:
            return
        take = Reclaimed(donor, donor.size - after)
        take.gone += self._leave(donor.instances, take.count, name, pod)
        if donor.companions is not None:
            surplus = donor.companions_at(donor.size) - donor.companions_at(after)
            take.gone += self._leave(donor.companions, surplus, name, pod)
        donor.size = after
        self.takes.append(take)

    def _leave(self, pods: Pods, count: int, wished: str, pod: PodShape) -> Iterator[Gone]:
        """Remove so many: those without a node at once and first, then one by one."""
        count = max(0, count)
        self.state.load.spend_limits(pods.pod, -count)
        loose = min(count, max(0, pods.loose))
        if loose > 0:
            pods.loose -= loose
            yield pods, "", loose, _LOOSE
        for _ in range(count - loose):
            name, source = self._next_to_leave(pods, wished, pod)
            pods.remove(name)
            self.state.load.spend_requests(pods.pod, -1)
            spot = self.state.room.spot_of.get(name)
            if spot is not None:
                self.state.room.release(pods.pod, spot)
            yield pods, name, 1, source

    def _next_to_leave(self, pods: Pods, wished: str, pod: PodShape) -> tuple[str, int]:
        """Pods assigned in this plan first, then in the participant's order, then where it helps."""
        if pods.pending:
            return pods.pending.pop(), _PENDING
        if pods.leaves_first:
            return pods.leaves_first.pop(), _KNOWN
        if wished in pods.where and pods.may_leave(wished):
            return wished, _ANY
        return min(filter(pods.may_leave, pods.where), key=lambda name: self._distance_at(name, pods.pod, pod)), _ANY

    def _distance_at(self, name: str, leaving: PodShape, pod: PodShape) -> tuple[int, int, str]:
        spot = self.state.room.spot_of.get(name)
        if spot is None or spot.index not in pod.order.rank:
            return 1, 0, name
        return 0, _distance(leaving, pod, spot), name

    def _untake(self, take: Reclaimed) -> None:
        take.donor.size += take.count
        for pods, name, count, source in reversed(take.gone):
            self.state.load.spend_limits(pods.pod, count)
            if source == _LOOSE:
                pods.loose += count
                continue
            pods.add(name)
            self.state.load.spend_requests(pods.pod, 1)
            spot = self.state.room.spot_of.get(name)
            if spot is not None:
                self.state.room.keep(pods.pod, spot)
            if source == _PENDING:
                pods.pending.append(name)
            elif source == _KNOWN:
                pods.leaves_first.append(name)

    def _give_back(self) -> None:
        """Undo steps that turned out not to be needed."""
        kept: list[Reclaimed] = []
        settled: set[int] = set()
        for take in sorted(self.takes, key=lambda take: not take.is_of_waiting_pods)[::-1]:
            is_next = id(take.donor) not in settled or take.is_free
            if is_next and (self._is_harmless(take) if take.is_of_waiting_pods and kept else self._is_room_for(take)):
                self._untake(take)
            else:
                settled.add(id(take.donor))
                kept.append(take)
        self.takes = kept[::-1]

    def _is_harmless(self, take: Reclaimed) -> bool:
        """Whether the pending pods fit besides; otherwise they would take what is reclaimed for the claimant."""
        return self.state.room.find(take.donor.instances.pod) is not None

    def _is_room_for(self, take: Reclaimed) -> bool:
        """Whether all of it could stay beside the claimant's pods."""
        left: dict[int, list[int]] = {}
        for pods, name, _, source in take.gone:
            spot = self.state.room.spot_of.get(name)
            if source == _LOOSE or spot is None:
                continue
            vector = left.setdefault(spot.index, list(spot.soon))
            if not fits(pods.pod.wants, vector):
                return False
            for number, amount in pods.pod.wants:
                vector[number] -= amount
        return True


def _turn(donor: ParticipantState, pod: PodShape) -> Turn:
    """Competing pending pods first, then the lower priority, higher score, larger, younger (TJ §3 row 8)."""
    return not _competes(donor, pod), donor.of.priority, -donor.score, -donor.rank, donor


def _competes(donor: ParticipantState, pod: PodShape) -> bool:
    """Whether it has a surplus pod without a node that would take the capacity reclaimed for the claimant."""
    return donor.instances.loose > 0 and not donor.instances.pod.order.rank.keys().isdisjoint(pod.order.rank)


def _holds_what_is_short(leaving: PodShape, pod: PodShape, spot: NodeCapacity) -> bool:
    """Whether a leaving pod frees the scarcest resource that is short there: GPUs before CPU before the rest."""
    for number, amount in pod.wants:
        if spot.soon[number] < amount:
            return leaving.held(number)
    return True


def _distance(leaving: PodShape, pod: PodShape, spot: NodeCapacity) -> int:
    """What would still be missing there, as fractions of what is wanted."""
    freed = dict(leaving.wants)
    return sum(
        max(0, amount - spot.soon[number] - freed.get(number, 0)) * _WHOLE // amount for number, amount in pod.wants
    )
