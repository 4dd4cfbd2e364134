"""Which size should every elastic participant have?

Takes one snapshot, gives the resizes in the order in which they are carried out and why everybody else waits. First sizes
above the maximum are cut, then floors are served, then what found no node is taken back and the rest is shared: the highest
priority first and in it always the least fulfilled, and at last, unless somebody does not want it, instances move between
those that are unequal (TJ §3, §4). Pure and deterministic: the same snapshot in any order gives the same plan, and planning
again on what was planned gives none.

Priority goes before fairness, and a floor before anybody's surplus of the same or a lower priority: what is above a floor
is what can be lost, so a high priority keeps its core and more, and a low one keeps its core (TJ §7 item 11). Nobody is
shrunk for what could not begin anyway, for a sum that is exceeded, or for room that is about to be free. Whoever begins
at once, on the chance of room, has its floor as its current size already, and its pods without a node claim room.
"""

from collections.abc import Iterator

from raytide.elastic.claims import Claims
from raytide.elastic.growth import grow
from raytide.elastic.model import (
    ABOVE_MAXIMUM,
    ADMITTED,
    REACHING_MINIMUM,
    SIZE_NOT_ALLOWED,
    Division,
    ParticipantId,
    Pool,
    Resize,
    Waiting,
)
from raytide.elastic.reasons import Reasons
from raytide.elastic.rebalance import rebalance
from raytide.elastic.reclaim import Reclaim
from raytide.elastic.sentences import sentence
from raytide.elastic.share import Segment, Share, allowed_size, largest_size
from raytide.elastic.state import Refusal, State, begin
from raytide.elastic.taking_back import take_back


def divide(pool: Pool) -> Division:
    """The plan for this snapshot; see the module's docstring for what it promises."""
    state = begin(pool)
    for share in state.shares:
        _cut(state, share)
    claims = Claims(state)
    claims.serve()
    take_back(state, claims.fill_again)
    kept = grow(state, claims)
    state.forget(kept.for_claims)
    rebalance(state)
    kept.forget_sizes()
    for share in state.shares:
        _round_down(state, share)
    return Division(_resizes(state), _waiting(state), frozenset(state.contradicted))


def _cut(state: State, share: Share) -> None:
    """Nobody is larger than its maximum (TJ §4 step 0)."""
    largest = largest_size(share.of)
    if share.size > largest:
        before = share.size
        take = Reclaim(state).cut(share, largest)
        share.shrinks_by(before - largest, ABOVE_MAXIMUM, take.nodes)


def _round_down(state: State, share: Share) -> None:
    """Whoever did not get to a size that it may have comes down to one: `kubectl scale` and failures know no sizes (FD:SH-B12)."""
    before, after = share.size, allowed_size(share.of, share.size)
    if share.of.floor <= after < before:
        take = Reclaim(state).cut(share, after)
        share.shrinks_by(before - after, SIZE_NOT_ALLOWED, take.nodes)


# --- what is told ----------------------------------------------------------------------------------------------------------


def _resizes(state: State) -> tuple[Resize, ...]:
    """All shrinks, then admissions and floors, then the rest; each by priority and id."""
    floors = {share.of.id: share for share in state.shares}
    found = [
        ((_phase(segment), -share.of.priority, share.of.id, number), _resize(share, segment, floors))
        for share in state.shares
        for number, segment in enumerate(share.segments)
        if segment.before != segment.after
    ]
    return tuple(resize for _, resize in sorted(found, key=lambda one: one[0]))


def _phase(segment: Segment) -> int:
    if not segment.is_growth:
        return 0
    return 1 if segment.reason in (ADMITTED, REACHING_MINIMUM) else 2


def _resize(share: Share, segment: Segment, shares: dict[ParticipantId, Share]) -> Resize:
    companions = None
    if share.of.companion is not None:
        # What is there now may differ from what goes with the size, when the ratio was edited.
        is_first = share.segments[0] is segment
        before = share.of.companion.current if is_first else share.companions_at(segment.before)
        companions = (before, share.companions_at(segment.after))
    return Resize(
        share.of.id,
        segment.before,
        segment.after,
        segment.reason,
        sentence(share, segment, shares, reader=share.of.id.namespace),
        segment.for_ids[0] if segment.for_ids else None,
        companions,
        segment.is_released,
        {name: number for name, number in sorted(segment.nodes.items()) if number},
        sentence(share, segment, shares),
    )


def _waiting(state: State) -> tuple[Waiting, ...]:
    """Everybody below its floor, and everybody elastic who is below its ceiling and may grow at all."""
    reasons = Reasons(state)
    return tuple(reasons.waiting(share, refusal) for share, refusal in _refused(state))


def _refused(state: State) -> Iterator[tuple[Share, Refusal]]:
    for share in state.shares:
        refusal = state.refusals.get(share.of.id)
        if refusal is not None and (share.is_waiting or share.larger() is not None):
            yield share, refusal
