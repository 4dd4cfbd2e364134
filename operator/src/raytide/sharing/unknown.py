"""What does everybody get where nobody knows how much there is?

Takes a pool without nodes (they may not be read), gives a division in which each job has at least its minimum and at most
its maximum: gangs begin, sizes beyond the bounds are put right, nobody grows and nobody gives. Kubernetes' own scheduler
then does what it can. Pure; called by controller.py in place of the planner (condition CapacityUnknown).
"""

from raytide.elastic.model import (
    ABOVE_MAXIMUM,
    ADMITTED,
    CAPACITY_UNKNOWN,
    REACHING_MINIMUM,
    Division,
    Participant,
    Pool,
    Resize,
    Waiting,
)
from raytide.elastic.share import allowed_size


def within_bounds(pool: Pool, trouble: str) -> Division:
    """Everybody within their bounds; `trouble` says why no more is known."""
    return Division(
        resizes=tuple(resize for each in pool.participants if (resize := _resize(each)) is not None),
        waiting=tuple(
            Waiting(each.id, CAPACITY_UNKNOWN, f"no growth, because {trouble}", is_below_floor=False)
            for each in sorted(pool.participants, key=lambda each: each.id)
            if max(each.floor, each.current) < each.ceiling
        ),
    )


def _resize(each: Participant) -> Resize | None:
    after = allowed_size(each, each.current)
    if after == each.current:
        return None
    begins = each.is_gang and each.current == 0
    reason = ABOVE_MAXIMUM if after < each.current else ADMITTED if begins else REACHING_MINIMUM
    companions = None
    if each.companion is not None:
        companions = (each.companion.current, each.companion.wanted(after))
    return Resize(each.id, each.current, after, reason, f"{each.current}→{after} {_WORDS[reason]}", None, companions)


_WORDS = {
    ABOVE_MAXIMUM: "to come down to a size that it may have",
    ADMITTED: "to begin with its minimum",
    REACHING_MINIMUM: "to reach its minimum",
}
