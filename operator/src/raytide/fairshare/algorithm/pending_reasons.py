"""Pending reasons: why a participant waits, in one sentence.

Input: the refusals of a plan and the capacity at its end. Output: a reason of `model.py` and a sentence with numbers:
what is missing on one node, what the best node has, which quota or load limit applies, or which participant holds it.
Distinguishes what no node could ever hold (TJ §7 item 4), what exists in sum but not on one node (TJ §4 V8), and what
does not exist. Called by `allocate.py` at the end of a plan; decides nothing.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from raytide.api.sharing_record import CREATION_FORBIDDEN, UNSCHEDULABLE
from raytide.fairshare.algorithm.capacity_index import CapacityIndex, Vector, times_that_fit
from raytide.fairshare.algorithm.format_quantity import spell, spell_with_name
from raytide.fairshare.algorithm.model import (
    CAPACITY_RESERVED,
    COOLING_DOWN,
    FRAGMENTED,
    HIGHER_PRIORITY,
    INSUFFICIENT,
    INSUFFICIENT_GPU,
    PODS,
    QUOTA_EXCEEDED,
    UNSATISFIABLE,
    Constraints,
    Node,
    ParticipantId,
    Waiting,
)
from raytide.fairshare.algorithm.node_affinity import admits
from raytide.fairshare.algorithm.participant_state import ParticipantState
from raytide.fairshare.algorithm.placement import ANY_NUMBER, PodShape
from raytide.fairshare.algorithm.resize_messages import job_name
from raytide.fairshare.algorithm.state import Rejection, State

_OF_ROOM: Final = (INSUFFICIENT, INSUFFICIENT_GPU, FRAGMENTED)
_HELD: Final = {
    CAPACITY_RESERVED: "reserved for {} (first in line)",
    COOLING_DOWN: "held by {}, which is in a cooldown",
    HIGHER_PRIORITY: "held by {}, which has a higher priority",
}
_BESIDE: Final = " beside the capacity reserved for pending pods of other workloads"
"""Without names and numbers, which would change all the time."""


@dataclass(eq=False, slots=True)
class Reasons:
    """Reasons for one plan at its end; equal questions are computed once."""

    state: State
    reserving: Collection[ParticipantId] = ()
    """Participants with a reservation."""
    _room_told: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)
    _rooms: dict[int, CapacityIndex] = field(default_factory=dict)
    _wholes: dict[Constraints, CapacityIndex | None] = field(default_factory=dict)
    _nodes: list[tuple[Node, Vector]] = field(default_factory=list)
    _kept: dict[int | None, dict[str, Vector]] = field(default_factory=dict)
    _is_short_of_kept: dict[tuple[int, int | None], bool] = field(default_factory=dict)

    def waiting(self, share: ParticipantState, refusal: Rejection) -> Waiting:
        """Why the participant waits, or is not larger."""
        reason, missing = self._why(refusal)
        is_kept = reason in _OF_ROOM and self._is_kept(share, refusal)
        is_reserving = bool(self.reserving) and share.of.id in self.reserving
        goal = f"to reach its minimum of {share.of.floor}" if share.is_waiting else f"to grow beyond {share.size}"

        if refusal.needs and reason in _HELD:  # what is held, for what, and by which job
            message, full_message = (
                f"{missing} {goal}, {_held(refusal, each)}" for each in (share.of.id.namespace, None)
            )
        else:
            what = missing + (_BESIDE if is_kept else "")
            message = full_message = f"{what}, {goal}" if what else goal
        return Waiting(share.of.id, reason, message, share.is_waiting, is_kept, full_message, is_reserving)

    def _why(self, refusal: Rejection) -> tuple[str, str]:
        gap = refusal.shortfall
        if refusal.tenant and gap is not None:
            left, wanted = spell(gap.resource, gap.left), spell_with_name(gap.resource, gap.wanted)
            within = "within its nominal quota and borrowing limit"
            return QUOTA_EXCEEDED, f"tenant {refusal.tenant} has {left} left of {wanted} needed {within}"
        if refusal.kind == QUOTA_EXCEEDED and gap is not None:
            left = spell(gap.resource, gap.left)
            return (
                QUOTA_EXCEEDED,
                f"quota {refusal.quota} has {left} left of {spell_with_name(gap.resource, gap.wanted)} needed",
            )
        if gap is not None:
            reason = INSUFFICIENT_GPU if gap.resource in self.state.room.gpus else INSUFFICIENT
            wanted, left = spell_with_name(gap.resource, gap.wanted), spell(gap.resource, max(0, gap.left))
            return reason, f"needs {wanted} more; {left} are left of the usable capacity of all nodes"
        if refusal.kind == CREATION_FORBIDDEN:
            return refusal.kind, f"the API server rejects {refusal.count} of its pods"
        if refusal.kind == UNSCHEDULABLE:
            return (
                refusal.kind,
                f"kube-scheduler finds no node for {refusal.count} of its pods, although nodes have enough free capacity",
            )
        if refusal.kind == COOLING_DOWN and not refusal.needs:
            return COOLING_DOWN, "is in a cooldown, because its last resize is recent or not complete"
        if refusal.kind in _HELD:
            return refusal.kind, _needed(self.state, refusal.needs)
        return self._no_room(refusal.needs)

    # --- capacity that is kept for pods of other workloads -------------------------------------------------------------

    def _is_kept(self, share: ParticipantState, refusal: Rejection) -> bool:
        """Whether what is short on a node it may use is kept there for pods of other workloads.

        A claim comes before pods of other workloads with a lower priority; growth comes after all of them.
        """
        least = share.of.priority if share.is_waiting else None
        if least not in self._kept:
            self._kept[least] = self._kept_from(least)
        return any(self._is_short(pod, least) for pod, _ in refusal.needs) if self._kept[least] else False

    def _is_short(self, pod: PodShape, least: int | None) -> bool:
        key = (pod.number, least)
        if key not in self._is_short_of_kept:
            kept, spot_of = self._kept[least], self.state.room.spot_of
            spots = ((spot_of[name].soon, kept[name]) for name in kept if spot_of[name].index in pod.order.rank)
            self._is_short_of_kept[key] = any(
                held[number] and soon[number] < amount for soon, held in spots for number, amount in pod.wants
            )
        return self._is_short_of_kept[key]

    def _kept_from(self, least: int | None) -> dict[str, Vector]:
        """Node -> what this plan keeps there for pods of other workloads of at least that priority."""
        kept: dict[str, Vector] = {}
        for guest in self.state.guests:
            if least is None or guest.of.priority >= least:
                for name in guest.pods.pending:
                    held = kept.setdefault(name, [0] * len(self.state.room.resources))
                    for number, amount in guest.pods.pod.wants:
                        held[number] += amount
        return kept

    # --- capacity -------------------------------------------------------------------------------------------------------

    def _no_room(self, needs: Iterable[tuple[PodShape, int]]) -> tuple[str, str]:
        """The most important reason among the shapes without enough capacity."""
        told = [self._room_for(pod, count) for pod, count in needs]
        ranked = [UNSATISFIABLE, INSUFFICIENT_GPU, INSUFFICIENT, FRAGMENTED]
        lacking = [one for one in told if one[0]]
        if not lacking:
            return (
                INSUFFICIENT,
                "free capacity is not enough for all its pods at once, or is reserved for pending pods of other workloads",
            )
        return min(lacking, key=lambda one: ranked.index(one[0]))

    def _room_for(self, pod: PodShape, count: int) -> tuple[str, str]:
        key = (pod.number, count)
        if key not in self._room_told:
            self._room_told[key] = self._tell_room(pod, count)
        return self._room_told[key]

    def _tell_room(self, pod: PodShape, count: int) -> tuple[str, str]:
        impossible = self._impossible(pod)
        if impossible:
            return UNSATISFIABLE, impossible
        if not pod.order.spots:
            return (
                INSUFFICIENT,
                f"needs {_requests_text(self.state, pod)} on one node; no node that it may use is ready",
            )
        room = self._room_of(pod)
        lacking = room.lacking(pod.wants)
        fitting = 0
        if lacking is None:
            fitting = sum(times_that_fit(pod.wants, spot.soon) for spot in pod.order.spots)
            if fitting >= count:
                return "", ""
            sentence = f"needs capacity for {count} x ({_requests_text(self.state, pod)}); {fitting} fit"
            return self._short_for(pod, count, room), sentence
        number, amount, free = lacking
        name = self.state.room.resources[number]
        wanted, where = spell_with_name(name, amount), "free on one node"
        if count > 1:
            wanted, where = f"{count} x {wanted}", "free, each on one node"
        sentence = f"needs {wanted} {where}; the best node has {spell(name, free)} free"
        if all(room.total(other) >= wanted * count for other, wanted in pod.wants):
            return FRAGMENTED, sentence
        return (INSUFFICIENT_GPU if name in self.state.room.gpus else INSUFFICIENT), sentence

    def _short_for(self, pod: PodShape, count: int, room: CapacityIndex) -> str:
        """The reason if one pod fits and `count` do not: GPUs if there are too few of them."""
        names = self.state.room.resources
        for number, amount in pod.wants:
            if room.total(number) < amount * count:
                return INSUFFICIENT_GPU if names[number] in self.state.room.gpus else INSUFFICIENT
        return FRAGMENTED

    def _room_of(self, pod: PodShape) -> CapacityIndex:
        """The capacity of the nodes that the shape may use, as it is now."""
        key = id(pod.order)
        if key not in self._rooms:
            self._rooms[key] = CapacityIndex([spot.soon for spot in pod.order.spots])
        return self._rooms[key]

    def _impossible(self, pod: PodShape) -> str:
        """Why no node, even empty, could hold one; empty if one could."""
        whole = self._wholes_of(pod.shape.constraints)
        if whole is None:
            return (
                "no node matches its node selector, affinity and tolerations"
                if self.state.pool.nodes
                else "there are no nodes"
            )
        if whole.holds(pod.wants):
            return ""
        lacking = whole.lacking(pod.wants)
        if lacking is None:
            return f"needs {_requests_text(self.state, pod)} on one node; no node has all of it"
        number, amount, most = lacking
        name = self.state.room.resources[number]
        return f"needs {spell_with_name(name, amount)} on one node; the largest node has {spell(name, most)}"

    def _wholes_of(self, constraints: Constraints) -> CapacityIndex | None:
        """The capacity of empty nodes, ready or not, that admit the constraints; None if there are none."""
        if constraints not in self._wholes:
            vectors = [whole for node, whole in self._all_wholes() if admits(node, constraints)]
            self._wholes[constraints] = CapacityIndex(vectors) if vectors else None
        return self._wholes[constraints]

    def _all_wholes(self) -> list[tuple[Node, Vector]]:
        if not self._nodes:
            names = self.state.room.resources
            self._nodes = [(node, [_whole(node, name) for name in names]) for node in self.state.pool.nodes]
        return self._nodes


def _whole(node: Node, name: str) -> int:
    """The node's capacity for it when empty."""
    return node.allocatable.get(name, ANY_NUMBER if name == PODS else 0)


def _requests_text(state: State, pod: PodShape) -> str:
    names = state.room.resources
    parts = [spell_with_name(names[number], amount) for number, amount in pod.wants if names[number] != PODS]
    return " and ".join(parts) or "a pod slot"


def _held(refusal: Rejection, reader: str | None) -> str:
    return _HELD[refusal.kind].format(job_name(refusal.holder, reader) if refusal.holder else "another job")


def _needed(state: State, needs: Iterable[tuple[PodShape, int]]) -> str:
    return "needs " + " and ".join(f"{count} x ({_requests_text(state, pod)})" for pod, count in needs)
