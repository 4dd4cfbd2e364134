"""Release of unschedulable instances: scale-down of instances above the minimum that have no node.

Instances without a node for long, and without capacity in this plan, are released down to an allowed size. They are
released at once if pods of other workloads with a higher priority wait for nodes that they might have used:
kube-scheduler serves those first, and evicted pods need not return only to pend. Capacity that becomes free on the way
(a step that includes a running instance, parameter servers that go with the trainers) is offered to all pending pods
before the next participant is considered. Called by `allocate.py`; mutable state in `state.py` (SC:S25).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from raytide.api.sharing_record import CREATION_FORBIDDEN, INSUFFICIENT_CAPACITY, UNSCHEDULABLE
from raytide.fairshare.algorithm.model import NO_NODE_S
from raytide.fairshare.algorithm.participant_state import ParticipantState, smaller_size
from raytide.fairshare.algorithm.preemption import cut
from raytide.fairshare.algorithm.resize_messages import pod_name
from raytide.fairshare.algorithm.state import AllocationState


def release_unschedulable(state: AllocationState, fill_again: Callable[[], None]) -> None:
    """Release in turn, participants that may free capacity first; `fill_again` offers it to all pending pods."""
    higher_priority_pods = _HigherPriorityPods(state)
    for participant in sorted(state.participants, key=_frees_no_capacity):
        reason, left = _release_count_and_reason(state, participant, higher_priority_pods)
        while left > 0 and participant.size > participant.spec.floor:
            before, after = participant.size, participant.size_without_unplaced(left)
            if after is None:
                after = smaller_size(participant.spec, participant.size) or participant.spec.floor
            step = cut(state, participant, after)
            participant.record_shrink(before - after, reason, step.nodes)
            if not step.is_of_waiting_pods:
                fill_again()
            left = min(left - (before - after), participant.instances.unplaced)


def _frees_no_capacity(participant: ParticipantState) -> bool:
    return participant.companions is None and not participant.spec.sizes and participant.spec.step == 1


def _release_count_and_reason(
    state: AllocationState, participant: ParticipantState, higher_priority_pods: "_HigherPriorityPods"
) -> tuple[str, int]:
    """How many of its instances are released, and why."""
    unplaced = participant.instances.unplaced
    if not unplaced or not participant.spec.is_scaling_enabled or participant.size <= participant.spec.floor:
        return INSUFFICIENT_CAPACITY, 0
    first = higher_priority_pods.before(participant)
    if first and not state.record_unplaceable(participant):  # pods that a quota rejects wait for the quota
        participant.release_message = _behind(pod_name(first, participant.spec.id.namespace))
        participant.full_release_message = _behind(first)
        return INSUFFICIENT_CAPACITY, unplaced
    if rejected_count := min(participant.spec.wanted_in_vain, unplaced):
        reason = CREATION_FORBIDDEN if participant.spec.is_repeatedly_forbidden else UNSCHEDULABLE
        participant.release_message = participant.full_release_message = _MESSAGES[reason].format(rejected_count)
        return reason, rejected_count
    if waiting := min(participant.spec.unplaced_for_long, unplaced):
        participant.release_message = f"{participant.spec.unplaced_for_long} of its pods had no node for {NO_NODE_S} s"
        participant.full_release_message = participant.release_message
        return INSUFFICIENT_CAPACITY, waiting
    return INSUFFICIENT_CAPACITY, 0


_MESSAGES: Final = {
    CREATION_FORBIDDEN: "the API server rejects {} of its pods",
    UNSCHEDULABLE: (
        "kube-scheduler finds no node for {} of its pods although nodes have enough free capacity, so another constraint is "
        "not met (host port, anti-affinity, volume, device); see the events of the pods"
    ),
}


def _behind(first: str) -> str:
    return f"no capacity is left for more of its pods after {first}, which has a higher priority and no node"


@dataclass(eq=False, slots=True)
class _HigherPriorityPods:
    """Pending pods of other workloads that could have a node; equal questions are computed once."""

    state: AllocationState
    _first_by_nodes: dict[tuple[int, int], str] = field(default_factory=dict)

    def before(self, participant: ParticipantState) -> str:
        """The first pod with a higher priority that could use a node of the participant; empty if there is none."""
        order, priority = participant.instances.pod.order, participant.spec.priority
        key = (id(order), priority)
        if key not in self._first_by_nodes:
            higher_priority = (
                external
                for external in self.state.external_pods
                if external.is_short and external.spec.priority > priority
            )
            able = (
                external
                for external in higher_priority
                if self.state.capacity.could_hold(external.pods.pod, order.position_of)
            )
            self._first_by_nodes[key] = next((external.spec.name for external in able), "")
        return self._first_by_nodes[key]
