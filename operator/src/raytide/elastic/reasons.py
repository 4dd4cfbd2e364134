"""Why does somebody wait, and what would it take, in one sentence?

Takes what a plan refused and the room as it is at the end of it, gives a reason of `model.py` and a sentence with numbers:
what is missing on one node, what the best node has, which quota, which load, or who holds it. Tells apart what no node
could ever hold (TJ §7 item 4), what is there in sum but not on one node (TJ §4 V8), and what is simply not there. Called by
`fairness.py` at the end of a plan; never decides anything.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from raytide.elastic.constraints import admits
from raytide.elastic.model import (
    COOLING_DOWN,
    FRAGMENTED,
    HIGHER_PRIORITY,
    INSUFFICIENT,
    INSUFFICIENT_GPU,
    PODS,
    QUOTA_EXCEEDED,
    UNSATISFIABLE,
    Node,
    Waiting,
)
from raytide.elastic.placement import PodShape, Vector
from raytide.elastic.share import Share
from raytide.elastic.state import Refusal, State
from raytide.elastic.words import spell, spell_with_name


@dataclass(eq=False, slots=True)
class Reasons:
    """Says why, for one plan at its end; equal questions are answered once."""

    state: State
    _room_told: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)

    def waiting(self, share: Share, refusal: Refusal) -> Waiting:
        """Why this one waits, or is not larger."""
        reason, missing = self._why(refusal)
        goal = f"to reach its minimum of {share.of.floor}" if share.is_waiting else f"to grow beyond {share.size}"
        return Waiting(share.of.id, reason, f"{missing}, {goal}" if missing else goal, share.is_waiting)

    def _why(self, refusal: Refusal) -> tuple[str, str]:
        gap = refusal.shortfall
        if refusal.kind == QUOTA_EXCEEDED and gap is not None:
            left = spell(gap.resource, gap.left)
            return (
                QUOTA_EXCEEDED,
                f"quota {refusal.quota} has {left} of {spell_with_name(gap.resource, gap.wanted)} left",
            )
        if gap is not None:
            reason = INSUFFICIENT_GPU if gap.resource in self.state.room.gpus else INSUFFICIENT
            wanted, left = spell_with_name(gap.resource, gap.wanted), spell(gap.resource, max(0, gap.left))
            return reason, f"needs {wanted} more; {left} are left of what all nodes together may be filled with"
        if refusal.kind == COOLING_DOWN and not refusal.needs:
            return COOLING_DOWN, "has to wait until its last resize is done and some time ago"
        if refusal.kind in (COOLING_DOWN, HIGHER_PRIORITY):
            why = "may not shrink yet" if refusal.kind == COOLING_DOWN else "has a higher priority"
            holder = f"{refusal.holder}, which {why}" if refusal.holder else f"somebody who {why}"
            return refusal.kind, f"{_needed(self.state, refusal.needs)}, held by {holder}"
        return self._no_room(refusal.needs)

    def _no_room(self, needs: Iterable[tuple[PodShape, int]]) -> tuple[str, str]:
        """The first shape that has too little room says it."""
        told = [self._room_for(pod, count) for pod, count in needs]
        ranked = [UNSATISFIABLE, INSUFFICIENT_GPU, INSUFFICIENT, FRAGMENTED]
        lacking = [one for one in told if one[0]]
        if not lacking:
            return INSUFFICIENT, "the free room is not enough for all it needs at once, or is kept for others"
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
        fitting = sum(max(0, _times(pod, spot.soon)) for spot in pod.order.spots)
        if fitting >= count:
            return "", ""
        best = max(pod.order.spots, key=lambda spot: _nearness(pod, spot.soon), default=None)
        names = self.state.room.resources
        if best is None:
            return INSUFFICIENT, f"needs {_one(self.state, pod)} on one node; no node that it may use is ready"
        short = [(number, amount) for number, amount in pod.wants if best.soon[number] < amount]
        if not short:
            return INSUFFICIENT, f"needs room for {count} more; there is room for {fitting}"
        number, amount = short[0]
        free = max(0, best.soon[number])
        sentence = (
            f"needs {spell_with_name(names[number], amount)} free on one node; "
            f"the best node has {spell(names[number], free)} free"
        )
        if self._is_there_in_sum(pod, count - fitting):
            return FRAGMENTED, sentence
        return (INSUFFICIENT_GPU if names[number] in self.state.room.gpus else INSUFFICIENT), sentence

    def _is_there_in_sum(self, pod: PodShape, count: int) -> bool:
        spots = pod.order.spots
        return all(sum(max(0, spot.soon[number]) for spot in spots) >= amount * count for number, amount in pod.wants)

    def _impossible(self, pod: PodShape) -> str:
        """Why no node, even empty, could ever hold one; empty if one could."""
        nodes = [node for node in self.state.pool.nodes if admits(node, pod.shape.constraints)]
        if not nodes:
            return (
                "no node has the labels and taints that it asks for" if self.state.pool.nodes else "there are no nodes"
            )
        names = self.state.room.resources
        if any(all(_whole(node, names[number]) >= amount for number, amount in pod.wants) for node in nodes):
            return ""
        for number, amount in pod.wants:
            most = max(_whole(node, names[number]) for node in nodes)
            if most < amount:
                wanted = spell_with_name(names[number], amount)
                return f"needs {wanted} on one node; the largest node has {spell(names[number], most)}"
        return f"needs {_one(self.state, pod)} on one node; no node has all of it"


def _whole(node: Node, name: str) -> int:
    """What the node has of it when it is empty."""
    allocatable: Mapping[str, int] = node.allocatable
    return allocatable.get(name, 1 << 60 if name == PODS else 0)


def _times(pod: PodShape, vector: Vector) -> int:
    return min((vector[number] // amount for number, amount in pod.wants), default=0)


def _nearness(pod: PodShape, vector: Vector) -> tuple[int, int]:
    """Nearest to holding one: the fewest resources short, then the least of them missing."""
    missing = [(amount - vector[number]) * 1000 // amount for number, amount in pod.wants if vector[number] < amount]
    return -len(missing), -sum(missing)


def _one(state: State, pod: PodShape) -> str:
    names = state.room.resources
    parts = [spell_with_name(names[number], amount) for number, amount in pod.wants if names[number] != PODS]
    return " and ".join(parts) or "a place"


def _needed(state: State, needs: Iterable[tuple[PodShape, int]]) -> str:
    return "needs " + " and ".join(f"{count} x ({_one(state, pod)})" for pod, count in needs)
