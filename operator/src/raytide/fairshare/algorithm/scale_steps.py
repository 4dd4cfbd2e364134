"""Scale steps: what one step up of a participant needs, and whether it fits.

A step is the next allowed size with all pods that come with it; it has to fit the cluster's load limit, the namespace's
quotas, the tenant's quota and borrowing limit, and real nodes. `try_step` places its pods or returns why not. Called by `grow.py`.
"""

from typing import TypeAlias

from raytide.fairshare.algorithm.model import INSUFFICIENT
from raytide.fairshare.algorithm.participant_state import ParticipantState, Pods
from raytide.fairshare.algorithm.placement import PodShape
from raytide.fairshare.algorithm.state import AllocationState, Placement, Rejection, quota_rejection

Step: TypeAlias = list[tuple[Pods, int]]


def try_step(state: AllocationState, participant: ParticipantState, step: Step) -> list[Placement] | Rejection:
    """Place the pods of the step; if they do not all fit, place none and return why."""
    rejection = limits_rejection(state, participant, step)
    if rejection is not None:
        return rejection
    placements: list[Placement] = []
    for pods, count in step:
        placed = state.place(pods, count)
        placements += placed
        if len(placed) < count:
            state.forget(placements)
            return Rejection(INSUFFICIENT, needs=wanted(step))
    return placements


def step_to(participant: ParticipantState, after: int) -> Step:
    """The pods that a larger size needs; companions first, as they are created first (TJ §3 row 4)."""
    step = [(participant.instances, after - participant.size)]
    if participant.companions is not None:
        more = participant.companions_at(after) - participant.companions.placed
        if more > 0:
            step.insert(0, (participant.companions, more))
    return step


def limits_rejection(state: AllocationState, participant: ParticipantState, step: Step) -> Rejection | None:
    """The rejection of the step by the load limit, a quota or the tenant's limits; None if all of them allow it."""
    for pods, count in step:
        shortfall = state.load.shortfall(pods.pod, count, uses_limits=participant.spec.uses_limits)
        if shortfall is not None:
            # A missing node is reported first: a setting may change a sum, but not a node.
            has_room = state.capacity.find(pods.pod) is not None
            return Rejection(INSUFFICIENT, needs=wanted(step), shortfall=shortfall if has_room else None)
    rejected = state.quotas.shortfall(participant.spec.id, wanted(step)) if state.quotas.has_any else None
    return quota_rejection(rejected) if rejected is not None else state.tenant_rejection(participant, wanted(step))


def fits_before_release(state: AllocationState, participant: ParticipantState, step: Step) -> bool:
    """Whether the load limit allows the step while terminating pods still count; to be called before it is placed."""
    uses_limits = participant.spec.uses_limits
    return not state.load.has_terminating or all(
        state.load.shortfall(pods.pod, count, uses_limits=uses_limits, counts_terminating=True) is None
        for pods, count in step
    )


def charge(state: AllocationState, participant: ParticipantState, step: Step) -> None:
    """Charge new pods to sums and quotas; negative counts release them."""
    for pods, count in step:
        state.spend(pods, count)
    if state.quotas.has_any:
        state.quotas.spend(participant.spec.id, wanted(step))


def wanted(step: Step) -> tuple[tuple[PodShape, int], ...]:
    """The pods of the step by shape."""
    return tuple([(pods.pod, count) for pods, count in step])  # a generator costs twice as much: P10
