"""Fair-share planner: the size of every elastic participant.

Input: one snapshot (`ClusterSnapshot`). Output: resizes in the order in which they are carried out, and why other participants
wait. Steps: sizes above the maximum are cut; minimums are served; instances that found no node are released; free
capacity is shared, highest priority first and within it least fulfilled first; then, among participants that allow it,
instances are rebalanced between unequal ones (TJ §3, §4). Pure and deterministic: the order of the input does not
matter. A plan of a carried-out plan is empty where all instances request the same; with mixed requests repeated plans
end, usually with the second.

Priority comes before fairness, and a minimum before any surplus of the same or a lower priority; between tenants the
lower share comes before priority (`tenants.py`). Only what is above a minimum can be reclaimed, so a participant of low
priority keeps its minimum (TJ §7 item 11). No participant shrinks for
one that could not start anyway, for an exceeded sum, or for capacity that is about to be free. A participant that
starts without waiting for capacity has its minimum as its current size already, and its pods without a node claim
capacity.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from raytide.api.sharing_record import ABOVE_MAXIMUM, ADMITTED, REACHING_MINIMUM, SIZE_NOT_ALLOWED
from raytide.fairshare.algorithm.grow import grow
from raytide.fairshare.algorithm.minimums import MinimumGuarantees
from raytide.fairshare.algorithm.model import NODES_HELP, Allocation, ClusterSnapshot, ParticipantId, Resize, Waiting
from raytide.fairshare.algorithm.participant_state import ParticipantState, ResizeStep, allowed_size, largest_size
from raytide.fairshare.algorithm.pending_reasons import Reasons
from raytide.fairshare.algorithm.preemption import cut
from raytide.fairshare.algorithm.release_unschedulable import release_unschedulable
from raytide.fairshare.algorithm.resize_messages import sentence
from raytide.fairshare.algorithm.state import AllocationState, Rejection, begin


def allocate(snapshot: ClusterSnapshot) -> Allocation:
    """The plan for this snapshot; guarantees are in the module docstring."""
    state = begin(snapshot)
    for participant in state.participants:
        _cut(state, participant)
    claims = MinimumGuarantees(state)
    claims.guarantee_minimums()
    release_unschedulable(state, claims.fill_again)
    kept = grow(state, claims)
    state.forget(kept.for_claims)
    kept.restore_sizes()
    for participant in state.participants:
        _round_down(state, participant)
    waiting = _waiting(state, claims.reserved_nodes)
    claims.admit_for_node_autoscaler({each.id for each in waiting if each.is_below_floor and each.reason in NODES_HELP})
    return Allocation(_resizes(state), waiting, frozenset(state.contradicted))


def _cut(state: AllocationState, participant: ParticipantState) -> None:
    """Shrink the participant to its largest allowed size (TJ §4 step 0)."""
    largest = largest_size(participant.spec)
    if participant.size > largest:
        before = participant.size
        step = cut(state, participant, largest)
        participant.record_shrink(before - largest, ABOVE_MAXIMUM, step.nodes)


def _round_down(state: AllocationState, participant: ParticipantState) -> None:
    """Shrink to an allowed size: `kubectl scale` and failures may leave one that is not allowed (FD:SH-B12)."""
    before, after = participant.size, allowed_size(participant.spec, participant.size)
    if participant.spec.floor <= after < before:
        step = cut(state, participant, after)
        participant.record_shrink(before - after, SIZE_NOT_ALLOWED, step.nodes)


# --- output ----------------------------------------------------------------------------------------------------------------


def _resizes(state: AllocationState) -> tuple[Resize, ...]:
    """All shrinks, then admissions and minimums, then other growth; each by priority and id."""
    floors = {participant.spec.id: participant for participant in state.participants}
    found = [
        (
            (_phase(segment), -participant.spec.priority, participant.spec.id, number),
            _resize(participant, segment, floors),
        )
        for participant in state.participants
        for number, segment in enumerate(participant.segments)
        if segment.before != segment.after
    ]
    return tuple(resize for _, resize in sorted(found, key=lambda one: one[0]))


def _phase(segment: ResizeStep) -> int:
    if not segment.is_growth:
        return 0
    return 1 if segment.reason in (ADMITTED, REACHING_MINIMUM) else 2


def _resize(
    participant: ParticipantState, segment: ResizeStep, participants: dict[ParticipantId, ParticipantState]
) -> Resize:
    companions = None
    if participant.spec.companion is not None:
        # The present number may differ from that for this size when the ratio was edited.
        is_first = participant.segments[0] is segment
        before = participant.spec.companion.current if is_first else participant.companions_at(segment.before)
        companions = (before, participant.companions_at(segment.after))
    return Resize(
        participant.spec.id,
        segment.before,
        segment.after,
        segment.reason,
        sentence(participant, segment, participants, reader=participant.spec.id.namespace),
        next(iter((*segment.for_ids, *segment.receivers)), None),
        companions,
        segment.is_released,
        {name: number for name, number in sorted(segment.nodes.items()) if number},
        sentence(participant, segment, participants),
        _core_nodes(participant) if segment.reason in (ADMITTED, REACHING_MINIMUM) else {},
        (*segment.for_ids, *segment.receivers),
        tuple(dict.fromkeys(segment.for_pods)),
    )


def _core_nodes(participant: ParticipantState) -> dict[str, dict[str, int]]:
    missing = (core.name for core in participant.spec.core if core.missing > 0)
    return {
        name: dict(Counter(sorted(pods.pending)))
        for name, pods in zip(missing, participant.cores, strict=True)
        if pods.pending
    }


def _waiting(state: AllocationState, reserved_nodes: Mapping[ParticipantId, tuple[str, ...]]) -> tuple[Waiting, ...]:
    """Every participant below its minimum, and every elastic one below its maximum that may grow at all."""
    reasons = Reasons(state, reserved_nodes)
    found = [reasons.waiting(participant, rejection) for participant, rejection in _with_rejections(state)]
    found += [reasons.omitted(participant) for participant in state.considered.omitted]
    return tuple(sorted(found, key=lambda each: each.id))


def _with_rejections(state: AllocationState) -> Iterator[tuple[ParticipantState, Rejection]]:
    for participant in state.participants:
        rejection = state.rejections.get(participant.spec.id)
        if rejection is not None and (participant.is_waiting or participant.larger() is not None):
            yield participant, rejection
