"""Donors: which participant gives capacity to which claim, and down to which size.

One table for all claims, among participants of one tenant. No participant shrinks below its minimum, for a lower
priority, for pods that may not preempt, or if its scaling is disabled.

| claim | given by | down to |
|---|---|---|
| a minimum | a lower priority; the same priority outside its cooldown; not the instance that leaves last | its minimum |
| pods of other workloads | a lower priority that yields to pods | its minimum |
| growth | a lower priority that rebalances, outside its cooldown | its minimum |
| growth with GPUs | the same priority without GPUs, likewise: no GPU stays idle for want of CPUs | its minimum |
| growth | the same priority, likewise, ahead by more than the gap; with GPUs only if the receiver has GPUs | a higher score than the receiver has |

Between tenants priorities do not count, but quotas and shares (`tenants.py`), for minimums and growth alike: outside its
cooldown, and above its minimum, a participant gives while its tenant borrows a resource that the claim needs, if the
claimant's tenant stays within its nominal quota of it; otherwise if its tenant's share is ahead of the other one's by
more than the gap, and then until they are even: for growth, only if the claimant's tenant would have the lower share after
the step, because otherwise the donor's tenant, which has released the capacity, would come first and get it again. Resources
that do not count for tenants are given as within one tenant.

The gap is a part of the donor's score or share, and the only rule of evenness.

Pure; rules TJ §3 rows 6, 7, 16; called by `preemption.py`, `minimums.py`, `reservations.py` and `grow.py`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Final, NamedTuple

from raytide.fairshare.algorithm.participant_state import SCORE_BITS, ParticipantState, Pods, smallest_size
from raytide.fairshare.algorithm.placement import PodShape


class Scope(Enum):
    """Which participants are considered as donors of a claim."""

    MINIMUM = "those that give to a claimant below its minimum"
    COOLING = "those that would, were it not for a cooldown"
    ANY_PRIORITY = "those that would, were it not for their priority"
    LEAVES_LAST = "those that would after a cooldown, were it not for the instance that leaves last"
    EXTERNAL = "those that yield to pods of other workloads"
    GROWTH = "those that give to a receiver above its minimum"


_AFTER_COOLDOWN: Final = (Scope.COOLING, Scope.LEAVES_LAST)


@dataclass(frozen=True, eq=False, slots=True)
class Claim:
    """Capacity that a participant, or pods of another workload, may take from donors."""

    scope: Scope
    priority: int
    needs: tuple[tuple[Pods, int], ...]
    participant: ParticipantState | None = None
    """The claimant; None: pods of another workload."""
    gap: Fraction = Fraction(0)
    """Growth: the part of its score by which a donor of the same priority has to be ahead."""

    @property
    def additional(self) -> list[tuple[PodShape, int]]:
        """The pods that it adds to what its claimant wants already."""
        claimant = self.participant
        is_wanted = claimant is None or (self.scope is not Scope.GROWTH and claimant.size >= claimant.spec.floor)
        return [] if is_wanted else [(pods.pod, count) for pods, count in self.needs]

    @property
    def only_donor(self) -> ParticipantState | None:
        """The claimant itself if its pods may not preempt: its instances may go for its master; None: all that may give."""
        is_limited = self.participant is not None and not self.participant.spec.may_preempt
        return self.participant if is_limited else None

    @property
    def borrows(self) -> bool:
        """Whether its claimant's tenant would use more than its nominal quota with it."""
        return self.participant is not None and self.participant.tenant.share_with(self.additional) > 0


def minimum_size(donor: ParticipantState, claim: Claim) -> int:
    """The smallest size to which the participant shrinks for the claim; its present size if it gives nothing."""
    spec = donor.spec
    if not spec.is_scaling_enabled or donor.size <= spec.floor or claim.only_donor not in (None, donor):
        return donor.size
    if (
        claim.participant is not None
        and claim.participant.tenant is not donor.tenant
        and (contested := _contested(donor, claim))
    ):
        return _minimum_for_tenant(donor, claim, claim.participant, contested)
    if claim.scope is not Scope.GROWTH or claim.participant is None:
        return spec.floor if is_in_scope(_group(donor), claim.priority, claim.scope) else donor.size
    return _minimum_for_growth(donor, claim.participant, claim.gap)


def _minimum_for_growth(donor: ParticipantState, receiver: ParticipantState, gap: Fraction) -> int:
    spec = donor.spec
    is_bound = not (spec.rebalances and spec.may_shrink and spec.is_settled) or spec.priority > receiver.spec.priority
    if is_bound or donor is receiver or donor.has_grown or donor.instances.unplaced:
        return donor.size
    if spec.priority < receiver.spec.priority or (receiver.has_gpus and not donor.has_gpus):
        return spec.floor
    if donor.has_gpus and not receiver.has_gpus:
        return donor.size
    if receiver.score >= far_behind(donor.score, gap):
        return donor.size
    return smallest_size(spec, _first_above(donor, receiver.score))


