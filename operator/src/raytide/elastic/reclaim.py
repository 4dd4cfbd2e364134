"""What has to leave, and from whom, so that a claimant gets all it needs?

Takes single steps from the donor with the lowest priority, then the highest score, as long as something is missing; only
from donors who hold what is short on a node the claimant may use; and returns at the end what turned out not to be needed
(TJ §3 rows 7, 8, 12). All or nothing: if the claimant does not get everything, the state is as before. Called by
`claims.py`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from raytide.elastic.donors import Reach, may_give
from raytide.elastic.placement import PodShape, Spot
from raytide.elastic.room_index import fits
from raytide.elastic.share import Pods, Share
from raytide.elastic.state import Placement, State

_LOOSE, _PENDING, _KNOWN, _ANY = range(4)
"""Where a pod that leaves comes from: without a node, promised one in this plan, known to be next, or any."""

_WHOLE = 1 << 20

Gone: TypeAlias = tuple[Pods, str, int, int]
"""The pods, the node, how many, and which of the four it was; only those without a node are more than one."""
Turn: TypeAlias = tuple[bool, int, int, int, Share]
"""Whose turn it is to give; the share never decides, as no two have the same rank."""


@dataclass(eq=False, slots=True)
class Take:
    """One step taken from one donor."""

    donor: Share
    count: int
    """How many instances smaller."""
    gone: list[Gone] = field(default_factory=list)

    @property
    def is_free(self) -> bool:
        """Whether it may be given back before later ones: single instances that could have been any."""
        return len(self.gone) == 1 and self.gone[0][-1] == _ANY

    @property
    def is_of_waiting_pods(self) -> bool:
        """Whether no instance that has a node leaves."""
        return all(source == _LOOSE for *_, source in self.gone)

    @property
    def nodes(self) -> list[str]:
        """Where instances leave."""
        return [name for pods, name, _, _ in self.gone if pods is self.donor.instances and name]


@dataclass(eq=False, slots=True)
class Reclaim:
    """An attempt: what was taken and what was placed so far."""

    state: State
    takes: list[Take] = field(default_factory=list)
    placements: list[Placement] = field(default_factory=list)
    spared: frozenset[int] = frozenset()
    """Ranks of those who are not asked."""
    _asked_at: int = -1
    """How much had been taken when everybody was asked again."""

    def succeeds(self, priority: int, needs: list[tuple[Pods, int]], reach: Reach) -> bool:
        """Whether everything found room for a claimant of that priority; otherwise nothing has happened."""
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
                # Whose waiting pods compete for the same room gives all of them before anybody gives one that runs.
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
        """Whether everything fits as things are; otherwise nothing of it is there afterwards."""
        for pods, count in needs:
            if self.place(pods, count):
                self.undo()
                return False
        return True

    def places_beside(self, needs: Iterable[tuple[Pods, int]]) -> bool:
        """The same, but what was taken stays taken."""
        for pods, count in needs:
            if self.place(pods, count):
                self.state.forget(self.placements)
                self.placements = []
                return False
        return True

    def takes_one(self, donor: Share, pod: PodShape) -> None:
        """One step from this donor, where it helps the shape most."""
        self._take(donor, self._where_it_helps(donor, pod) or "", pod)

    def cut(self, donor: Share, size: int) -> Take:
        """Everything above that size leaves, wherever it is."""
        take = Take(donor, donor.size - size)
        take.gone = [*self._leave(donor.instances, take.count, "", donor.instances.pod)]
        if donor.companions is not None:
            surplus = donor.companions.placed + donor.companions.loose - donor.companions_at(size)
            take.gone += self._leave(donor.companions, surplus, "", donor.companions.pod)
        donor.size = size
        self.takes.append(take)
        return take

    def undo(self) -> None:
        """As if nothing had been tried."""
        self.state.forget(self.placements)
        for take in reversed(self.takes):
            self._untake(take)
        self.placements, self.takes = [], []

    def _queue(self, priority: int, needs: list[tuple[Pods, int]], reach: Reach) -> list[Turn]:
        pod = needs[0][0].pod
        willing = (share for share in self.state.shares if share.rank not in self.spared)
        queue = [_turn(share, pod) for share in willing if may_give(share, priority, reach)]
        heapify(queue)
        return queue

    def place(self, pods: Pods, count: int) -> int:
        """As many as fit; how many do not."""
        placed = self.state.place(pods, count)
        self.placements += placed
        return count - len(placed)

    def _next_donor(self, queue: list[Turn], aside: list[Turn], pod: PodShape) -> tuple[Share, str] | None:
        """The best-off who holds what is short, and where; who holds nothing of it now is asked again after others gave."""
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

    def _where_it_helps(self, donor: Share, pod: PodShape) -> str | None:
        """The node, among those the claimant may use, that is nearest to holding one more if the donor gives there."""
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
    def _gives(donor: Share, pods: Pods) -> bool:
        """Companions leave only if fewer go with the floor."""
        if pods is donor.instances:
            return True
        return donor.companions_at(donor.size) > donor.companions_at(donor.of.floor)

    @staticmethod
    def _would_leave(donor: Share, pods: Pods) -> Iterable[str]:
        if pods.leaves_first:
            surplus = donor.size - donor.of.floor
            if pods is donor.companions:
                surplus = donor.companions_at(donor.size) - donor.companions_at(donor.of.floor)
            known = max(0, surplus - pods.loose - len(pods.pending))
            return {*pods.pending, *pods.leaves_first[len(pods.leaves_first) - min(known, len(pods.leaves_first)) :]}
        return pods.where

    # --- one step ------------------------------------------------------------------------------------------------------

    def _take(self, donor: Share, name: str, pod: PodShape, after: int | None = None) -> None:
        """One step, or down to `after` where that costs waiting instances alone."""
        after = donor.smaller() if after is None else after
        if after is None:
            return
        take = Take(donor, donor.size - after)
        take.gone += self._leave(donor.instances, take.count, name, pod)
        if donor.companions is not None:
            surplus = donor.companions_at(donor.size) - donor.companions_at(after)
            take.gone += self._leave(donor.companions, surplus, name, pod)
        donor.size = after
        self.takes.append(take)

    def _leave(self, pods: Pods, count: int, wished: str, pod: PodShape) -> Iterator[Gone]:
        """So many leave: those without a node at once and first, then one by one."""
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
        """Promised ones first, then as the participant says, then where it helps."""
        if pods.pending:
            return pods.pending.pop(), _PENDING
        if pods.leaves_first:
            return pods.leaves_first.pop(), _KNOWN
        if wished in pods.where:
            return wished, _ANY
        return min(pods.where, key=lambda name: self._distance_at(name, pods.pod, pod)), _ANY

    def _distance_at(self, name: str, leaving: PodShape, pod: PodShape) -> tuple[int, int, str]:
        spot = self.state.room.spot_of.get(name)
        if spot is None or spot.index not in pod.order.rank:
            return 1, 0, name
        return 0, _distance(leaving, pod, spot), name

    def _untake(self, take: Take) -> None:
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
        """What was taken in vain, on the way to what helped, stays where it was."""
        kept: list[Take] = []
        settled: set[int] = set()
        for take in sorted(self.takes, key=lambda take: not take.is_of_waiting_pods)[::-1]:
            is_next = id(take.donor) not in settled or take.is_free
            if is_next and (self._is_harmless(take) if take.is_of_waiting_pods and kept else self._is_room_for(take)):
                self._untake(take)
            else:
                settled.add(id(take.donor))
                kept.append(take)
        self.takes = kept[::-1]

    def _is_harmless(self, take: Take) -> bool:
        """Whether the pods that wait have room besides; otherwise they would run to what is given to the claimant."""
        return self.state.room.find(take.donor.instances.pod) is not None

    def _is_room_for(self, take: Take) -> bool:
        """Whether all of it could stay although the claimant comes."""
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


def _turn(donor: Share, pod: PodShape) -> Turn:
    """Who only waits for the same room, then the lower priority, the higher score, the larger, the younger (TJ §3 row 8)."""
    return not _competes(donor, pod), donor.of.priority, -donor.score, -donor.rank, donor


def _competes(donor: Share, pod: PodShape) -> bool:
    """Whether it has a surplus pod without a node, which would take the room that others give to the claimant."""
    return donor.instances.loose > 0 and not donor.instances.pod.order.rank.keys().isdisjoint(pod.order.rank)


def _holds_what_is_short(leaving: PodShape, pod: PodShape, spot: Spot) -> bool:
    """Whether one that leaves frees the scarcest thing that is short there: GPUs before CPU before the rest."""
    for number, amount in pod.wants:
        if spot.soon[number] < amount:
            return leaving.held(number)
    return True


def _distance(leaving: PodShape, pod: PodShape, spot: Spot) -> int:
    """What would still be missing there, as parts of what is wanted."""
    freed = dict(leaving.wants)
    return sum(
        max(0, amount - spot.soon[number] - freed.get(number, 0)) * _WHOLE // amount for number, amount in pod.wants
    )
