"""State of one plan: what `minimums.py` and `grow.py` share.

The capacity of nodes, the two budgets, and one `ParticipantState` per participant in the order of ids. It places pods without a
node and undoes failed attempts. Mutable, local to one call of `allocate`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import Any, TypeAlias

from raytide.api.sharing_record import CREATION_FORBIDDEN, UNSCHEDULABLE
from raytide.fairshare.algorithm.budgets import LoadBudget, QuotaLedger, Shortfall
from raytide.fairshare.algorithm.model import (
    QUOTA_EXCEEDED,
    SCHEDULING_GATED,
    ClusterSnapshot,
    ExternalPods,
    Participant,
    ParticipantId,
)
from raytide.fairshare.algorithm.participant_state import SCORE_BITS, ParticipantState, Pods, build_participant_state
from raytide.fairshare.algorithm.placement import ClusterCapacity, NodeCapacity, PodShape
from raytide.fairshare.algorithm.shape_limits import Considered, within_limits
from raytide.fairshare.algorithm.tenants import TenantLedger, TenantState

Placement = tuple[Pods, NodeCapacity, bool]
"""The pods, the node, and whether the capacity was free already."""
_Turn: TypeAlias = tuple[Any, ...]
"""A sort key, no two alike, and the participant at the end."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a participant cannot have more instances; `pending_reasons.py` turns it into a sentence."""

    kind: str
    """A reason of `model.py`."""
    needs: tuple[tuple[PodShape, int], ...] = ()
    """Pods that do not fit, by shape."""
    quota: str = ""
    tenant: str = ""
    """The tenant whose quota and borrowing limit are used up."""
    shortfall: Shortfall | None = None
    count: int = 0
    """How many of its own instances are concerned."""
    holder: ParticipantId | None = None
    """The participant that holds what it needs, and may not shrink."""
    node: str = ""
    """The node of its instance that leaves last, if only that one is in the way."""


@dataclass(frozen=True, eq=False, slots=True)
class ReservedPods:
    """Pods of other workloads, and the capacity that this plan keeps for them."""

    spec: ExternalPods
    pods: Pods
    is_short: bool
    """Whether the free capacity was not enough for all of them."""


