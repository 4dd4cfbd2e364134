"""Division without known capacity: each job within its bounds, nothing more (condition CapacityUnknown).

Input: a pool without nodes, because nodes or pods may not be read. Output: a division in which each job has at least
its minimum and at most its maximum: gangs are admitted, sizes outside the bounds are corrected, requested ones are granted,
and no other size changes. kube-scheduler places the pods it can. Pure; called by reconciler.py in place of the planner.
"""

from raytide.api.sharing_record import ABOVE_MAXIMUM, ADMITTED, REACHING_MINIMUM, REQUESTED
from raytide.fairshare import messages
from raytide.fairshare.algorithm.model import (
    CAPACITY_UNKNOWN,
    Allocation,
    ClusterSnapshot,
    Participant,
    Resize,
    Waiting,
)
from raytide.fairshare.algorithm.participant_state import allowed_size


def clamp_to_bounds(pool: ClusterSnapshot, error: str) -> Allocation:
    """Every participant within its bounds; `error` is the reason why capacity is unknown."""
    return Allocation(
        resizes=tuple(resize for each in pool.participants if (resize := _resize(each)) is not None),
        waiting=tuple(
            Waiting(
                each.id,
                CAPACITY_UNKNOWN,
                messages.capacity_unknown(error),
                is_below_floor=False,
            )
            for each in sorted(pool.participants, key=lambda each: each.id)
            if max(each.floor, each.current) < each.ceiling
        ),
    )


def _resize(each: Participant) -> Resize | None:
    after = allowed_size(each, max(each.current, each.grows_to or 0))
    if after == each.current:
        return None
    begins = each.is_gang and each.current == 0
    reason = ABOVE_MAXIMUM if after < each.current else ADMITTED if begins else REACHING_MINIMUM
    if each.grows_to is not None and each.floor < after > each.current:
        reason = REQUESTED
    companions = None
    if each.companion is not None:
        companions = (each.companion.current, each.companion.wanted(after))
    return Resize(each.id, each.current, after, reason, messages.clamped(each.current, after, reason), None, companions)
