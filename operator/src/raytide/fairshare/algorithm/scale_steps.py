"""Scale steps: what one step up of a participant needs, and whether it fits.

A step is the next allowed size with all pods that come with it; it has to fit the cluster's load limit, the namespace's
quotas, the tenant's quota and borrowing limit, and real nodes. `try_step` places its pods or returns why not. Called by `grow.py`.
"""

from dataclasses import dataclass
from typing import TypeAlias

from raytide.fairshare.algorithm.model import INSUFFICIENT
from raytide.fairshare.algorithm.participant_state import ParticipantState, Pods
from raytide.fairshare.algorithm.placement import PodShape
from raytide.fairshare.algorithm.state import AllocationState, Placement, Rejection, quota_rejection

Kind: TypeAlias = tuple[object, ...]


@dataclass(eq=False, slots=True)
class GrowthStep:
    """The next allowed size of a participant, and the pods that it needs for that."""

    participant: ParticipantState
    after: int
    needs: list[tuple[Pods, int]]
    """Companions first, as they are created first (TJ §3 row 4)."""
    kind: Kind
    """Steps of a kind fit or do not fit alike: the pods, whether limits count, the tenant, and the participant with quotas."""

    @property
    def wanted(self) -> tuple[tuple[PodShape, int], ...]:
        """The pods by shape."""
        return tuple([(pods.pod, count) for pods, count in self.needs])


def next_step(state: AllocationState, participant: ParticipantState) -> GrowthStep | None:
    """The step to the next allowed size; None at the maximum."""
    after = participant.larger()
    if after is None:
        return None
    needs = [(participant.instances, after - participant.size)]
    if participant.companions is not None:
        more = participant.companions_at(after) - participant.companions.placed
        if more > 0:
            needs.insert(0, (participant.companions, more))
    numbers = tuple([(pods.pod.number, count) for pods, count in needs])  # a generator costs twice as much: P10
    who = participant.spec.id if state.quotas.has_any else None
    return GrowthStep(
        participant, after, needs, (numbers, participant.spec.uses_limits, participant.tenant.spec.name, who)
    )


def try_step(state: AllocationState, step: GrowthStep) -> list[Placement] | Rejection:
    """Place the pods of the step; if they do not all fit, place none and return why."""
    rejection = _limits_rejection(state, step)
    if rejection is not None:
        return rejection
    placements: list[Placement] = []
    for pods, count in step.needs:
        placed = state.place(pods, count)
        placements += placed
        if len(placed) < count:
            state.forget(placements)
            return Rejection(INSUFFICIENT, needs=step.wanted)
    return placements


def _limits_rejection(state: AllocationState, step: GrowthStep) -> Rejection | None:
    """The rejection of the step by the load limit, a quota or the tenant's limits; None if all of them allow it."""
    shortfall = state.load.shortfall(step.wanted, uses_limits=step.participant.spec.uses_limits)
    if shortfall is not None:
        # A missing node is reported first: a setting may change a sum, but not a node.
        has_nodes = all(state.capacity.find(pods.pod) is not None for pods, _ in step.needs)
        return Rejection(INSUFFICIENT, needs=step.wanted, shortfall=shortfall if has_nodes else None)
    rejected = state.quotas.shortfall(step.participant.spec.id, step.wanted) if state.quotas.has_any else None
    return quota_rejection(rejected) if rejected is not None else state.tenant_rejection(step.participant, step.wanted)


def fits_before_release(state: AllocationState, step: GrowthStep) -> bool:
    """Whether the load limit allows the step while terminating pods still count; to be called before it is placed."""
    uses_limits = step.participant.spec.uses_limits
    return (
        not state.load.has_terminating
        or state.load.shortfall(step.wanted, uses_limits=uses_limits, counts_terminating=True) is None
    )
