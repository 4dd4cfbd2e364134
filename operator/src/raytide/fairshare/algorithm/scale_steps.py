"""Scale steps: what one step up of a participant needs, and whether it fits.

A step is the next allowed size with all pods that come with it; it has to fit the cluster's load limit, the namespace's
quotas, the tenant's quota and borrowing limit, and real nodes. `tried` places its pods or returns why not. Called by `grow.py`.
"""

from typing import TypeAlias

from raytide.fairshare.algorithm.model import INSUFFICIENT
from raytide.fairshare.algorithm.participant_state import ParticipantState, Pods
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
    refused = state.quotas.shortfall(share.of.id, wanted(step)) if state.quotas.has_any else None
    return quota_refusal(refused) if refused is not None else state.refused_by_tenant(share, wanted(step))


def is_free_now(state: State, share: ParticipantState, step: Step) -> bool:
    """Whether the load limit allows it while pods that are leaving count; before it is placed."""
    by_limits = share.of.is_accounted_by_limits
    return not state.load.has_leaving or all(
        state.load.shortfall(pods.pod, count, is_by_limits=by_limits, is_free_now=True) is None for pods, count in step
    )


def charge(state: State, share: ParticipantState, step: Step) -> None:
    """Charge new pods to sums and quotas; negative counts release them."""
    for pods, count in step:
        state.spend(pods, count)
    if state.quotas.has_any:
        state.quotas.spend(share.of.id, wanted(step))


def wanted(step: Step) -> tuple[tuple[PodShape, int], ...]:
    """The same by shape."""
    return tuple([(pods.pod, count) for pods, count in step])  # a generator costs twice as much: P10
