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
from raytide.fairshare.algorithm.state import State


def release_unschedulable(state: State, fill_again: Callable[[], None]) -> None:
    """Release in turn, participants that may free capacity first; `fill_again` offers it to all pending pods."""
    line = _Line(state)
    for share in sorted(state.shares, key=_frees_nothing):
        reason, left = _waiting(state, share, line)
        while left > 0 and share.size > share.of.floor:
            before, after = share.size, share.without_waiting(left)
            if after is None:
                after = smaller_size(share.of, share.size) or share.of.floor
            step = cut(state, share, after)
            share.shrinks_by(before - after, reason, step.nodes)
            if not step.is_of_waiting_pods:
                fill_again()
            left = min(left - (before - after), share.instances.loose)


def _frees_nothing(share: ParticipantState) -> bool:
    return share.companions is None and not share.of.sizes and share.of.step == 1


def _waiting(state: State, share: ParticipantState, line: "_Line") -> tuple[str, int]:
    """How many of its instances are released, and why."""
    loose = share.instances.loose
    if not loose or not share.of.is_scaling_enabled or share.size <= share.of.floor:
        return INSUFFICIENT_CAPACITY, 0
    first = line.before(share)
    if first and not state.record_quota_shortfall(share):  # pods that a quota rejects wait for the quota
        share.taken_back = _behind(pod_name(first, share.of.id.namespace))
        share.taken_back_in_full = _behind(first)
        return INSUFFICIENT_CAPACITY, loose
    if in_vain := min(share.of.wanted_in_vain, loose):
        reason = CREATION_FORBIDDEN if share.of.is_repeatedly_forbidden else UNSCHEDULABLE
        share.taken_back = share.taken_back_in_full = _TOLD[reason].format(in_vain)
        return reason, in_vain
    if waiting := min(share.of.unplaced_for_long, loose):
        share.taken_back = f"{share.of.unplaced_for_long} of its pods had no node for {NO_NODE_S} s"
        share.taken_back_in_full = share.taken_back
        return INSUFFICIENT_CAPACITY, waiting
    return INSUFFICIENT_CAPACITY, 0


_TOLD: Final = {
    CREATION_FORBIDDEN: "the API server rejects {} of its pods",
    UNSCHEDULABLE: (
        "kube-scheduler finds no node for {} of its pods although nodes have enough free capacity, so another constraint is "
        "not met (host port, anti-affinity, volume, device); see the events of the pods"
    ),
}


def _behind(first: str) -> str:
    return f"no capacity is left for more of its pods after {first}, which has a higher priority and no node"


@dataclass(eq=False, slots=True)
class _Line:
    """Pending pods of other workloads that could have a node; equal questions are computed once."""

    state: State
    _told: dict[tuple[int, int], str] = field(default_factory=dict)

    def before(self, share: ParticipantState) -> str:
        """The first pod with a higher priority that could use a node of the participant; empty if there is none."""
        order, priority = share.instances.pod.order, share.of.priority
        key = (id(order), priority)
        if key not in self._told:
            ahead = (guest for guest in self.state.guests if guest.is_short and guest.of.priority > priority)
            could = (guest for guest in ahead if self.state.room.could_hold(guest.pods.pod, order.rank))
            self._told[key] = next((guest.of.name for guest in could), "")
        return self._told[key]
