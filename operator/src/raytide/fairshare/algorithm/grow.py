"""Growth into free capacity.

Highest priority first, and within it always the least fulfilled participant, one allowed step at a time; scores are
updated after every grant (TJ §3 rows 8 to 10, TJ §4 step 2). A step with all pods that come with it has to fit the
cluster's load limit, the namespace's quotas and real nodes. A participant that does not fit is skipped. Free capacity
that a claimant of the same or a higher priority will take once a cool-down ends is kept for it. Called by
`allocate.py`; mutable state in `state.py`.
"""

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import groupby

from raytide.api.sharing_record import GROWING
from raytide.fairshare.algorithm.minimums import MinimumGuarantees
from raytide.fairshare.algorithm.model import COOLING_DOWN, INSUFFICIENT
from raytide.fairshare.algorithm.participant_state import ParticipantState
from raytide.fairshare.algorithm.scale_steps import charge, step_to, tried
from raytide.fairshare.algorithm.state import Placement, Rejection, State


@dataclass(eq=False, slots=True)
class Kept:
    """Capacity that this plan keeps for claimants, and for participants with a resize that is fresh or under way."""

    for_claims: list[Placement] = field(default_factory=list)
    sizes_before: dict[int, tuple[ParticipantState, int]] = field(default_factory=dict)
    """Rank -> a participant that counts as larger while capacity is kept for it, and its real size."""

    def restore_sizes(self) -> None:
        """Restore the real sizes: what was kept is decided once the resize has settled."""
        for share, size in self.sizes_before.values():
            share.size = size


def grow(state: State, claims: MinimumGuarantees) -> Kept:
    """Grant free capacity; returns what was kept, for the caller to release."""
    kept = Kept()
    cooling = sorted(claims.cooling, key=lambda claim: -claim[0].of.priority)
    shares = sorted(state.shares, key=lambda share: -share.of.priority)
    for priority, level in groupby(shares, key=lambda share: share.of.priority):
        while cooling and cooling[0][0].of.priority >= priority:
            for pods, count in cooling.pop(0)[1]:
                kept.for_claims += state.place(pods, count)
        _grow_level(state, [share for share in level if _wants_more(state, share) or _is_under_way(state, share)], kept)
    resting = []
    for share in state.shares:
        refusal = state.refusals.get(share.of.id)
        is_resting = refusal is not None and refusal.kind == COOLING_DOWN and not refusal.needs
        if is_resting and share.rank not in kept.sizes_before:
            resting.append(share)
    best = _best_off(state) if resting else {}
    for share in resting:
        _tell_lack_of_room(state, share, best.get(share.of.priority, 0))
    return kept


def _best_off(state: State) -> dict[int, int]:
    """Priority -> the highest score that a participant would keep after one step down for a less fulfilled one."""
    best: dict[int, int] = {}
    for share in state.shares:
        smaller = share.smaller()
        if share.of.rebalances and share.of.is_scaling_enabled and smaller is not None:
            best[share.of.priority] = max(best.get(share.of.priority, 0), share.score_if(smaller))
    return best


def _tell_lack_of_room(state: State, share: ParticipantState, best: int) -> None:
    """Report missing capacity for a resting participant without any: a reason that changes with rests is noise.

    A participant that rebalancing would serve needs no free capacity, only the end of its cool-down.
    """
    after = share.larger()
    if after is None or (share.of.rebalances and best >= share.score_if(after)):
        return
    placements = tried(state, share, step_to(share, after))
    if isinstance(placements, Rejection):
        state.refusals[share.of.id] = placements
    else:
        state.forget(placements)


def _wants_more(state: State, share: ParticipantState) -> bool:
    of = share.of
    if share.is_waiting or not of.is_scaling_enabled or not share.has_begun or share.larger() is None:
        return False
    if share.segments and not share.segments[-1].is_growth:
        # No participant shrinks and grows in one plan; it may grow elsewhere once its pods are gone.
        return False
    if any(pods.loose for pods in share.all_pods()):
        loose = tuple((pods.pod, pods.loose) for pods in share.all_pods() if pods.loose)
        state.refusals.setdefault(of.id, Rejection(INSUFFICIENT, needs=loose))
        return False
    if not of.may_grow:
        state.refusals[of.id] = Rejection(COOLING_DOWN)
        return False
    return True


def _is_under_way(state: State, share: ParticipantState) -> bool:
    """Whether it would grow in a moment: otherwise settled participants would take its share.

    No capacity is kept for a cool-down longer than that of a fresh resize.
    """
    refusal = state.refusals.get(share.of.id)
    is_resting = refusal is not None and refusal.kind == COOLING_DOWN and not refusal.needs
    return is_resting and _is_soon(share) and not share.segments


def _is_soon(share: ParticipantState) -> bool:
    return not share.of.is_settled or share.of.is_fresh


def _grow_level(state: State, shares: list[ParticipantState], kept: Kept) -> None:
    """Grow participants of one priority, least fulfilled first, until no step fits."""
    turns = [(share.score, share.rank, share) for share in shares]
    heapify(turns)
    while turns:
        _, _, share = heappop(turns)
        if not share.of.may_grow and _is_soon(share):
            has_grown = _keep_one_step(state, share, kept)
        elif refusal := _one_step(state, share):
            has_grown, state.refusals[share.of.id] = False, refusal
        else:
            has_grown = True
        if has_grown and share.larger() is not None:
            heappush(turns, (share.score, share.rank, share))


def _keep_one_step(state: State, share: ParticipantState, kept: Kept) -> bool:
    """Keep the capacity of its next allowed size for it."""
    after = share.larger()
    if after is None or isinstance(tried(state, share, step_to(share, after)), Rejection):
        return False
    charge(state, share, step_to(share, after))
    kept.sizes_before.setdefault(share.rank, (share, share.size))
    share.size = after
    return True


def _one_step(state: State, share: ParticipantState) -> Rejection | None:
    """Grant the next allowed size, or return why not, with nothing changed."""
    after = share.larger()
    if after is None:
        return None
    step = step_to(share, after)
    placements = tried(state, share, step)
    if isinstance(placements, Rejection):
        return placements
    nodes = [spot.name for pods, spot, _ in placements if pods is share.instances]
    charge(state, share, step)
    share.grows(after, GROWING, nodes, is_released=all(is_now for _, _, is_now in placements))
    return None
