"""Who becomes larger in the room that is left?

The highest priority first, and in it always the least fulfilled, one allowed step at a time, scored anew after every grant
(TJ §3 rows 8 to 10, TJ §4 step 2): a step has to fit the load of the cluster, the quotas of its namespace and real nodes,
with all that comes with it. Whoever does not fit is passed over, and free room that a claimant of the same or a higher
priority will have whole once a cool-down ends is left to it. Called by `fairness.py`; mutable state in `state.py`.
"""

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import groupby

from raytide.elastic.claims import Claims
from raytide.elastic.model import COOLING_DOWN, GROWING, INSUFFICIENT
from raytide.elastic.share import Share
from raytide.elastic.state import Placement, Refusal, State
from raytide.elastic.steps import charge, step_to, tried


@dataclass(eq=False, slots=True)
class Kept:
    """Room that this plan gives to nobody: for claimants, and for those whose last resize is under way or fresh."""

    for_claims: list[Placement] = field(default_factory=list)
    sizes_before: dict[int, tuple[Share, int]] = field(default_factory=dict)
    """Rank -> who counts as larger as long as room is kept for it, and its real size."""

    def forget_sizes(self) -> None:
        """Nobody was resized: what was kept is decided when it is settled."""
        for share, size in self.sizes_before.values():
            share.size = size


def grow(state: State, claims: Claims) -> Kept:
    """Fill what is free; returns what was kept, for the caller to forget."""
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
    """Priority -> the highest score that somebody would still have after giving a step to who is less fulfilled."""
    best: dict[int, int] = {}
    for share in state.shares:
        smaller = share.smaller()
        if share.of.rebalances and share.of.is_scaling_enabled and smaller is not None:
            best[share.of.priority] = max(best.get(share.of.priority, 0), share.score_if(smaller))
    return best


def _tell_lack_of_room(state: State, share: Share, best: int) -> None:
    """Who rests, and would have no room either, waits for room: words that change with each rest help nobody.

    Whom somebody better off would give to needs no free room, only the end of its rest.
    """
    after = share.larger()
    if after is None or (share.of.rebalances and best >= share.score_if(after)):
        return
    placements = tried(state, share, step_to(share, after))
    if isinstance(placements, Refusal):
        state.refusals[share.of.id] = placements
    else:
        state.forget(placements)


def _wants_more(state: State, share: Share) -> bool:
    of = share.of
    if share.is_waiting or not of.is_scaling_enabled or not share.has_begun or share.larger() is None:
        return False
    if share.segments and not share.segments[-1].is_growth:
        # Nobody goes down and up in one plan; what it lost here it may have elsewhere when its pods are gone.
        return False
    if any(pods.loose for pods in share.all_pods()):
        loose = tuple((pods.pod, pods.loose) for pods in share.all_pods() if pods.loose)
        state.refusals.setdefault(of.id, Refusal(INSUFFICIENT, needs=loose))
        return False
    if not of.may_grow:
        state.refusals[of.id] = Refusal(COOLING_DOWN)
        return False
    return True


def _is_under_way(state: State, share: Share) -> bool:
    """Whether it would grow in a moment: who is settled, or does not rest, by chance takes no more than its share.

    A longer rest than that of a fresh resize is its own affair; room is not kept for it.
    """
    refusal = state.refusals.get(share.of.id)
    is_resting = refusal is not None and refusal.kind == COOLING_DOWN and not refusal.needs
    return is_resting and _is_soon(share) and not share.segments


def _is_soon(share: Share) -> bool:
    return not share.of.is_settled or share.of.is_fresh


def _grow_level(state: State, shares: list[Share], kept: Kept) -> None:
    """Participants of one priority, least fulfilled first, until nobody has room."""
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


def _keep_one_step(state: State, share: Share, kept: Kept) -> bool:
    """Keep the room of its next allowed size for it."""
    after = share.larger()
    if after is None or isinstance(tried(state, share, step_to(share, after)), Refusal):
        return False
    charge(state, share, step_to(share, after))
    kept.sizes_before.setdefault(share.rank, (share, share.size))
    share.size = after
    return True


def _one_step(state: State, share: Share) -> Refusal | None:
    """Grant the next allowed size, or say why not; nothing has changed then."""
    after = share.larger()
    if after is None:
        return None
    step = step_to(share, after)
    placements = tried(state, share, step)
    if isinstance(placements, Refusal):
        return placements
    nodes = [spot.name for pods, spot, _ in placements if pods is share.instances]
    charge(state, share, step)
    share.grows(after, GROWING, nodes, is_released=all(is_now for _, _, is_now in placements))
    return None
