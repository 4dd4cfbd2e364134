"""Pending reasons: why a participant waits, in one sentence.

Input: the rejections of a plan and the capacity at its end. Output: a reason of `model.py` and a sentence with numbers:
what is missing on one node, what the best node has, which quota or load limit applies, or which participant holds it.
Distinguishes what no node could ever hold (TJ §7 item 4), what exists in sum but not on one node (TJ §4 V8), and what
does not exist. Called by `allocate.py` at the end of a plan; decides nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from raytide.api.pod_requirements import PODS, PodConstraints
from raytide.api.sharing_record import CREATION_FORBIDDEN, UNSCHEDULABLE
from raytide.diagnosis.catalogue import MAX_LOAD, NODES, PENDING_PODS
from raytide.diagnosis.model import Diagnosis
from raytide.fairshare.algorithm.capacity_index import CapacityIndex, Vector, times_that_fit
from raytide.fairshare.algorithm.format_quantity import spell, spell_with_name
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
    TOO_MANY_SHAPES,
    UNSATISFIABLE,
    Node,
    Participant,
    ParticipantId,
    Waiting,
)
from raytide.fairshare.algorithm.node_affinity import admits
from raytide.fairshare.algorithm.participant_state import ParticipantState
from raytide.fairshare.algorithm.placement import ANY_NUMBER, UNOFFERED, PodShape
from raytide.fairshare.algorithm.resize_messages import job_name
from raytide.fairshare.algorithm.shape_limits import MAX_SHAPES
from raytide.fairshare.algorithm.state import AllocationState, Rejection

_CAPACITY_REASONS: Final = (INSUFFICIENT, INSUFFICIENT_GPU, FRAGMENTED)
_HELD: Final = {
    CAPACITY_RESERVED: "reserved for {} (first in line)",
    COOLING_DOWN: "held by {}, which is in a cooldown",
    HELD_BY_RANK_ZERO: "held by {}, which ends only with its job",
    HIGHER_PRIORITY: "held by {}, which has a higher priority",
}
"""What is held by whom."""
_OF_PODS: Final = {
    CREATION_FORBIDDEN: "the API server rejects {} of its pods",
    UNSCHEDULABLE: "kube-scheduler finds no node for {} of its pods, although nodes have enough free capacity",
    SCHEDULING_GATED: "{} of its pods have scheduling gates, and take no capacity until these are removed",
}
"""Why some of its pods cannot be created or have no node; how many."""
_FREE_ONLY: Final = {
    False: ", without preemption (preemptionPolicy: Never)",
    True: ", without preemption (its pods have scheduling gates, or got no node before)",
}
_USEFUL: Final = 4
"""What is free in sum, but on no single node, is worth to be named if it is at least this part of what a job would grow by."""
_BESIDE: Final = " beside the capacity reserved for pending pods of other workloads"
"""Without names and numbers, which would change all the time."""


@dataclass(eq=False, slots=True)
class Reasons:
    """Reasons for one plan at its end; equal questions are computed once."""

    state: AllocationState
    reserved_nodes: Mapping[ParticipantId, tuple[str, ...]] = field(default_factory=dict)
    """Participants with a reservation, each with the nodes."""
    _why_by_rejection: dict[int, Diagnosis] = field(default_factory=dict)
    """By identity: participants that are equal in what matters share a rejection."""
    _capacity_reasons: dict[tuple[int, int], Diagnosis | None] = field(default_factory=dict)
    _capacity_by_order: dict[int, CapacityIndex] = field(default_factory=dict)
    _empty_nodes_by_constraints: dict[PodConstraints, CapacityIndex | None] = field(default_factory=dict)
    _nodes: list[tuple[Node, Vector]] = field(default_factory=list)
    _reserved_vectors: dict[int | None, dict[str, Vector]] = field(default_factory=dict)
    _is_short_by_priority: dict[tuple[int, int | None], bool] = field(default_factory=dict)

    def waiting(self, participant: ParticipantState, rejection: Rejection) -> Waiting:
        """Why the participant waits, or is not larger."""
        if id(rejection) not in self._why_by_rejection:
            self._why_by_rejection[id(rejection)] = self._why(rejection)
        why = self._why_by_rejection[id(rejection)]
        reason, missing = why.reason, why.message
        if reason == FRAGMENTED and not participant.is_waiting:
            reason = self._reason_for_growth(participant)
        is_capacity_kept = reason in _CAPACITY_REASONS and self._is_reserved_for_external(participant, rejection)
        goal = (
            f"to reach its minimum of {participant.spec.floor}"
            if participant.is_waiting
            else f"to grow beyond {participant.size}"
        )

        if rejection.needs and reason in _HELD:  # what is held, for what, and by which job
            holder, full_holder = (_holder(rejection, each) for each in (participant.spec.id.namespace, None))
            message, full_message = (
                f"{missing} {goal}, {_HELD[reason].format(each)}" for each in (holder, full_holder)
            )
            why = why.having(holder=holder)
        else:
            full_holder = ""
            what = missing + (_BESIDE if is_capacity_kept else "")
            if is_capacity_kept and "limit" not in why.parameters:
                why = why.having(limit=PENDING_PODS)
            is_limited = reason in _CAPACITY_REASONS and not participant.spec.may_preempt
            limit = _FREE_ONLY[participant.spec.is_unproven] if is_limited else ""
            message = full_message = (f"{what}, {goal}" if what else goal) + limit
        return Waiting(
            participant.spec.id,
            reason,
            message,
            participant.is_waiting,
            is_capacity_kept,
            full_message,
            full_holder,
            self.reserved_nodes.get(participant.spec.id, ()),
            why.parameters,
        )

    def omitted(self, participant: Participant) -> Waiting:
        """Why the participant is not in the plan: it keeps its size."""
        message = (
            f"one plan considers at most {MAX_SHAPES} different pods (requests, selector, affinity, tolerations), those of all "
            "namespaces in turn, and this namespace has more than its part"
        )
        return Waiting(
            participant.id,
            TOO_MANY_SHAPES,
            message,
            participant.current < participant.floor or participant.pods_to_create > 0,
            full_message=message,
        )

    def _why(self, rejection: Rejection) -> Diagnosis:
        """The reason, what is missing, and what holder and fix name."""
        gap = rejection.shortfall
        if rejection.tenant and gap is not None:
            left, wanted = spell(gap.resource, gap.left), spell_with_name(gap.resource, gap.wanted)
            text = f"tenant {rejection.tenant} has {left} left of {wanted} needed within its nominal quota and borrowing limit"
            return Diagnosis(QUOTA_EXCEEDED, message=text).having(tenant=rejection.tenant)
        if rejection.kind == QUOTA_EXCEEDED and gap is not None:
            left = spell(gap.resource, gap.left)
            text = f"quota {rejection.quota} has {left} left of {spell_with_name(gap.resource, gap.wanted)} needed"
            return Diagnosis(QUOTA_EXCEEDED, message=text).having(quota=rejection.quota, resource=gap.resource)
        if gap is not None:
            reason = INSUFFICIENT_GPU if gap.resource in self.state.capacity.gpus else INSUFFICIENT
            wanted, left = spell_with_name(gap.resource, gap.wanted), spell(gap.resource, max(0, gap.left))
            text = f"needs {wanted} more; {left} are left of the usable capacity of all nodes"
            return Diagnosis(reason, message=text).having(limit=MAX_LOAD)
        if rejection.kind in _OF_PODS:
            return Diagnosis(rejection.kind, message=_OF_PODS[rejection.kind].format(rejection.count))
        if rejection.kind == COOLING_DOWN and not rejection.needs:
            return Diagnosis(
                COOLING_DOWN, message="is in a cooldown, because its last resize is recent or not complete"
            )
        if rejection.kind in _HELD:
            return Diagnosis(rejection.kind, message=_needed(self.state, rejection.needs))
        return self._no_capacity(rejection.needs)

    # --- capacity that is kept for pods of other workloads -------------------------------------------------------------

    def _is_reserved_for_external(self, participant: ParticipantState, rejection: Rejection) -> bool:
        """Whether what is short on a node it may use is kept there for pods of other workloads.

        A claim comes before pods of other workloads with a lower priority; growth comes after all of them.
        """
        min_priority = participant.spec.priority if participant.is_waiting else None
        if min_priority not in self._reserved_vectors:
            self._reserved_vectors[min_priority] = self._reserved_for_external(min_priority)
        return (
            any(self._is_short(pod, min_priority) for pod, _ in rejection.needs)
            if self._reserved_vectors[min_priority]
            else False
        )

    def _is_short(self, pod: PodShape, min_priority: int | None) -> bool:
        key = (pod.number, min_priority)
        if key not in self._is_short_by_priority:
            kept, by_name = self._reserved_vectors[min_priority], self.state.capacity.by_name
            nodes = (
                (by_name[name].free_soon, kept[name]) for name in kept if by_name[name].index in pod.order.position_of
            )
            self._is_short_by_priority[key] = any(
                held[number] and free_soon[number] < amount
                for free_soon, held in nodes
                for number, amount in pod.requests
            )
        return self._is_short_by_priority[key]

    def _reserved_for_external(self, min_priority: int | None) -> dict[str, Vector]:
        """Node -> what this plan keeps there for pods of other workloads of at least that priority."""
        kept: dict[str, Vector] = {}
        for external in self.state.external_pods:
            if min_priority is None or external.spec.priority >= min_priority:
                for name in external.pods.pending:
                    held = kept.setdefault(name, [0] * len(self.state.capacity.resources))
                    for number, amount in external.pods.pod.requests:
                        held[number] += amount
        return kept

    # --- capacity -------------------------------------------------------------------------------------------------------

    def _no_capacity(self, needs: Iterable[tuple[PodShape, int]]) -> Diagnosis:
        """The most important reason among the shapes without enough capacity."""
        ranked = [UNSATISFIABLE, INSUFFICIENT_GPU, INSUFFICIENT, FRAGMENTED]
        lacking = [found for pod, count in needs if (found := self._capacity_reason_for(pod, count)) is not None]
        if not lacking:
            text = "free capacity is not enough for all its pods at once, or is reserved for pending pods of other workloads"
            return Diagnosis(INSUFFICIENT, message=text).having(limit=PENDING_PODS)
        return min(lacking, key=lambda one: ranked.index(one.reason))

    def _capacity_reason_for(self, pod: PodShape, count: int) -> Diagnosis | None:
        key = (pod.number, count)
        if key not in self._capacity_reasons:
            self._capacity_reasons[key] = self._capacity_reason(pod, count)
        return self._capacity_reasons[key]

    def _capacity_reason(self, pod: PodShape, count: int) -> Diagnosis | None:
        if impossible := self._impossible(pod):
            return impossible
        if not pod.order.nodes:
            text = f"needs {_requests_text(self.state, pod)} on one node; no node that it may use is ready"
            return Diagnosis(INSUFFICIENT, message=text)
        capacity = self._capacity_of(pod)
        lacking = capacity.lacking(pod.requests)
        fitting = 0
        if lacking is None:
            fitting = sum(times_that_fit(pod.requests, node.free_soon) for node in pod.order.nodes)
            if fitting >= count:
                return None
            sentence = f"needs capacity for {count} x ({_requests_text(self.state, pod)}); {fitting} fit"
            return Diagnosis(self._short_for(pod, count, capacity), message=sentence)
        number, amount, free = lacking
        name = self.state.capacity.resources[number]
        wanted, where = spell_with_name(name, amount), "free on one node"
        if count > 1:
            wanted, where = f"{count} x {wanted}", "free, each on one node"
        sentence = f"needs {wanted} {where}; the best node has {spell(name, free)} free"
        if all(capacity.total(other) >= wanted * count for other, wanted in pod.requests):
            return Diagnosis(FRAGMENTED, message=sentence)
        return Diagnosis(INSUFFICIENT_GPU if name in self.state.capacity.gpus else INSUFFICIENT, message=sentence)

    def _short_for(self, pod: PodShape, count: int, capacity: CapacityIndex) -> str:
        """The reason if one pod fits and `count` do not: GPUs if there are too few of them."""
        names = self.state.capacity.resources
        for number, amount in pod.requests:
            if capacity.total(number) < amount * count:
                return INSUFFICIENT_GPU if names[number] in self.state.capacity.gpus else INSUFFICIENT
        return FRAGMENTED

    def _reason_for_growth(self, participant: ParticipantState) -> str:
        """The reason for a step that only no single node has room for: a full cluster is not fragmented (FD:UX3-5)."""
        pod, missing = participant.instances.pod, participant.spec.ceiling - participant.size
        capacity = self._capacity_of(pod)
        fitting, number = min((capacity.total(number) // amount, number) for number, amount in pod.requests)
        if fitting * _USEFUL >= missing:
            return FRAGMENTED
        return INSUFFICIENT_GPU if self.state.capacity.resources[number] in self.state.capacity.gpus else INSUFFICIENT

    def _capacity_of(self, pod: PodShape) -> CapacityIndex:
        """The capacity of the nodes that the shape may use, as it is now."""
        key = id(pod.order)
        if key not in self._capacity_by_order:
            self._capacity_by_order[key] = CapacityIndex([node.free_soon for node in pod.order.nodes])
        return self._capacity_by_order[key]

    def _impossible(self, pod: PodShape) -> Diagnosis | None:
        """Why no node, even empty, could hold one; None if one could."""
        if self.state.capacity.could_hold(pod):
            return None
        whole = self._empty_nodes_of(pod.shape.constraints)
        if whole is None:
            no_match = "no node matches its node selector, affinity and tolerations"
            text = no_match if self.state.snapshot.nodes else "there are no nodes"
            return Diagnosis(UNSATISFIABLE, message=text).having(limit=NODES)
        if not pod.unoffered and whole.holds(pod.requests):
            return None
        return Diagnosis(UNSATISFIABLE, message=self._larger_than(pod, whole))

    def _larger_than(self, pod: PodShape, whole: CapacityIndex) -> str:
        """What the pod needs more of than the largest of these empty nodes has."""
        if pod.unoffered:
            wanted = spell_with_name(pod.unoffered, pod.shape.requests[pod.unoffered])
            return f"needs {wanted} on one node; the largest node has 0"
        lacking = whole.lacking(pod.requests)
        if lacking is None:
            return f"needs {_requests_text(self.state, pod)} on one node; no node has all of it"
        number, amount, largest = lacking
        name = self.state.capacity.resources[number]
        return f"needs {spell_with_name(name, amount)} on one node; the largest node has {spell(name, largest)}"

    def _empty_nodes_of(self, constraints: PodConstraints) -> CapacityIndex | None:
        """The capacity of empty nodes, ready or not, that admit the constraints; None if there are none."""
        if constraints not in self._empty_nodes_by_constraints:
            vectors = [whole for node, whole in self._all_empty_nodes() if admits(node, constraints)]
            self._empty_nodes_by_constraints[constraints] = CapacityIndex(vectors) if vectors else None
        return self._empty_nodes_by_constraints[constraints]

    def _all_empty_nodes(self) -> list[tuple[Node, Vector]]:
        if not self._nodes:
            names = self.state.capacity.resources
            self._nodes = [(node, [_empty_amount(node, name) for name in names]) for node in self.state.snapshot.nodes]
        return self._nodes


def _empty_amount(node: Node, name: str) -> int:
    """The node's capacity for it when empty."""
    return node.allocatable.get(name, ANY_NUMBER if name == PODS else 0)


def _requests_text(state: AllocationState, pod: PodShape) -> str:
    names = (state.capacity.resources[number] for number, _ in pod.requests)
    requested = (pod.unoffered if name == UNOFFERED else name for name in names if name != PODS)
    parts = [spell_with_name(name, pod.shape.requests[name]) for name in requested]
    return " and ".join(parts) or "a pod slot"


def _holder(rejection: Rejection, reader: str | None) -> str:
    """Who holds what is missing, for readers of that namespace; None: with all names."""
    holder = job_name(rejection.holder, reader) if rejection.holder else "another job"
    return f"trainer 0 of {holder} on node {rejection.node}" if rejection.kind == HELD_BY_RANK_ZERO else holder


def _needed(state: AllocationState, needs: Iterable[tuple[PodShape, int]]) -> str:
    return "needs " + " and ".join(f"{count} x ({_requests_text(state, pod)})" for pod, count in needs)
