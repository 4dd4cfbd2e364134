"""The sentences of fair sharing (ADR 0023), and which of them decided a resize, or that a participant waits.

Called by trainingjob.py; decides nothing.
"""

from typing import Final

from raytide.api.sharing_record import (
    REBALANCED,
    RECLAIMED,
    RELEASED,
    YIELDED_TO_PODS,
    ResizeNote,
    WaitingNote,
)
from raytide.fairshare.algorithm.model import (
    CAPACITY_RESERVED,
    COOLING_DOWN,
    FRAGMENTED,
    HELD_BY_RANK_ZERO,
    HIGHER_PRIORITY,
    INSUFFICIENT,
    INSUFFICIENT_GPU,
    QUOTA_EXCEEDED,
    SCHEDULING_GATED,
)

SENTENCES: Final = (
    "Pods stay where they are, unless the plan names them as victims, by node.",
    (
        "Minimums are served first, by priority, then by age; a minimum is served as a whole, with the master and the parameter "
        "servers, or not at all; where nodes are autoscaled, its pods exist from time to time until then, so that nodes are added."
    ),
    "What is above minimums is shared step by step: by priority, to jobs with GPUs first, then to the job with the lowest score.",
    (
        "A step takes free capacity, and capacity that other pods are about to leave; it fits nodes, quotas and, above a minimum, the "
        "load limit; the step of a job whose cooldown ends within a minute is kept for it."
    ),
    (
        "Otherwise it preempts: for each pod it takes the node where that costs the lowest priority, then the fewest trainers, then "
        "those of the job with the highest score."
    ),
    (
        "No job shrinks below its minimum, in its cooldown, for a lower priority, for `preemptionPolicy: Never`, or for pods that have "
        "scheduling gates or got no node within the last hour."
    ),
    (
        "Above a minimum, a job of the same priority gives only to one with less than four fifths of its score, and keeps a higher "
        "score than that one had; a job without GPUs gives to a job with GPUs without that limit, so that no GPU is idle."
    ),
    (
        "Of donors, one that is scaled down anyway comes first; one trainer costs at most eight others, and none where a pending pod "
        "would take what is freed."
    ),
    "Steps that turn out not to be needed are undone, and rounds are repeated until one frees nothing.",
    (
        "What differs from the present sizes is written, a scale-up once all that was freed for it is there, or 10 s after a part of it "
        "is."
    ),
)
"""As in ADR 0023."""

_OF_LOSS: Final = {
    RECLAIMED: 5,
    YIELDED_TO_PODS: 5,
    REBALANCED: 7,
    **dict.fromkeys(RELEASED, 4),
}
_MISSING: Final = frozenset({INSUFFICIENT, INSUFFICIENT_GPU, FRAGMENTED})
_OF_WAITING: Final = {
    CAPACITY_RESERVED: 2,
    QUOTA_EXCEEDED: 4,
    COOLING_DOWN: 6,
    HELD_BY_RANK_ZERO: 6,
    HIGHER_PRIORITY: 6,
    SCHEDULING_GATED: 6,
}


def deciding(resize: ResizeNote | None, waiting: WaitingNote | None, *, rebalances: bool) -> list[str]:
    """The sentences that decided that a job was scaled down, or that it waits, each with its number.

    `resize`: its last one; `rebalances`: whether others of its priority may be scaled down for its growth.
    """
    found: dict[int, None] = {}
    if resize is not None and resize.reason in _OF_LOSS:
        found[_OF_LOSS[resize.reason]] = None
    if waiting is not None and waiting.reason in _MISSING:
        found[6 if waiting.is_below_minimum else 7 if rebalances else 4] = None
    elif waiting is not None and waiting.reason in _OF_WAITING:
        found[_OF_WAITING[waiting.reason]] = None
    return [f"Fair sharing, sentence {number}: {SENTENCES[number - 1]}" for number in found]
