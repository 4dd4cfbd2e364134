"""Rebalancing between participants of one priority when none waits.

Input: the state at the end of a plan in which nothing else happened. Moves one allowed step at a time from the most to
the least fulfilled participant, with new scores after every move, and merges the steps of a participant into one
resize, because each resize costs a training a change of membership (TJ §3 row 16). For the same reason it starts late
and then goes all the way: a donor starts for a receiver that is further behind than the gap of the options, or while
the donor's last resize is fresh, and then serves any less fulfilled one. A donor releases nothing that it would regain
at once, nor anything while relevant capacity is about to be free. It never ends up below the receiver; no participant
both shrinks and grows in one plan; both must be settled and out of their cool-downs. Called by `allocate.py`.
"""

from bisect import insort
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import TypeAlias

from raytide.api.sharing_record import REBALANCED
from raytide.fairshare.algorithm.participant_state import SCORE_BITS, ParticipantState, Pods, larger_size, largest_size
from raytide.fairshare.algorithm.placement import PodShape
from raytide.fairshare.algorithm.reclaim import Reclaim
from raytide.fairshare.algorithm.scale_steps import Step, charge, refused_by_sums, step_to, wanted, would_regrow
from raytide.fairshare.algorithm.state import State

Turn: TypeAlias = tuple[int, int, ParticipantState]
"""The share is never compared, as no two have the same rank."""


def rebalance(state: State) -> None:
    """Rebalance where allowed; no move if any participant was resized, or would take the freed capacity."""
    if any(share.segments or _would_take_it(state, share) for share in state.shares):
        return
    willing = [share for share in state.shares if share.of.rebalances and share.of.is_scaling_enabled]
    willing.sort(key=lambda share: -share.of.priority)
    for _, level in groupby(willing, key=lambda share: share.of.priority):
        _RebalanceRound(state, list(level)).rebalance_priority_level()


def _would_take_it(state: State, share: ParticipantState) -> bool:
    """Whether it waits for its minimum with pods to which kube-scheduler would give the capacity."""
    if not share.is_waiting or not share.has_begun:
        return False
    return any(pods.loose and state.room.could_hold(pods.pod) for pods in share.all_pods())