def _contested(donor: ParticipantState, claim: Claim) -> frozenset[int]:
    """The resources that count for tenants, of those that the claim needs and the donor has."""
    wanted = frozenset[int]().union(*(pods.pod.resources for pods, _ in claim.needs))
    return (wanted & donor.requested).intersection(donor.tenant.totals)


def _minimum_for_tenant(
    donor: ParticipantState, claim: Claim, claimant: ParticipantState, contested: frozenset[int]
) -> int:
    """The same for a claimant of another tenant: instances go while their tenant borrows what is contested.

    It gives what the claimant's tenant has within its nominal quota; beyond that, until the shares of the two are even. Growth
    is compared as in `TenantTurns`: the claimant's next step with the donor's, which would get back its last instance.
    """
    spec, own, other = donor.spec, donor.tenant, claimant.tenant
    borrowed = [number for number in contested if own.used[number] > own.nominal[number]]
    if not borrowed or not (spec.may_shrink or claim.scope in _AFTER_COOLDOWN):
        return donor.size
    is_growth = claim.scope is Scope.GROWTH
    if is_growth and (donor.has_grown or donor.instances.unplaced or not (spec.rebalances and spec.is_settled)):
        return donor.size
    more = claim.additional
    guaranteed = other.within_nominal(more)
    before = other.share if more else other.share_with([(pods.pod, -count) for pods, count in claim.needs])
    is_fair = before < far_behind(own.share, claim.gap)

    def may_give(count: int) -> bool:
        last = own.used_with(_released(donor, count - 1))
        there = [number for number in borrowed if last[number] > own.nominal[number]]
        if guaranteed.intersection(there):
            return True
        if not there or not is_fair:
            return False
        if is_growth:
            return own.share_of(last) > other.share_with(more)
        return own.share_with(_released(donor, count)) > before

    low, high = 0, donor.size - spec.floor
    while low < high:
        count = (low + high + 1) // 2
        low, high = (count, high) if may_give(count) else (low, count - 1)
    return smallest_size(spec, donor.size - low)


def _released(donor: ParticipantState, count: int) -> list[tuple[PodShape, int]]:
    """What goes with so many of its instances, as negative numbers of pods."""
    released = [(donor.instances.pod, -count)]
    if donor.companions is not None:
        surplus = donor.companions_at(donor.size) - donor.companions_at(donor.size - count)
        released.append((donor.companions.pod, -surplus))
    return released


def far_behind(score: int, gap: Fraction) -> int:
    """The score below which a receiver is far enough behind a donor with that score."""
    return score * (gap.denominator - gap.numerator) // gap.denominator


def _first_above(donor: ParticipantState, score: int) -> int:
    """The smallest size, allowed or not, with a score above `score`."""
    surplus = (score * donor.span) >> SCORE_BITS
    while (surplus << SCORE_BITS) // donor.span <= score:
        surplus += 1
    return donor.spec.floor + surplus


# --- groups ----------------------------------------------------------------------------------------------------------------


class Group(NamedTuple):
    """Participants that are equal as donors of minimums and of pods of other workloads."""

    tenant: str
    priority: int
    may_shrink: bool
    yields: bool


def groups_of(participants: Iterable[ParticipantState]) -> dict[Group, list[ParticipantState]]:
    """Those with anything above their minimum that may be given, by group."""
    groups: dict[Group, list[ParticipantState]] = {}
    for participant in participants:
        if participant.spec.is_scaling_enabled and participant.size > participant.spec.floor:
            groups.setdefault(_group(participant), []).append(participant)
    return groups


def _group(donor: ParticipantState) -> Group:
    return Group(donor.tenant.spec.name, donor.spec.priority, donor.spec.may_shrink, donor.spec.yields)


def may_give(group: Group, claim: Claim) -> bool:
    """Whether such participants may give anything; those of other tenants by `_minimum_for_tenant`."""
    if claim.only_donor is not None:
        return group == _group(claim.only_donor)
    is_other = claim.participant is not None and claim.participant.tenant.spec.name != group.tenant
    is_tenants = is_other and (group.may_shrink or claim.scope in _AFTER_COOLDOWN)
    return is_tenants or is_in_scope(group, claim.priority, claim.scope)


def is_in_scope(group: Group, priority: int, scope: Scope) -> bool:
    """Whether such participants give to a claim of that priority, apart from growth."""
    if scope is Scope.EXTERNAL:
        return group.yields and group.priority < priority
    if scope is Scope.ANY_PRIORITY or group.priority < priority:
        return True
    return group.priority == priority and (group.may_shrink or scope in _AFTER_COOLDOWN)
