"""State of one plan: what `minimums.py` and `grow.py` share.

The capacity of nodes, the two budgets, and one `ParticipantState` per participant in the order of ids. It places pods without a
node and undoes failed attempts. Mutable, local to one call of `allocate`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from raytide.api.sharing_record import CREATION_FORBIDDEN, UNSCHEDULABLE
from raytide.fairshare.algorithm.budgets import LoadBudget, QuotaLedger, Shortfall
from raytide.fairshare.algorithm.model import (
    QUOTA_EXCEEDED,
    ClusterSnapshot,
    ExternalPods,
    Participant,
    ParticipantId,
    Shape,
)
from raytide.fairshare.algorithm.participant_state import SCORE_BITS, ParticipantState, Pods, build_share
from raytide.fairshare.algorithm.placement import ClusterCapacity, NodeCapacity, PodShape
from raytide.fairshare.algorithm.tenants import TenantLedger

Placement = tuple[Pods, NodeCapacity, bool]
"""The pods, the node, and whether the capacity was free already."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a participant cannot have more; `pending_reasons.py` turns it into a sentence."""

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


@dataclass(frozen=True, eq=False, slots=True)
class ReservedPods:
    """Pods of other workloads, and the capacity that this plan keeps for them."""

    of: ExternalPods
    pods: Pods
    is_short: bool
    """Whether the free capacity was not enough for all of them."""


@dataclass(eq=False, slots=True)
class State:
    """One plan under construction; the same for every order of the input."""

    pool: ClusterSnapshot
    room: ClusterCapacity
    load: LoadBudget
    quotas: QuotaLedger
    tenants: TenantLedger
    shares: list[ParticipantState]
    refusals: dict[ParticipantId, Rejection] = field(default_factory=dict)
    contradicted: set[ParticipantId | str] = field(default_factory=set)
    guests: list[ReservedPods] = field(default_factory=list)
    """In the order in which they were served."""
    _on: dict[str, dict[int, Pods]] = field(default_factory=dict)
    """Node -> pods of participants that are, or were, there; built when something is preempted."""

    def pods_on(self, name: str) -> Iterable[Pods]:
        """Pods of participants on that node whose number depends on a size."""
        if not self._on:
            for share in self.shares:
                for pods in share.elastic_pods():
                    for where in pods.where:
                        self._on.setdefault(where, {})[id(pods)] = pods
        return self._on.get(name, {}).values()

    def spend(self, pods: Pods, count: int) -> None:
        """Charge `count` more wanted pods by limits, and to their tenant; a negative count releases them."""
        self.load.spend_limits(pods.pod, count)
        if self.tenants.has_any and pods.owner is not None:
            pods.owner.tenant.charge(pods.pod, count)

    def place(self, pods: Pods, count: int, *, is_free_now: bool = False) -> list[Placement]:
        """Place as many as fit, at most `count`; if `is_free_now`, not on capacity that pods have yet to leave."""
        done: list[Placement] = []
        while len(done) < count:
            found = self.room.find(pods.pod, is_free_now=is_free_now)
            if found is None:
                break
            spot, is_now = found
            self.room.put(pods.pod, spot)
            pods.add(spot.name)
            if self._on and pods.owner is not None:
                self._on.setdefault(spot.name, {})[id(pods)] = pods
            done.append((pods, spot, is_now))
        self.load.spend_requests(pods.pod, len(done))
        return done

    def forget(self, placements: list[Placement]) -> None:
        """Undo these placements."""
        for pods, spot, _ in reversed(placements):
            self.room.unplace(pods.pod, spot)
            pods.remove(spot.name)
            self.load.spend_requests(pods.pod, -1)

    def receive(self, who: ExternalPods) -> Pods:
        """Place pending pods of another workload on free capacity, unless `is_doubted`."""
        pods = Pods(self.room.pod(who.shape), {}, 0 if who.is_doubted else who.count)
        if self._settle(pods, pods.loose, is_free_now=True) and who.is_unschedulable:
            self.contradicted.add(who.name)
        self.guests.append(ReservedPods(who, pods, is_short=pods.loose > 0))
        return pods

    def fill(self, share: ParticipantState) -> None:
        """Place its pods without a node on free capacity; a gang that has not started has none."""
        if share.size == 0 and share.of.is_gang:
            return
        for pods in share.all_pods():
            if pods.loose:
                placed = self._settle(pods, self._allowed(pods, share), is_free_now=True)
                if pods is share.instances and placed and pods.loose < share.of.unschedulable:
                    self.contradicted.add(share.of.id)

    def fill_late(self, pods: Pods, share: ParticipantState | None) -> None:
        """Place pods that still have no node on capacity that others are leaving, after all claims are served."""
        if pods.loose and (share is None or share.has_begun):
            self._settle(pods, pods.loose if share is None else self._allowed(pods, share))

    def _settle(self, pods: Pods, count: int, *, is_free_now: bool = False) -> int:
        placements = self.place(pods, min(count, pods.loose), is_free_now=is_free_now)
        pods.loose -= len(placements)
        pods.pending.extend(spot.name for _, spot, _ in placements)
        return len(placements)

    def _allowed(self, pods: Pods, share: ParticipantState) -> int:
        """How many of those without a node a quota allows to be created."""
        return max(0, pods.loose - self.record_quota_shortfall(share)) if pods is share.instances else pods.loose

    def refused_by_tenant(self, share: ParticipantState, pods: Sequence[tuple[PodShape, int]]) -> Rejection | None:
        """The refusal of these additional pods by the quota and the borrowing limit of its tenant."""
        shortfall = self.tenants.shortfall(share.tenant, pods) if self.tenants.has_any else None
        if shortfall is None:
            return None
        return Rejection(QUOTA_EXCEEDED, needs=tuple(pods), tenant=share.tenant.of.name, shortfall=shortfall)

    def record_quota_shortfall(self, share: ParticipantState) -> int:
        """How many instances get no node whatever the capacity: by a quota, the API server or an unknown cause."""
        if share.of.unplaceable:
            kind = CREATION_FORBIDDEN if share.of.is_forbidden else UNSCHEDULABLE
            self.refusals[share.of.id] = Rejection(kind, count=share.of.unplaceable)
            return share.of.unplaceable
        overdraft = self.quotas.overdraft(share.of.id, share.instances.pod) if share.uncreated else None
        if overdraft is None:
            return 0
        count, name, shortfall = overdraft
        self.refusals[share.of.id] = quota_refusal((name, shortfall))
        return min(count, share.uncreated)