@dataclass(eq=False, slots=True)
class _RebalanceRound:
    """Participants of one priority."""

    state: State
    members: list[ParticipantState]
    _donors: list[Turn] = field(default_factory=list)
    """Sorted by score after one step down, the highest first."""
    _frees: dict[int, int] = field(default_factory=dict)
    """Rank of a donor -> the resources of which it would free some, as a bit set."""
    _asked: dict[object, "_Asked"] = field(default_factory=dict)
    _began_at: dict[int, int] = field(default_factory=dict)
    """Rank -> score before the first move."""
    _gap: int = 0
    """The score difference needed to start."""
    _moves: int = 0

    def rebalance_priority_level(self) -> None:
        """Give the least fulfilled participant a step, again and again, until no donor is left for one."""
        donors = [share for share in self.members if _may_give(share)]
        takers = [share for share in self.members if _may_receive(share)]
        self._gap = _scored(self.state.pool.options.rebalance_gap)
        least = _least_ahead(donors, self._gap)
        if all(share.score >= least for share in takers) or self._is_too_early(takers, least):
            return
        self._began_at = {share.rank: share.score for share in self.members}
        self._donors = sorted(turn for share in donors for turn in _donor_turns(share))
        self._frees = {donor.rank: _bits(donor) for _, _, donor in self._donors}
        receivers = [(share.score, share.rank, share) for share in takers]
        heapify(receivers)
        while receivers:
            score, _, receiver = heappop(receivers)
            if not self._moves and score >= least:
                return  # no donor has started, and none would for the remaining receivers
            if not _has_given(receiver) and self._receives(receiver) and receiver.larger() is not None:
                heappush(receivers, (receiver.score, receiver.rank, receiver))

    def _is_too_early(self, takers: list[ParticipantState], least: int) -> bool:
        """Whether capacity is about to be free: its receiver, and the scores after that, are not known yet.

        A resize that is under way is worth waiting for. Pods of other workloads leave all the time in a large cluster,
        and some forever: they count only if the least fulfilled participant would catch up in their capacity alone.
        """
        if any(not share.of.is_settled for share in self.state.shares):
            return any(_room_is_coming(self.state, share) for share in takers)
        behind = min(takers, key=lambda share: (share.score, share.rank))
        size: int | None = behind.size
        while size is not None and behind.score_if(size) < least:
            size = larger_size(behind.of, size)
        missing = (largest_size(behind.of) if size is None else size) - behind.size
        placements = self.state.place(behind.instances, missing)
        self.state.forget(placements)
        return len(placements) == missing

    def _receives(self, receiver: ParticipantState) -> bool:
        """Whether a donor released enough for its next step."""
        after = receiver.larger()
        if after is None:
            return False
        step, score = step_to(receiver, after), receiver.score_if(after)
        if self._moves and self._takes_what_is_left(receiver, step, after):
            return True
        if not self._donors or -self._donors[0][0] < score:
            return False
        asked = self._asked_for(receiver, step, score)
        position = 0
        while position < len(asked.donors):
            turn = asked.donors[position]
            donor = turn[-1]
            if -turn[0] < score:
                return False
            if donor is receiver or _has_received(donor) or not self._is_ahead(donor, receiver):
                position += 1
            elif _could_help(self.state, donor, receiver, score) and self._move(donor, receiver, step, after):
                self._moves += 1
                self._donors.remove(turn)
                for again in _donor_turns(donor):
                    insort(self._donors, again)
                return True
            else:
                asked.in_vain.add(donor.rank)
                del asked.donors[position]
        return False

    def _asked_for(self, receiver: ParticipantState, step: Step, score: int) -> "_Asked":
        """The donors to try for such a step: all but those that could not help before."""
        key = _numbers(step), receiver.of.is_accounted_by_limits, self.state.quotas.names_for(receiver.of.id)
        asked = self._asked.get(key)
        if asked is None or score < asked.score:
            short = _short_everywhere(receiver.instances.pod)
            asked = self._asked[key] = _Asked(score, self._who_frees(short, set()), short, self._moves)
        elif asked.at != self._moves:
            asked.at, asked.donors = self._moves, self._who_frees(asked.short, asked.in_vain)
        return asked

    def _who_frees(self, short: int, in_vain: Collection[int]) -> list[Turn]:
        frees = self._frees
        return [turn for turn in self._donors if frees[-turn[1]] & short == short and -turn[1] not in in_vain]

    def _takes_what_is_left(self, receiver: ParticipantState, step: Step, after: int) -> bool:
        """Whether earlier moves have freed more than was needed."""
        attempt = Reclaim(self.state)
        if refused_by_sums(self.state, receiver, step) is not None or not attempt.places_beside(step):
            return False
        charge(self.state, receiver, step)
        self._grows(receiver, after, attempt)
        return True

    def _is_ahead(self, donor: ParticipantState, receiver: ParticipantState) -> bool:
        """Whether it is far enough ahead to start; a donor that has started goes on until they are even."""
        if donor.score <= receiver.score:
            return False
        ahead = self._began_at[donor.rank] - self._began_at[receiver.rank]
        return _has_given(donor) or _begins(donor, ahead, self._gap)

    def _move(self, donor: ParticipantState, receiver: ParticipantState, step: Step, after: int) -> bool:
        """Take as many steps from the donor as one step of the receiver needs; nothing has changed if that fails."""
        attempt = Reclaim(self.state)
        while _stays_ahead(donor, receiver, after):
            attempt.takes_one(donor, receiver.instances.pod)
            if refused_by_sums(self.state, receiver, step) is None and attempt.places_beside(step):
                break
        else:
            attempt.undo()
            return False
        left = [name for take in attempt.takes for name in take.nodes]
        charge(self.state, receiver, step)
        if would_regrow(self.state, donor, left):
            charge(self.state, receiver, [(pods, -count) for pods, count in step])
            attempt.undo()
            return False
        donor.shrinks_by(sum(take.count for take in attempt.takes), REBALANCED, left, receiver.of.id)
        self._grows(receiver, after, attempt)
        return True

    def _grows(self, receiver: ParticipantState, after: int, attempt: Reclaim) -> None:
        nodes = [spot.name for pods, spot, _ in attempt.placements if pods is receiver.instances]
        receiver.grows(after, REBALANCED, nodes, is_released=False)


@dataclass(eq=False, slots=True)
class _Asked:
    """Donors still to try for one kind of step; nothing improves while other participants move."""

    score: int
    """The lowest score of a receiver so far: for it donors would have released the most."""
    donors: list[Turn]
    short: int
    """What no node has enough of, so that a donor has to have some of it; as a bit set."""
    at: int
    """Number of moves at that time."""
    in_vain: set[int] = field(default_factory=set)