@dataclass(eq=False, slots=True)
class AllocationState:
    """One plan under construction; the same for every order of the input."""

    snapshot: ClusterSnapshot
    capacity: ClusterCapacity
    load: LoadBudget
    quotas: QuotaLedger
    tenants: TenantLedger
    participants: list[ParticipantState]
    considered: Considered
    """What is not in this plan, because there is too much of it."""
    rejections: dict[ParticipantId, Rejection] = field(default_factory=dict)
    contradicted: set[ParticipantId | str] = field(default_factory=set)
    external_pods: list[ReservedPods] = field(default_factory=list)
    """In the order in which they were served."""
    _on: dict[str, dict[int, Pods]] = field(default_factory=dict)
    """Node -> pods of participants that are, or were, there; built when something is preempted."""

    def pods_on(self, name: str) -> Iterable[Pods]:
        """Pods of participants on that node whose number depends on a size."""
        if not self._on:
            for participant in self.participants:
                for pods in participant.elastic_pods():
                    for where in pods.where:
                        self._on.setdefault(where, {})[id(pods)] = pods
        return self._on.get(name, {}).values()

    def spend(self, pods: Pods, count: int) -> None:
        """Charge `count` more wanted pods by limits, and to their tenant; a negative count releases them."""
        self.load.spend_limits(pods.pod, count)
        if self.tenants.has_any and pods.owner is not None:
            pods.owner.tenant.charge(pods.pod, count)

    def charge(self, participant: ParticipantState, needs: Sequence[tuple[Pods, int]], times: int = 1) -> None:
        """Charge additional pods of the participant to sums and quotas; -1 releases them."""
        for pods, count in needs:
            self.spend(pods, count * times)
        if self.quotas.has_any:
            self.quotas.spend(participant.spec.id, [(pods.pod, count * times) for pods, count in needs])

    def place(self, pods: Pods, count: int, *, counts_terminating: bool = False) -> list[Placement]:
        """Place as many as fit, at most `count`; if `counts_terminating`, not on what terminating pods still use."""
        done: list[Placement] = []
        while len(done) < count:
            found = self.capacity.find(pods.pod, counts_terminating=counts_terminating)
            if found is None:
                break
            node, is_now = found
            self.capacity.put(pods.pod, node)
            pods.add(node.name)
            if self._on and pods.owner is not None:
                self._on.setdefault(node.name, {})[id(pods)] = pods
            done.append((pods, node, is_now))
        self.load.spend_requests(pods.pod, len(done))
        return done

    def forget(self, placements: list[Placement]) -> None:
        """Undo these placements."""
        for pods, node, _ in reversed(placements):
            self.capacity.unplace(pods.pod, node)
            pods.remove(node.name)
            self.load.spend_requests(pods.pod, -1)

    def place_external(self, who: ExternalPods) -> Pods:
        """Place pending pods of another workload on free capacity, unless `is_doubted`."""
        pods = Pods(self.capacity.pod(who.shape), {}, 0 if who.is_doubted else who.count)
        if self._place_unplaced(pods, pods.unplaced, counts_terminating=True):
            self.contradicted.add(who.name)
        self.external_pods.append(ReservedPods(who, pods, is_short=pods.unplaced > 0))
        return pods

    def fill(self, participant: ParticipantState) -> None:
        """Place its pods without a node on free capacity; a gang that has not started has none."""
        if participant.size == 0 and participant.spec.is_gang:
            return
        for pods in participant.all_pods():
            if pods.unplaced:
                placed = self._place_unplaced(pods, self._creatable(pods, participant), counts_terminating=True)
                if placed > pods.to_create and not participant.spec.is_doubted:
                    self.contradicted.add(participant.spec.id)

    def fill_late(self, pods: Pods, participant: ParticipantState | None) -> None:
        """Place pods that still have no node on capacity that terminating pods use, after all claims are served."""
        if pods.unplaced and (participant is None or participant.has_started):
            self._place_unplaced(pods, pods.unplaced if participant is None else self._creatable(pods, participant))

    def _place_unplaced(self, pods: Pods, count: int, *, counts_terminating: bool = False) -> int:
        placements = self.place(pods, min(count, pods.unplaced), counts_terminating=counts_terminating)
        pods.unplaced -= len(placements)
        pods.pending.extend(node.name for _, node, _ in placements)
        return len(placements)

    def _creatable(self, pods: Pods, participant: ParticipantState) -> int:
        """How many of its pods without a node may get one."""
        in_vain = self.record_unplaceable(participant) if pods is participant.instances or pods.in_vain else 0
        return max(0, pods.unplaced - (in_vain if pods is participant.instances else pods.in_vain))

    def tenant_rejection(self, participant: ParticipantState, pods: Sequence[tuple[PodShape, int]]) -> Rejection | None:
        """The rejection of these additional pods by the quota and borrowing limit of its tenant; None if both allow them."""
        shortfall = participant.tenant.shortfall(pods)
        if shortfall is None:
            return None
        return Rejection(QUOTA_EXCEEDED, needs=tuple(pods), tenant=participant.tenant.spec.name, shortfall=shortfall)

    def record_unplaceable(self, participant: ParticipantState) -> int:
        """Count its instances that get no node whatever the capacity, and record why.

        The cause is a quota, the API server that rejects its pods, scheduling gates, or kube-scheduler for a reason that is unknown
        here.
        """
        spec = participant.spec
        if in_vain := sum(pods.in_vain for pods in participant.all_pods()):
            kind = CREATION_FORBIDDEN if spec.is_forbidden else UNSCHEDULABLE if spec.is_doubted else SCHEDULING_GATED
            self.rejections[spec.id] = Rejection(kind, count=in_vain)
            return participant.instances.in_vain
        excess = (
            self.quotas.excess_pods(participant.spec.id, participant.instances.pod)
            if participant.pods_to_create
            else None
        )
        if excess is None:
            return 0
        count, quota_name, shortfall = excess
        self.rejections[participant.spec.id] = quota_rejection((quota_name, shortfall))
        return min(count, participant.pods_to_create)