def quota_refusal(refusal: tuple[str, Shortfall]) -> Rejection:
    """The refusal of a quota."""
    return Rejection(QUOTA_EXCEEDED, quota=refusal[0], shortfall=refusal[1])


def begin(pool: ClusterSnapshot) -> State:
    """The state before anything is decided."""
    participants = sorted(pool.participants, key=lambda each: each.id)
    room = ClusterCapacity(pool.nodes, _shapes(pool, participants), pool.options.gpus)
    pods = {each.id: room.pod(each.shape) for each in participants}
    equals = sorted(participants, key=lambda each: (*_cost(each, room, pods[each.id]), each.created_at, each.id))
    rank_of = {each.id: rank for rank, each in enumerate(equals)}
    tenants = TenantLedger(pool, room)
    shares = [
        build_share(each, rank_of[each.id], room, pods[each.id], tenants.of(each.tenant)) for each in participants
    ]
    for share in shares if tenants.has_any else ():
        _charge_tenant(share, room)
    load = LoadBudget(pool, room)
    for share in filter(lambda each: each.has_loose, shares):
        _charge_waiting(share, load)
        _uncharge_impossible(share, room, load)
        _uncharge_unplaceable(share, load)
    return State(pool, room, load, QuotaLedger(pool, room), tenants, shares)


def _charge_tenant(share: ParticipantState, room: ClusterCapacity) -> None:
    """Charge what the participant has and wants to its tenant; a gang that has not begun wants nothing yet.

    Instances without a node that the plan releases are released from the tenant as well, charged or not: a tenant that
    wants what it cannot have is charged a little less in that plan.
    """
    for core in share.of.core:
        share.tenant.charge(room.pod(core.shape), sum(core.placed.values()))
    for pods in share.all_pods():
        share.tenant.charge(pods.pod, pods.placed + (_possible(share, pods, room) if share.has_begun else 0))


def _possible(share: ParticipantState, pods: Pods, room: ClusterCapacity) -> int:
    """How many of its pods without a node could have one; the others use nothing of their tenant's quota (TJ:D5)."""
    if not room.could_hold(pods.pod):
        return 0
    return max(0, pods.loose - (share.of.unplaceable if pods is share.instances else 0))


def _charge_waiting(share: ParticipantState, load: LoadBudget) -> None:
    """Charge the limits of pods without a node; those on a node are charged there."""
    if share.size or not share.of.is_gang:
        for pods in share.all_pods():
            load.spend_limits(pods.pod, pods.loose)


def _uncharge_impossible(share: ParticipantState, room: ClusterCapacity, load: LoadBudget) -> None:
    """Release the limits of existing pods that no node can hold; they must not block the growth of others (TJ:D5)."""
    if share.has_begun:
        for pods in share.all_pods():
            if pods.loose and not room.could_hold(pods.pod):
                load.spend_limits(pods.pod, -pods.loose)


def _uncharge_unplaceable(share: ParticipantState, load: LoadBudget) -> None:
    """The same for unplaceable instances; those above the minimum are released in this plan."""
    above = share.size - share.of.floor if share.of.is_scaling_enabled else 0
    staying = min(share.of.unplaceable, share.instances.loose) - min(share.of.wanted_in_vain, max(0, above))
    if staying > 0:
        load.spend_limits(share.instances.pod, -staying)


def _shapes(pool: ClusterSnapshot, participants: list[Participant]) -> list[Shape]:
    shapes = [each.shape for each in participants]
    shapes += [each.companion.shape for each in participants if each.companion is not None]
    shapes += [core.shape for each in participants for core in each.core]
    return shapes + [each.shape for each in pool.external_pods]


def _cost(participant: Participant, room: ClusterCapacity, pod: PodShape) -> tuple[int, ...]:
    """GPUs, CPU and memory of one instance, with its part of what comes with it (TJ §3 row 4), in parts of 2^-64."""
    if participant.companion is None:
        return tuple(own << SCORE_BITS for own in pod.size)
    with_it, per = room.pod(participant.companion.shape).size, participant.companion.per
    pairs = zip(pod.size, with_it, strict=True)
    return tuple((own << SCORE_BITS) + (other << SCORE_BITS) // per for own, other in pairs)