def _scored(gap: Fraction) -> int:
    """The gap on the scale of scores, plus one because these are rounded down."""
    return (gap.numerator << SCORE_BITS) // gap.denominator + 1


def _least_ahead(donors: list[ParticipantState], gap: int) -> int:
    """The lowest score for which no donor would start; usually all participants have it, and then none is tried."""
    return max((donor.score - _hysteresis(donor, gap) for donor in donors), default=0)


def _begins(donor: ParticipantState, ahead: int, gap: int) -> bool:
    """Whether it starts for a participant so far behind; a freshly resized donor corrects to the end."""
    return ahead > _hysteresis(donor, gap)


def _hysteresis(donor: ParticipantState, gap: int) -> int:
    return 0 if donor.of.is_fresh else gap


def _room_is_coming(state: State, share: ParticipantState) -> bool:
    """Whether leaving pods free capacity for one more of it."""
    pod = share.instances.pod
    return state.room.find(pod, is_free_now=True) is None and state.room.find(pod) is not None


def _short_everywhere(pod: PodShape) -> int:
    spots = pod.order.spots
    return sum(1 << number for number, amount in pod.wants if all(spot.soon[number] < amount for spot in spots))


def _bits(donor: ParticipantState) -> int:
    """The resources of which it would free some."""
    kinds = [donor.instances] if donor.companions is None else [donor.instances, donor.companions]
    return sum(1 << number for number in {number for pods in kinds for number, _ in pods.pod.wants})


def _could_help(state: State, donor: ParticipantState, receiver: ParticipantState, score: int) -> bool:
    """False if nothing that the donor has above that score frees enough for one more; most donors are excluded here."""
    pod = receiver.instances.pod
    rank, spot_of = pod.order.rank, state.room.spot_of
    for name, gains in _would_free(donor, score).items():
        spot = spot_of.get(name)
        if spot is not None and spot.index in rank:
            soon = spot.soon
            if all(soon[resource] + gains.get(resource, 0) >= amount for resource, amount in pod.wants):
                return True
    return state.room.find(pod) is not None


def _would_free(donor: ParticipantState, score: int) -> dict[str, dict[int, int]]:
    """Node -> what might become free there before the donor falls below that score."""
    span, known = donor.of.ceiling - donor.of.floor, donor.instances.leaves_first
    lowest = min(donor.size, donor.of.floor + max(0, -(-(score * span) >> SCORE_BITS)))
    surplus = donor.size - lowest
    freed: dict[str, dict[int, int]] = {}
    leaving: Mapping[str, int] = Counter(known[max(0, len(known) - surplus) :]) if known else donor.instances.where
    _add(freed, donor.instances, leaving, surplus)
    if donor.companions is not None:
        fewer = donor.companions_at(donor.size) - donor.companions_at(lowest)
        known = donor.companions.leaves_first
        leaving = Counter(known[max(0, len(known) - fewer) :]) if known else donor.companions.where
        _add(freed, donor.companions, leaving, fewer)
    return freed


def _add(freed: dict[str, dict[int, int]], pods: Pods, where: Mapping[str, int], at_most: int) -> None:
    for name, number in where.items():
        gains, times = freed.setdefault(name, {}), min(number, at_most)
        for resource, amount in pods.pod.wants:
            gains[resource] = gains.get(resource, 0) + amount * times


def _may_give(share: ParticipantState) -> bool:
    return share.of.may_shrink and share.of.is_settled


def _may_receive(share: ParticipantState) -> bool:
    if (
        not share.of.may_grow
        or not share.of.is_settled
        or not share.has_begun
        or share.is_waiting
        or share.larger() is None
    ):
        return False
    return not any(pods.loose for pods in share.all_pods())


def _stays_ahead(donor: ParticipantState, receiver: ParticipantState, after: int) -> bool:
    """Whether one step down leaves the donor at least as fulfilled as the receiver after its step."""
    smaller = donor.smaller()
    return smaller is not None and donor is not receiver and donor.score_if(smaller) >= receiver.score_if(after)


def _has_received(share: ParticipantState) -> bool:
    return bool(share.segments) and share.segments[-1].is_growth


def _has_given(share: ParticipantState) -> bool:
    return bool(share.segments) and not share.segments[-1].is_growth


def _donor_turns(share: ParticipantState) -> Iterator[Turn]:
    smaller = share.smaller()
    if smaller is not None:
        yield -share.score_if(smaller), -share.rank, share


def _numbers(step: Step) -> tuple[tuple[int, int], ...]:
    return tuple((pod.number, count) for pod, count in wanted(step))