class TenantTurns:
    """Participants in order: of the tenant with the lowest share, which may change meanwhile, the one with the lowest turn.

    Shares are compared as they would be with the pods that the first participant of each tenant is about to get: what would borrow
    comes after what is within a nominal quota, from which it would be reclaimed.
    """

    def __init__(self, turns: Iterable[_Turn], share_with_next: Callable[[ParticipantState], int]) -> None:
        self._share_with_next = share_with_next
        self._turns: dict[TenantState, list[_Turn]] = {}
        for turn in turns:
            self._turns.setdefault(turn[-1].tenant, []).append(turn)
        self._tenants: list[tuple[int, _Turn, TenantState]] = []
        for tenant, own in self._turns.items():
            heapify(own)
            self._push_tenant(tenant)
        self._last: TenantState | None = None

    def _push_tenant(self, tenant: TenantState) -> None:
        turn = self._turns[tenant][0]
        heappush(self._tenants, (self._share_with_next(turn[-1]), turn, tenant))

    def push(self, turn: _Turn) -> None:
        """Add a turn of the participant that was popped last."""
        heappush(self._turns[turn[-1].tenant], turn)

    def pop(self) -> ParticipantState | None:
        """Remove the next participant; None if there is none."""
        if self._last is not None and self._turns[self._last]:
            self._push_tenant(self._last)
        self._last = None
        while self._tenants:
            share, turn, tenant = heappop(self._tenants)
            if share != self._share_with_next(turn[-1]):  # its participants have given since
                self._push_tenant(tenant)
                continue
            self._last = tenant
            participant: ParticipantState = heappop(self._turns[tenant])[-1]
            return participant
        return None


def quota_rejection(quota: tuple[str, Shortfall]) -> Rejection:
    """The rejection by a ResourceQuota: its name, and what it lacks."""
    return Rejection(QUOTA_EXCEEDED, quota=quota[0], shortfall=quota[1])


def begin(snapshot: ClusterSnapshot) -> AllocationState:
    """The state before anything is decided."""
    considered = within_limits(snapshot)
    snapshot = replace(snapshot, external_pods=considered.external_pods)
    specs = considered.participants
    capacity = ClusterCapacity(snapshot.nodes, considered.shapes, snapshot.options.gpus)
    equals = sorted(specs, key=lambda each: (*_cost(each, capacity), each.created_at, each.id))
    rank_of = {each.id: rank for rank, each in enumerate(equals)}
    tenants = TenantLedger(snapshot, capacity)
    participants = [
        build_participant_state(each, rank_of[each.id], capacity, tenants.by_name(each.tenant)) for each in specs
    ]
    state = AllocationState(
        snapshot,
        capacity,
        LoadBudget(snapshot, capacity),
        QuotaLedger(snapshot),
        tenants,
        participants,
        considered,
    )
    for omitted in considered.omitted if tenants.has_any else ():
        _charge_omitted(tenants.by_name(omitted.tenant), omitted, capacity)
    for participant in participants:
        if tenants.has_any:
            _charge_placed(state, participant)
        if participant.has_unplaced and (participant.size > 0 or not participant.spec.is_gang):
            for pods in participant.all_pods():
                state.spend(pods, _charged(state, participant, pods))
    return state


def _charge_placed(state: AllocationState, participant: ParticipantState) -> None:
    """Charge the pods that have a node to the tenant; the load limit counts them by node."""
    for core in participant.spec.core:
        participant.tenant.charge(state.capacity.pod(core.shape), sum(core.placed.values()))
    for pods in participant.elastic_pods():
        participant.tenant.charge(pods.pod, pods.placed)


def _charge_omitted(tenant: TenantState, participant: Participant, capacity: ClusterCapacity) -> None:
    """Charge the pods of a participant that is not in the plan: its tenant uses what they request."""
    companion = participant.companion
    placed = [(participant.shape, participant.placed)]
    placed += [(core.shape, core.placed) for core in participant.core]
    placed += [(companion.shape, companion.placed)] if companion is not None else []
    for shape, by_node in placed:
        tenant.charge_requests(capacity.numbered(shape.requests), sum(by_node.values()))


def _charged(state: AllocationState, participant: ParticipantState, pods: Pods) -> int:
    """How many of its pods without a node count in sums: those that could have one, or are released in this plan (TJ:D5)."""
    if not pods.unplaced or not state.capacity.could_hold(pods.pod):
        return 0
    if pods is not participant.instances:
        return pods.unplaced - pods.in_vain
    above = participant.size - participant.spec.floor if participant.spec.is_scaling_enabled else 0
    released = min(participant.spec.wanted_in_vain, max(0, above))
    return pods.unplaced - max(0, pods.in_vain - released)


def _cost(participant: Participant, capacity: ClusterCapacity) -> tuple[int, ...]:
    """GPUs, CPU and memory of one instance, with its part of what comes with it (TJ §3 row 4), in parts of 2^-64."""
    size = capacity.pod(participant.shape).size
    if participant.companion is None:
        return tuple(own << SCORE_BITS for own in size)
    with_it, per = capacity.pod(participant.companion.shape).size, participant.companion.per
    return tuple((own << SCORE_BITS) + (other << SCORE_BITS) // per for own, other in zip(size, with_it, strict=True))
