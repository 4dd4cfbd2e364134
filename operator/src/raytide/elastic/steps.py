"""What would one step up of a participant need, and is there room for it?

A step is the next allowed size with all that comes with it; it has to fit the load of the cluster, the quotas of its
namespace and real nodes. `tried` places its pods or says why not, `would_grow_back` asks the same of somebody who has just
given: what it would take back at once was taken in vain. Called by `growth.py`, `claims.py` and `rebalance.py`.
"""

from collections.abc import Iterable
from typing import TypeAlias

from raytide.elastic.model import INSUFFICIENT
from raytide.elastic.placement import PodShape
from raytide.elastic.room_index import fits
from raytide.elastic.share import Pods, Share, larger_size
from raytide.elastic.state import Placement, Refusal, State, quota_refusal

Step: TypeAlias = list[tuple[Pods, int]]


def tried(state: State, share: Share, step: Step) -> list[Placement] | Refusal:
    """Where its pods are placed now, or why they are not; nothing has changed then."""
    refusal = refused_by_sums(state, share, step)
    if refusal is not None:
        return refusal
    placements: list[Placement] = []
    for pods, count in step:
        placed = state.place(pods, count)
        placements += placed
        if len(placed) < count:
            state.forget(placements)
            return Refusal(INSUFFICIENT, needs=wanted(step))
    return placements


def step_to(share: Share, after: int) -> Step:
    """The pods that a larger size needs; what comes with the instances first, as it is created first (TJ §3 row 4)."""
    step = [(share.instances, after - share.size)]
    if share.companions is not None:
        more = share.companions_at(after) - share.companions.placed
        if more > 0:
            step.insert(0, (share.companions, more))
    return step


def refused_by_sums(state: State, share: Share, step: Step) -> Refusal | None:
    """What the load of the cluster or a quota says against it."""
    for pods, count in step:
        shortfall = state.load.shortfall(pods.pod, count, is_by_limits=share.of.is_accounted_by_limits)
        if shortfall is not None:
            # What no node has is said first: a sum may be changed by a setting, a node not.
            has_room = state.room.find(pods.pod) is not None
            return Refusal(INSUFFICIENT, needs=wanted(step), shortfall=shortfall if has_room else None)
    refused = state.quotas.shortfall(share.of.id, wanted(step))
    return None if refused is None else quota_refusal(refused)


def charge(state: State, share: Share, step: Step) -> None:
    """New pods count in sums and quotas; negative counts take that back."""
    for pods, count in step:
        state.load.spend_limits(pods.pod, count)
    state.quotas.spend(share.of.id, wanted(step))


def wanted(step: Step) -> tuple[tuple[PodShape, int], ...]:
    """The same by shape."""
    return tuple((pods.pod, count) for pods, count in step)


def would_grow_back(state: State, share: Share, left: Iterable[str]) -> bool:
    """Whether there is room for its next step as things are now; whoever gave a moment ago would take that first.

    Who was as large as it may be had no use for the room elsewhere, and that must not keep it from giving for ever: what
    counts is room on the nodes that its instances `left`, or elsewhere for all that it gave.
    """
    was_full = larger_size(share.of, share.of.current) is None
    if was_full and not (_has_room_on(state, share, left) or _could_all_move(state, share)):
        return False
    after = share.larger()
    placements = None if after is None else tried(state, share, step_to(share, after))
    if placements is None or isinstance(placements, Refusal):
        return False
    state.forget(placements)
    return True


def _has_room_on(state: State, share: Share, names: Iterable[str]) -> bool:
    spots = (state.room.spot_of.get(name) for name in names)
    return any(spot is not None and fits(share.instances.pod.wants, spot.soon) for spot in spots)


def _could_all_move(state: State, share: Share) -> bool:
    given = share.of.current - share.size
    placements = state.place(share.instances, given)
    state.forget(placements)
    return len(placements) == given
