"""Minimums: participants below their minimum, and what is reclaimed for them.

Served by priority, then age. Pods without a node take free capacity first, those of other workloads included. Then each
participant below its minimum gets all it lacks: from free capacity, or by reclaiming single steps from the best-off
victims that hold the missing resource on a node it may use. If that does not suffice, nothing is reclaimed (TJ §3 rows
6, 7, 12; TJ §4 step 1). Never reclaims from a higher priority, below a minimum, or for pods that cannot fit anyway.

While a participant waits, those behind it get nothing that it has reserved (`reservations.py`).

Capacity that pods are about to leave goes to whole minimums first. A snapshot does not show for which claimant a victim
shrank; but none shrinks for a surplus, for a part of a minimum or, without consent, for pods of other workloads. So
these get only what is free already, and the rest after all claims; otherwise a victim would pay again for the same
claimant while its first pods terminate. Called by `allocate.py`; mutable state in `state.py`.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from raytide.api.sharing_record import ADMITTED, AWAITING_NODES, REACHING_MINIMUM, RECLAIMED, YIELDED_TO_PODS
from raytide.fairshare.algorithm.donors import Claim, Group, Scope, groups_of, may_give
from raytide.fairshare.algorithm.model import (
    CAPACITY_RESERVED,
    COOLING_DOWN,
    HELD_BY_RANK_ZERO,
    HIGHER_PRIORITY,
    INSUFFICIENT,
    ExternalPods,
    ParticipantId,
    Shape,
)
from raytide.fairshare.algorithm.participant_state import ParticipantState, Pods
from raytide.fairshare.algorithm.placement import PodShape
from raytide.fairshare.algorithm.preemption import Preemption
from raytide.fairshare.algorithm.reservations import Reservations
from raytide.fairshare.algorithm.state import AllocationState, Rejection, TenantTurns, quota_rejection
from raytide.fairshare.algorithm.tenants import TenantState

_THERE, _TO_COME = range(2)

_SCOPES: Final = (Scope.MINIMUM, Scope.COOLING, Scope.ANY_PRIORITY)
"""In which donors are looked for; those of the last two only explain why a participant waits."""

Needs: TypeAlias = list[tuple[Pods, int]]


@dataclass(eq=False, slots=True)
class MinimumGuarantees:
    """The claims of one plan, and which of them wait for a cooldown to end."""

    state: AllocationState
    cooling: list[tuple[ParticipantState, Needs]] = field(default_factory=list)
    reserved_nodes: dict[ParticipantId, tuple[str, ...]] = field(default_factory=dict)
    """Participants with a reservation, each with the nodes."""
    _groups: frozenset[Group] | None = None
    """Groups of possible donors: two scopes with equal groups need not be tried twice."""
    _failed: set[tuple[object, ...]] = field(default_factory=set)
    _held_by_rank_zeros: dict[object, Rejection | None] = field(default_factory=dict)
    _late: list[tuple[Pods, ParticipantState | None]] = field(default_factory=list)
    _reservations: Reservations = field(init=False)

    def __post_init__(self) -> None:
        self._reservations = Reservations(self.state)

    def guarantee_minimums(self) -> None:
        """Serve all in turn: highest priority first, existing pods before claims, then by age."""
        turns: list[tuple[tuple[int, int, str, bytes], ExternalPods | ParticipantState]] = [
            ((-pods.priority, _THERE, pods.created_at, _spelled(pods.shape)), pods)
            for pods in self.state.snapshot.external_pods
        ]
        for number, participant in enumerate(self.state.participants):
            if participant.is_complete:
                continue
            priority, born, last = -participant.spec.priority, participant.spec.created_at, f"{number:09}".encode()
            turns.append(((priority, _THERE, born, last), participant))
            turns.append(((priority, _TO_COME, born, last), participant))
        late = self._late
        borrowing: list[tuple[int, ParticipantState]] = []
        borrowers: set[TenantState] = set()
        for (_, phase, _, _), who in sorted(turns, key=lambda turn: turn[0]):
            if phase == _THERE:  # kube-scheduler places what exists wherever it fits
                self._reservations.lift()
            if isinstance(who, ExternalPods):
                pods = self.state.place_external(who)
                if who.is_unschedulable and who.may_preempt and not who.is_doubted:
                    self._yield_to(who, pods)
                self._reservations.subtract_external(pods)
                late.append((pods, None))
            elif phase == _THERE:
                self.state.fill(who)
                late += [(pods, who) for pods in who.all_pods()]
            elif self.state.tenants.has_any and (
                who.tenant in borrowers or self._claim_of(who, self._needs(who)).borrows
            ):
                borrowers.add(who.tenant)
                borrowing.append((len(borrowing), who))
            else:
                self._reservations.enforce()
                self._claim(who)
        self._claim_for_borrowers(TenantTurns(borrowing, lambda who: who.tenant.share))
        self._reservations.lift()
        self.fill_again()

    def _claim_for_borrowers(self, turns: TenantTurns) -> None:
        """Serve those that would use more than their tenant's nominal quota, and those behind them in their tenants."""
        while (participant := turns.pop()) is not None:
            self._reservations.enforce()
            self._claim(participant)

    def fill_again(self) -> None:
        """Place pods that still have no node on capacity that other pods are about to leave, in the order of turns."""
        for pods, who in self._late:
            self.state.fill_late(pods, who)
        for _, who in self._late:
            if who is not None and who.is_waiting and who.size >= who.spec.floor and not self._needs(who):
                # kube-scheduler binds pods that exist, whatever is reserved for the first in line.
                who.is_waiting = False
                self.state.rejections.pop(who.spec.id, None)

    def admit_for_node_autoscaler(self, waiting: Container[ParticipantId]) -> None:
        """Admit gangs that wait for a node although there is no capacity: node autoscalers add nodes for pods (FD:TJ3-5)."""
        if not self.state.snapshot.options.has_node_autoscaler:
            return
        for participant in sorted(
            self.state.participants, key=lambda each: (-each.spec.priority, each.spec.created_at)
        ):
            may_await = participant.spec.may_await_nodes and not participant.has_started
            if participant.spec.id not in waiting or not may_await:
                continue
            needs = self._needs(participant)
            if self._quota_rejection(participant, needs) is None:
                self.state.charge(participant, needs)
                participant.record_growth(participant.spec.floor, AWAITING_NODES, [], is_released=True)

    def _claim(self, participant: ParticipantState) -> None:
        needs = self._needs(participant)
        if not needs:
            if (
                participant.has_started and participant.size < participant.spec.floor
            ):  # wants less than its minimum, and has all of it
                participant.record_growth(participant.spec.floor, REACHING_MINIMUM, [], is_released=True)
            return
        participant.is_waiting = True
        rejection = self.state.rejections.get(participant.spec.id) or self._quota_rejection(participant, needs)
        if rejection is None:
            rejection = self._try_grant(participant, needs)
        if rejection is None:
            participant.is_waiting = False
        else:
            self.state.rejections[participant.spec.id] = rejection

    @staticmethod
    def _needs(participant: ParticipantState) -> Needs:
        """What it lacks for its minimum, in the order in which it is placed; empty if it has that.

        Pods that fewer nodes may hold come first, so that no other pod of the participant takes the only node for them; then larger ones.
        A minimum of 0 includes the master and the parameter servers.
        """
        needs = [
            (pods, participant.missing_for_minimum(pods))
            for pods in participant.all_pods()
            if participant.missing_for_minimum(pods) > 0
        ]
        return sorted(needs, key=lambda need: (-len(need[0].pod.order.nodes), need[0].pod.size), reverse=True)

    def _quota_rejection(self, participant: ParticipantState, needs: Needs) -> Rejection | None:
        """The rejection if quotas do not allow the pods of a gang, which do not exist yet."""
        if participant.size >= participant.spec.floor:
            return None
        rejection = self.state.quotas.shortfall(participant.spec.id, _wanted(needs))
        return None if rejection is None else quota_rejection(rejection)

    def _try_grant(self, participant: ParticipantState, needs: Needs) -> Rejection | None:
        """None if it has all it needs now; else the rejection, with nothing changed."""
        free = Preemption(self.state, self._claim_of(participant, needs))
        if free.try_place():
            self._commit(participant, free)
            return None
        if participant.spec.is_forbidden:  # no donor shrinks for pods that the API server has rejected before
            return Rejection(INSUFFICIENT, needs=_wanted(needs))
        rejection, first = self._from_donors(participant, needs), self._reservations.first_in_line(needs)
        if rejection is not None and rejection.tenant:  # nothing is reserved for what its tenant may not use
            return rejection
        if rejection is not None and first is not None and self._is_held_up(participant, needs):
            return Rejection(CAPACITY_RESERVED, needs=_wanted(needs), holder=first.spec.id)
        if participant.spec.is_unproven:
            return rejection
        if rejection is not None and (nodes := self._reservations.reserve(participant, needs)):
            self.reserved_nodes[participant.spec.id] = nodes
        return rejection

    def _from_donors(self, participant: ParticipantState, needs: Needs) -> Rejection | None:
        """The same with what donors give."""
        for scope in _SCOPES:
            attempt = self._attempt(Claim(scope, participant.spec.priority, tuple(needs), participant))
            if attempt is not None and scope is Scope.MINIMUM:
                self._commit(participant, attempt)
                return None
            if attempt is not None:
                return self._held_by(participant, needs, attempt, scope)
        claim = self._claim_of(participant, needs)
        return (
            self.state.tenant_rejection(participant, claim.additional)
            or self._held_by_rank_zero(participant, needs)
            or Rejection(INSUFFICIENT, needs=_wanted(needs))
        )

    @staticmethod
    def _claim_of(participant: ParticipantState, needs: Needs) -> Claim:
        return Claim(Scope.MINIMUM, participant.spec.priority, tuple(needs), participant)

    def _is_held_up(self, participant: ParticipantState, needs: Needs) -> bool:
        """Whether it would have its minimum without the reservation of another participant; nothing is changed."""
        self._reservations.lift()
        claim = self._claim_of(participant, needs)
        free = Preemption(self.state, claim)
        attempt = free if free.try_place() else self._attempt(claim)
        if attempt is not None:
            attempt.undo()
        self._reservations.enforce()
        return attempt is not None

    def _yield_to(self, who: ExternalPods, pods: Pods) -> None:
        """Place each of these pods on capacity about to be free, or released by consenting donors (TJ §3 row 6c).

        While such a participant shrinks, or may, capacity that pods are leaving goes to these pods before claims are
        served, as kube-scheduler would do by priority; otherwise other claimants would take what was released for them.
        """
        offering = [
            participant
            for participant in self.state.participants
            if participant.spec.yields
            and participant.spec.priority < who.priority
            and any(each.pod.pool == pods.pod.pool for each in participant.elastic_pods())
        ]
        if not any(
            participant.size > participant.spec.floor or not participant.spec.is_settled for participant in offering
        ):
            return
        self.state.fill_late(pods, None)
        count = pods.unplaced
        while count:
            attempt = self._attempt(Claim(Scope.EXTERNAL, who.priority, ((pods, count),)))
            if attempt is None:
                count //= 2  # so many at once do not fit, but each pod counts by itself
                continue
            shrink_donors(attempt, YIELDED_TO_PODS, for_pods=[who.name] * count)
            pods.unplaced -= count
            pods.pending += [node.name for _, node, _ in attempt.placements]
            count = min(count, pods.unplaced)

    def _attempt(self, claim: Claim) -> Preemption | None:
        """The attempt that got everything; none is made twice in vain."""
        is_behind = self._reservations.is_behind(claim.needs)
        tenant = "" if claim.participant is None else claim.participant.tenant.spec.name
        if self._groups is None:
            self._groups = frozenset(groups_of(self.state.participants))
        donors = frozenset(group for group in self._groups if may_give(group, claim))
        key = (_numbers(_wanted(claim.needs)), donors, is_behind, tenant, claim.only_donor)
        if key in self._failed:
            return None
        # On reserved nodes a claim pays for the first in line as well: no more than growth would.
        max_victims = self.state.snapshot.options.victims_per_instance * sum(count for _, count in claim.needs)
        attempt = Preemption(self.state, claim, max_victims) if is_behind else Preemption(self.state, claim)
        if attempt.try_preempt():
            return attempt
        self._failed.add(key)
        return None

    def _held_by(self, participant: ParticipantState, needs: Needs, attempt: Preemption, scope: Scope) -> Rejection:
        """The rejection that names the holder; if that only cools down, free capacity is kept for the claim."""
        holder = attempt.steps[-1].donor.spec.id if attempt.steps else None
        attempt.undo()
        if scope is Scope.COOLING:
            self.cooling.append((participant, needs))
        kind = COOLING_DOWN if scope is Scope.COOLING else HIGHER_PRIORITY
        return Rejection(kind, needs=_wanted(needs), holder=holder)

    def _held_by_rank_zero(self, participant: ParticipantState, needs: Needs) -> Rejection | None:
        """The rejection if an instance that leaves last is all that is in the way; looked for once for equal claims."""
        claim = Claim(Scope.LEAVES_LAST, participant.spec.priority, tuple(needs), participant)
        key = (_numbers(_wanted(needs)), claim.priority, participant.tenant.spec.name, claim.only_donor)
        if key not in self._held_by_rank_zeros:
            attempt = Preemption(self.state, claim)
            found = next(attempt.left_last(), None) if attempt.try_preempt() else None
            attempt.undo()
            self._held_by_rank_zeros[key] = found and Rejection(
                HELD_BY_RANK_ZERO, needs=_wanted(needs), holder=found[0], node=found[1]
            )
        return self._held_by_rank_zeros[key]

    def _commit(self, participant: ParticipantState, attempt: Preemption) -> None:
        shrink_donors(attempt, RECLAIMED, for_id=participant.spec.id)
        is_released = all(is_now for _, _, is_now in attempt.placements) and not attempt.steps
        if participant.size < participant.spec.floor:
            count = participant.spec.floor - participant.size
            instances = [node.name for pods, node, _ in attempt.placements if pods is participant.instances]
            self.state.charge(participant, attempt.claim.needs)
            reason = ADMITTED if participant.size == 0 and participant.spec.is_gang else REACHING_MINIMUM
            participant.record_growth(participant.size + count, reason, instances, is_released=is_released)
        for pods in participant.all_pods():
            placed = [node.name for those, node, _ in attempt.placements if those is pods]
            pods.unplaced = max(0, pods.unplaced - len(placed))
            pods.pending.extend(placed)


def shrink_donors(
    attempt: Preemption, reason: str, *, for_id: ParticipantId | None = None, for_pods: Sequence[str] = ()
) -> None:
    """Record the steps of an attempt as shrinks of its donors."""
    for donor in attempt.donors:
        steps = [step for step in attempt.steps if step.donor is donor]
        nodes = [name for step in steps for name in step.nodes]
        count = sum(step.count for step in steps)
        # A participant that shrinks for its own master or parameter servers names no claimant.
        donor.record_shrink(count, reason, nodes, None if donor.spec.id == for_id else for_id, for_pods)


def _wanted(needs: Iterable[tuple[Pods, int]]) -> tuple[tuple[PodShape, int], ...]:
    return tuple((pods.pod, count) for pods, count in needs)


def _numbers(wanted: tuple[tuple[PodShape, int], ...]) -> tuple[tuple[int, int], ...]:
    """The same by number of the shape."""
    return tuple((pod.number, count) for pod, count in wanted)


def _spelled(shape: Shape) -> bytes:
    """A sort key that does not depend on the order of the input."""
    return msgspec.json.encode((shape.requests, shape.limits, shape.constraints), order="deterministic")
