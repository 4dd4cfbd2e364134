"""Who gives up what has no node?

Nobody pends above its floor for ever: instances that found no node for long, and have no room in this plan, are taken back,
down to an allowed size. At once where pods of strangers with a higher priority wait for nodes that they might have used:
kube-scheduler looks at nobody else before those, and what it evicted for them need not come back only to pend. Room that
becomes free on the way (a step that takes one that runs, parameter servers that go with the trainers) is offered to all who
still wait before anybody else is asked. Called by `fairness.py`; mutable state in `state.py` (SC:S25).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from raytide.elastic.model import CREATION_FORBIDDEN, NO_NODE_S, NO_ROOM, UNSCHEDULABLE
from raytide.elastic.reclaim import Reclaim
from raytide.elastic.sentences import pod_name
from raytide.elastic.share import Share, smaller_size
from raytide.elastic.state import State


def take_back(state: State, fill_again: Callable[[], None]) -> None:
    """Everybody in turn, who may free room first; `fill_again` offers that to all whose pods have no node."""
    line = _Line(state)
    for share in sorted(state.shares, key=_frees_nothing):
        reason, left = _waiting(state, share, line)
        while left > 0 and share.size > share.of.floor:
            before, after = share.size, share.without_waiting(left)
            if after is None:
                after = smaller_size(share.of, share.size) or share.of.floor
            take = Reclaim(state).cut(share, after)
            share.shrinks_by(before - after, reason, take.nodes)
            if not take.is_of_waiting_pods:
                fill_again()
            left = min(left - (before - after), share.instances.loose)


def _frees_nothing(share: Share) -> bool:
    return share.companions is None and not share.of.sizes and share.of.step == 1


def _waiting(state: State, share: Share, line: "_Line") -> tuple[str, int]:
    """How many of its instances need wait no longer, and why."""
    loose = share.instances.loose
    if not loose or not share.of.is_scaling_enabled or share.size <= share.of.floor:
        return NO_ROOM, 0
    first = line.before(share)
    if first and not state.refused(share):  # what a quota refuses waits for the quota
        share.taken_back = _behind(pod_name(first, share.of.id.namespace))
        share.taken_back_in_full = _behind(first)
        return NO_ROOM, loose
    if in_vain := min(share.of.wanted_in_vain, loose):
        reason = CREATION_FORBIDDEN if share.of.is_repeatedly_forbidden else UNSCHEDULABLE
        share.taken_back = share.taken_back_in_full = _TOLD[reason].format(in_vain)
        return reason, in_vain
    if waiting := min(share.of.unplaced_for_long, loose):
        share.taken_back = f"{share.of.unplaced_for_long} of them had no node for {NO_NODE_S} s"
        share.taken_back_in_full = share.taken_back
        return NO_ROOM, waiting
    return NO_ROOM, 0


_TOLD: Final = {
    CREATION_FORBIDDEN: "the API server refuses to create {} of them",
    UNSCHEDULABLE: (
        "kube-scheduler finds no node for {} of them although nodes have room, so something else is missing (a port of the "
        "host, an anti-affinity, a volume, a device); the pods' events say what"
    ),
}


def _behind(first: str) -> str:
    return f"no room is left for more of them behind {first}, which has a higher priority and no node"


@dataclass(eq=False, slots=True)
class _Line:
    """Strangers that wait although they could have a node; equal questions are answered once."""

    state: State
    _told: dict[tuple[int, int], str] = field(default_factory=dict)

    def before(self, share: Share) -> str:
        """Who is the first with a higher priority that wants a node which it may use; empty if nobody is."""
        order, priority = share.instances.pod.order, share.of.priority
        key = (id(order), priority)
        if key not in self._told:
            ahead = (guest for guest in self.state.guests if guest.is_short and guest.of.priority > priority)
            could = (guest for guest in ahead if self.state.room.could_hold(guest.pods.pod, order.rank))
            self._told[key] = next((guest.of.name for guest in could), "")
        return self._told[key]
