"""Who gives to whom when nobody needs anything and some are better off than others?

Takes the state at the end of a plan in which nothing else happened; moves one allowed step at a time from the most to the
least fulfilled of one priority, scored anew after every move, until nobody is far enough ahead or nothing fits, and makes
one resize of all that a participant gives or receives: each resize costs a training a change of its membership, so few and
large ones are better than many of one (TJ §3 row 16). The giver never ends up below the receiver, nobody gives and receives
in one plan, and both have to be out of their cool-downs when it begins. Called by `fairness.py`.
"""

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import TypeAlias

from raytide.elastic.growth import Step, charge, refused_by_sums, step_to, wanted
from raytide.elastic.model import REBALANCED
from raytide.elastic.reclaim import Reclaim
from raytide.elastic.share import Share
from raytide.elastic.state import State

Turn: TypeAlias = tuple[int, int, Share]
"""The share never decides, as no two have the same rank."""


def rebalance(state: State) -> None:
    """Let those meet who want it; nothing moves where somebody was resized, or would be quicker to take what is given."""
    if any(share.segments or _would_take_it(state, share) for share in state.shares):
        return
    willing = [share for share in state.shares if share.of.rebalances and share.of.is_scaling_enabled]
    willing.sort(key=lambda share: -share.of.priority)
    for _, level in groupby(willing, key=lambda share: share.of.priority):
        _Level(state, level).even_out()


def _would_take_it(state: State, share: Share) -> bool:
    """Whether it waits for its minimum with pods that kube-scheduler would give the room to."""
    if not share.is_waiting or not share.has_begun:
        return False
    return any(pods.loose and state.room.could_hold(pods.pod) for pods in share.all_pods())


@dataclass(eq=False, slots=True)
class _Level:
    """Those of one priority."""

    state: State
    members: Iterable[Share]
    _donors: list[Turn] = field(default_factory=list)
    """The most fulfilled first."""
    _failed: set[object] = field(default_factory=set)
    """What was not to be had of whom; nothing becomes better while others move."""

    def even_out(self) -> None:
        """The least fulfilled receives a step, again and again, until nobody can give it one."""
        members = list(self.members)
        self._donors = sorted(
            _donor_turn(share) for share in members if share.of.may_shrink and share.smaller() is not None
        )
        receivers = [(share.score, share.rank, share) for share in members if self._donors and _may_receive(share)]
        heapify(receivers)
        while receivers:
            _, _, receiver = heappop(receivers)
            has_given = bool(receiver.segments) and not receiver.segments[-1].is_growth
            if not has_given and self._receives(receiver) and receiver.larger() is not None:
                heappush(receivers, (receiver.score, receiver.rank, receiver))

    def _receives(self, receiver: Share) -> bool:
        """Whether somebody gave it its next step."""
        after = receiver.larger()
        if after is None:
            return False
        step = step_to(receiver, after)
        key = _numbers(step), receiver.of.is_accounted_by_limits, receiver.of.id.namespace
        for position, (_, _, donor) in enumerate(self._donors):
            if not self._is_ahead(donor, receiver):
                return False
            is_tried = (key, donor.rank) in self._failed
            if is_tried or not _stays_ahead(donor, receiver, after) or _has_received(donor):
                continue
            if self._move(donor, receiver, step, after):
                del self._donors[position]
                if donor.smaller() is not None:
                    insort(self._donors, _donor_turn(donor))
                return True
            self._failed.add((key, donor.rank))
        return False

    def _is_ahead(self, donor: Share, receiver: Share) -> bool:
        """By more than the gap."""
        gap = self.state.pool.options.rebalance_gap
        if donor.score <= receiver.score or not gap:
            return donor.score > receiver.score
        return donor.of.score_at(donor.size) - receiver.of.score_at(receiver.size) > gap

    def _move(self, donor: Share, receiver: Share, step: Step, after: int) -> bool:
        """As many steps of the donor as it takes for one of the receiver; nothing has changed if that does not come about."""
        attempt = Reclaim(self.state)
        while _stays_ahead(donor, receiver, after):
            attempt.takes_one(donor, receiver.instances.pod)
            if refused_by_sums(self.state, receiver, step) is None and attempt.places_beside(step):
                break
        else:
            attempt.undo()
            return False
        for take in attempt.takes:
            donor.shrinks_by(take.count, REBALANCED, take.nodes, receiver.of.id)
        charge(self.state, receiver, step)
        nodes = [spot.name for pods, spot, _ in attempt.placements if pods is receiver.instances]
        receiver.grows(after, REBALANCED, nodes, is_released=False)
        return True


def _may_receive(share: Share) -> bool:
    if not share.of.may_grow or not share.has_begun or share.is_waiting or share.larger() is None:
        return False
    return not any(pods.loose for pods in share.all_pods())


def _stays_ahead(donor: Share, receiver: Share, after: int) -> bool:
    """Whether one step less leaves it no less fulfilled than the other is with one more."""
    smaller = donor.smaller()
    return smaller is not None and donor is not receiver and donor.score_if(smaller) >= receiver.score_if(after)


def _has_received(share: Share) -> bool:
    return bool(share.segments) and share.segments[-1].is_growth


def _donor_turn(share: Share) -> Turn:
    return -share.score, -share.rank, share


def _numbers(step: Step) -> tuple[tuple[int, int], ...]:
    return tuple((pod.number, count) for pod, count in wanted(step))
