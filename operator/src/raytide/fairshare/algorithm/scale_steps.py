"""Scale steps: what one step up of a participant needs, and whether it fits.

A step is the next allowed size with all pods that come with it; it has to fit the cluster's load limit, the namespace's
quotas and real nodes. `tried` places its pods or returns why not. `would_regrow` checks the same for a participant
that has just shrunk: if it would regain the capacity at once, the shrink was in vain. Called by `grow.py`,
`minimums.py` and `rebalance.py`.
"""

from collections.abc import Iterable
from typing import TypeAlias

from raytide.fairshare.algorithm.capacity_index import fits
from raytide.fairshare.algorithm.model import INSUFFICIENT
from raytide.fairshare.algorithm.participant_state import ParticipantState, Pods, larger_size
from raytide.fairshare.algorithm.placement import PodShape
from raytide.fairshare.algorithm.state import Placement, Rejection, State, quota_refusal

Step: TypeAlias = list[tuple[Pods, int]]


def tried(state: State, share: ParticipantState, step: Step) -> list[Placement] | Rejection:
    """Place its pods, or return why they do not fit, with nothing changed."""
    refusal = refused_by_sums(state, share, step)
    if refusal is not None:
        return refusal
    placements: list[Placement] = []
    for pods, count in step:
        placed = state.place(pods, count)
        placements += placed
        if len(placed) < count:
            state.forget(placements)
            return Rejection(INSUFFICIENT, needs=wanted(step))
    return placements


def step_to(share: ParticipantState, after: int) -> Step:
    """The pods that a larger size needs; companions first, as they are created first (TJ §3 row 4)."""
    step = [(share.instances, after - share.size)]
    if share.companions is not None:
        more = share.companions_at(after) - share.companions.placed
        if more > 0:
            step.insert(0, (share.companions, more))
    return step


def refused_by_sums(state: State, share: ParticipantState, step: Step) -> Rejection | None:
    """The refusal by the load limit or by a quota; None if both allow it."""
    for pods, count in step:
        shortfall = state.load.shortfall(pods.pod, count, is_by_limits=share.of.is_accounted_by_limits)
        if shortfall is not None:
            # A missing node is reported first: a setting may change a sum, but not a node.
            has_room = state.room.find(pods.pod) is not None
            return Rejection(INSUFFICIENT, needs=wanted(step), shortfall=shortfall if has_room else None)
    refused = state.quotas.shortfall(share.of.id, wanted(step))
    return None if refused is None else quota_refusal(refused)


def charge(state: State, share: ParticipantState, step: Step) -> None:
    """Charge new pods to sums and quotas; negative counts release them."""
    for pods, count in step:
        state.load.spend_limits(pods.pod, count)
    state.quotas.spend(share.of.id, wanted(step))


def wanted(step: Step) -> tuple[tuple[PodShape, int], ...]:
    """The same by shape."""
    return tuple((pods.pod, count) for pods, count in step)


def would_regrow(state: State, share: ParticipantState, left: Iterable[str]) -> bool:
    """Whether its next step fits as things are now, so that it would regain what it has just released.

    For a participant that was at its maximum, capacity elsewhere must not exclude it as a victim forever: only capacity
    on the nodes that its instances `left` counts, or elsewhere for all that it released.
    """
    was_full = larger_size(share.of, share.of.current) is None
    if was_full and not (_has_room_on(state, share, left) or _could_all_move(state, share)):
        return False
    after = share.larger()
    placements = None if after is None else tried(state, share, step_to(share, after))
    if placements is None or isinstance(placements, Rejection):
        return False
    state.forget(placements)
    return True


def _has_room_on(state: State, share: ParticipantState, names: Iterable[str]) -> bool:
    spots = (state.room.spot_of.get(name) for name in names)
    return any(spot is not None and fits(share.instances.pod.wants, spot.soon) for spot in spots)


def _could_all_move(state: State, share: ParticipantState) -> bool:
    given = share.of.current - share.size
    placements = state.place(share.instances, given)
    state.forget(placements)
    return len(placements) == given
