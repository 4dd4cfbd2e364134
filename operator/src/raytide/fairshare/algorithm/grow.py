"""Growth above minimums, and rebalancing between participants.

One queue: the tenant with the lowest share first (`tenants.py`), within it the highest priority, within that participants
with GPUs, within these always the least fulfilled, one allowed step at a time; scores are updated after every step (TJ §3 rows 8 to 10, 15, 16; TJ §4 step 2). A step with all
pods that come with it has to fit the cluster's load limit, the namespace's quotas and real nodes. It takes free
capacity, and where there is none what donors give (`donors.py`): those of a lower priority, and those that are further
ahead. Each resize costs a training a change of membership, so a donor of the same priority starts late, for a receiver
that is further behind than the gap of the options, and then both go on until they are even; and a participant that the
plan resizes anyway is preferred to one that it would resize as well, as a donor and as a receiver, by up to half the gap.
No instance goes for capacity that a pending pod would take.

A participant that does not fit is skipped. Rounds are repeated until one frees nothing, so that little is left for the
next plan. Free capacity that a claimant of the same or a higher priority will take once a cooldown
ends is kept for it. Called by `allocate.py`; mutable state in `state.py`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import Final, TypeAlias

from raytide.api.sharing_record import GROWING, REBALANCED
from raytide.fairshare.algorithm.capacity_index import fits
from raytide.fairshare.algorithm.donors import Claim, Scope, far_behind, preference
from raytide.fairshare.algorithm.minimums import MinimumGuarantees, shrink_donors
from raytide.fairshare.algorithm.model import COOLING_DOWN, INSUFFICIENT
from raytide.fairshare.algorithm.participant_state import SCORE_BITS, ParticipantState, Pods
from raytide.fairshare.algorithm.preemption import Preemption
from raytide.fairshare.algorithm.scale_steps import Step, charge, is_free_now, step_to, tried
from raytide.fairshare.algorithm.state import Placement, Rejection, State
from raytide.fairshare.algorithm.tenants import TenantState

_FEW: Final = 32
"""How many donors of other tenants are looked at first."""

Turn: TypeAlias = tuple[int, bool, int, int, ParticipantState]
"""Order of receivers of one tenant: priority, GPUs, score, rank; the participant is never compared, as no two have the same rank."""


@dataclass(eq=False, slots=True)
class Kept:
    """Capacity that this plan keeps for claimants, and for participants with a resize that is fresh or under way."""

    for_claims: list[Placement] = field(default_factory=list)
    sizes_before: dict[int, tuple[ParticipantState, int]] = field(default_factory=dict)
    """Rank -> a participant that counts as larger while capacity is kept for it, and its real size."""

    def restore_sizes(self) -> None:
        """Restore the real sizes: what was kept is decided once the resize has settled."""
        for share, size in self.sizes_before.values():
            share.size = size


def grow(state: State, claims: MinimumGuarantees) -> Kept:
    """Grant capacity above minimums; returns what was kept, for the caller to release."""
    growth = _Growth(state, state.pool.options.rebalance_gap)
    cooling = sorted(claims.cooling, key=lambda claim: -claim[0].of.priority)
    shares = sorted(state.shares, key=lambda share: -share.of.priority)
    levels = [(priority, list(level)) for priority, level in groupby(shares, key=lambda share: share.of.priority)]
    if state.tenants.has_any:  # shares of tenants come before priorities
        levels = [(min((priority for priority, _ in levels), default=0), shares)]
    for priority, level in levels:
        while cooling and cooling[0][0].of.priority >= priority:
            for pods, count in cooling.pop(0)[1]:
                growth.kept.for_claims += state.place(pods, count)
        growth.fill(level)
    while growth.has_preempted:
        growth.begin_round()
        for _, level in levels:
            growth.fill(level)
    growth.explain_resting()
    return growth.kept


class _Turns:
    """Receivers in order: the tenant with the lowest share is next, and of that the first by `Turn`."""

    def __init__(self, turns: Iterable[Turn]) -> None:
        self._turns: dict[TenantState, list[Turn]] = {}
        for turn in turns:
            self._turns.setdefault(turn[-1].tenant, []).append(turn)
        self._tenants: list[tuple[int, Turn, TenantState]] = []
        for tenant, own in self._turns.items():
            heapify(own)
            heappush(self._tenants, (tenant.share, own[0], tenant))
        self._last: TenantState | None = None

    def push(self, turn: Turn) -> None:
        """Add a turn of the receiver that was popped last."""
        heappush(self._turns[turn[-1].tenant], turn)

    def pop(self) -> ParticipantState | None:
        """Remove the next receiver; None if there is none."""
        if self._last is not None and (own := self._turns[self._last]):
            heappush(self._tenants, (self._last.share, own[0], self._last))
        self._last = None
        while self._tenants:
            share, _, tenant = heappop(self._tenants)
            own = self._turns[tenant]
            if share != tenant.share:  # its participants have given since
                heappush(self._tenants, (tenant.share, own[0], tenant))
                continue
            self._last = tenant
            return heappop(own)[-1]
        return None


@dataclass(eq=False, slots=True)
class _Growth:
    """Rounds of growth in one plan."""

    state: State
    gap: Fraction
    """The part of its score by which a donor has to be ahead of a receiver."""
    kept: Kept = field(default_factory=Kept)
    has_preempted: bool = False
    """Whether an instance was preempted in this round."""
    _hopeless: dict[object, int] = field(default_factory=dict)
    """Kind of step -> the least score for which no donors were found in this round."""
    _is_again: bool = False
    """Whether this is a second or later round."""
    _growing: set[int] = field(default_factory=set)
    """Ranks of the participants that free capacity lets grow."""
    _rejected: dict[int, Rejection] = field(default_factory=dict)
    """Rank -> why the next step does not fit into free capacity; until anything changes."""
    _waiting: list[Pods] | None = None
    _by_lead: dict[str, list[ParticipantState]] = field(default_factory=dict)
    """Tenant -> participants that may give anything: lowest priority first, then the best-off before the plan."""
    _by_counted: dict[str, dict[frozenset[int], list[ParticipantState]]] = field(default_factory=dict)
    """The same by the resources that count for tenants, of those that their pods request; with tenants only."""
    _near: list[ParticipantState] = field(default_factory=list)
    """Those of them that may give to a receiver that is not far behind: they have given, or are in a burst."""

    def begin_round(self) -> None:
        """Forget what was learnt about donors."""
        self.has_preempted = False
        self._is_again = True
        self._growing = set()
        self._hopeless.clear()

    def fill(self, level: list[ParticipantState]) -> None:
        """Grow participants of one priority, or of all tenants, until no step fits."""
        shares = [share for share in level if _wants_more(self.state, share) or _is_under_way(self.state, share)]
        if not self._is_again:
            self._growing = self._would_grow(shares)
        turns = _Turns(map(self._turn, shares))
        while (share := turns.pop()) is not None:
            if self._has_grown(share) and share.larger() is not None:
                turns.push(self._turn(share))

    def _turn(self, share: ParticipantState) -> Turn:
        """GPUs first, then the least fulfilled; a participant that grows anyway before those that would be resized as well."""
        return self._turn_of(share, is_growing=share.has_grown or share.rank in self._growing)

    def _turn_of(self, share: ParticipantState, *, is_growing: bool) -> Turn:
        score = share.score - preference(share, share.score, self.gap) if is_growing else share.score
        return -share.of.priority, not share.has_gpus, score, share.rank, share

    def _would_grow(self, shares: list[ParticipantState]) -> set[int]:
        """The ranks of the participants among which the free capacity is shared: few, unless they fall behind the others.

        Nothing is changed. Which participants grow is decided first, so that those that do are served evenly.
        """
        growing: set[int] = set()
        granted: list[tuple[ParticipantState, int, list[Placement], Step]] = []
        turns = _Turns(map(self._turn, shares))
        while (share := turns.pop()) is not None:
            after = share.larger()
            step = [] if after is None else step_to(share, after)
            placements = None if after is None else tried(self.state, share, step)
            if isinstance(placements, Rejection):
                self._rejected[share.rank] = placements
            if after is None or placements is None or isinstance(placements, Rejection):
                continue
            charge(self.state, share, step)
            granted.append((share, share.size, placements, step))
            share.size = after
            growing.add(share.rank)
            turns.push(self._turn_of(share, is_growing=True))
        for share, before, placements, step in reversed(granted):
            share.size = before
            charge(self.state, share, [(pods, -count) for pods, count in step])
            self.state.forget(placements)
        if granted:  # what did not fit beside them may fit instead of them
            self._rejected.clear()
        return growing

    def _has_grown(self, share: ParticipantState) -> bool:
        if not share.of.may_grow and _is_soon(share):
            return self._keep_one_step(share)
        refusal = self._one_step(share)
        if refusal is None:
            self._rejected.clear()
            return True
        self.state.refusals[share.of.id] = refusal
        return False

    def _keep_one_step(self, share: ParticipantState) -> bool:
        """Keep the capacity of its next allowed size for it."""
        after = share.larger()
        if after is None or isinstance(tried(self.state, share, step_to(share, after)), Rejection):
            return False
        charge(self.state, share, step_to(share, after))
        self.kept.sizes_before.setdefault(share.rank, (share, share.size))
        share.size = after
        self._rejected.clear()
        return True

    def _one_step(self, share: ParticipantState) -> Rejection | None:
        """Grant the next allowed size, or return why not, with nothing changed."""
        after = share.larger()
        if after is None:
            return None
        step = step_to(share, after)
        known = self._rejected.get(share.rank)
        is_now = known is None and is_free_now(self.state, share, step)
        placements = known or tried(self.state, share, step)
        if isinstance(placements, Rejection):
            return None if self._has_preempted(share, step, after, placements) else placements
        nodes = [spot.name for pods, spot, _ in placements if pods is share.instances]
        charge(self.state, share, step)
        share.grows(after, GROWING, nodes, is_released=is_now and all(each for _, _, each in placements))
        return None

    # --- from donors ---------------------------------------------------------------------------------------------------

    def _has_preempted(self, share: ParticipantState, step: Step, after: int, refusal: Rejection) -> bool:
        """Whether donors gave the step."""
        if not share.of.rebalances or refusal.quota:
            return False
        options = self.state.pool.options
        kind = (
            tuple([(pods.pod.number, count) for pods, count in step]),  # a generator costs twice as much: P10
            share.of.priority,
            share.of.is_accounted_by_limits,
            share.has_grown or share.of.is_in_burst,
            share.tenant.of.name,
        )
        if share.score >= self._hopeless.get(kind, 1 << SCORE_BITS + 1):
            return False
        claim = Claim(Scope.GROWTH, share.of.priority, tuple(step), share, self.gap)
        attempt = self._attempt(claim, options.victims_per_instance * (after - share.size))
        if attempt is None:
            self._hopeless[kind] = share.score
            return False
        if self._is_contested(attempt):
            self._hopeless[kind] = share.score
            attempt.undo()
            return False
        charge(self.state, share, step)
        shrink_donors(attempt, REBALANCED, for_id=share.of.id)
        self._near += [donor for donor in attempt.donors if donor not in self._near]
        nodes = [spot.name for pods, spot, _ in attempt.placements if pods is share.instances]
        share.grows(after, REBALANCED, nodes, is_released=False)
        self.has_preempted = True
        return True

    def _attempt(self, claim: Claim, most: int) -> Preemption | None:
        """The attempt that succeeded. With tenants many may give: the first few are tried first, because looking at all costs time."""
        donors = [] if claim.share is None else list(self._candidates(claim.share))
        is_many = self.state.tenants.has_any and len(donors) > _FEW
        for some in (donors[:_FEW], donors) if is_many else (donors,):
            attempt = Preemption(self.state, claim, most, some)
            if some and attempt.succeeds():
                return attempt
        return None

    def _candidates(self, receiver: ParticipantState) -> Iterator[ParticipantState]:
        """Participants that might give to the receiver: a superset, so that most need not be looked at."""
        if not self._by_lead:
            willing = (each for each in self.state.shares if each.of.rebalances and each.of.may_shrink)
            for each in sorted(willing, key=lambda each: (each.of.priority, -each.began_at)):
                self._by_lead.setdefault(each.tenant.of.name, []).append(each)
                if self.state.tenants.has_any:
                    counted = frozenset(_requested(each) & each.tenant.totals.keys())
                    self._by_counted.setdefault(each.tenant.of.name, {}).setdefault(counted, []).append(each)
                if each.has_given or each.of.is_in_burst:
                    self._near.append(each)
        if self.state.tenants.has_any:
            yield from self._candidates_of_other_tenants(receiver)
        priority, score, far = receiver.of.priority, receiver.score, set[int]()
        for donor in self._by_lead.get(receiver.tenant.of.name, ()):
            is_lower = donor.of.priority < priority
            is_far = is_lower or receiver.has_gpus or score < far_behind(donor.began_at, self.gap)
            if donor.of.priority > priority or not is_far:
                break
            far.add(donor.rank)
            yield donor
        near = (each for each in self._near if each.of.priority == priority and each.rank not in far)
        yield from (each for each in near if each.tenant is receiver.tenant)

    def _candidates_of_other_tenants(self, receiver: ParticipantState) -> Iterator[ParticipantState]:
        """Those of other tenants, the highest shares first.

        All of tenants that borrow what its own is guaranteed, or have a higher share; of the others those that have
        nothing that counts for tenants of what it needs.
        """
        own, wanted = receiver.tenant, _requested(receiver)
        guaranteed = own.within_nominal(()) & wanted
        for tenant in self.state.tenants.by_share():
            if tenant is own:
                continue
            name = tenant.of.name
            is_ahead = own.share < far_behind(tenant.share, self.gap)
            if is_ahead or any(tenant.used[number] > tenant.nominal[number] for number in guaranteed):
                yield from self._by_lead.get(name, ())
                continue
            if own.share < tenant.share:
                yield from (each for each in self._near if each.tenant is tenant)
            for counted, donors in self._by_counted.get(name, {}).items():
                if counted.isdisjoint(wanted):
                    yield from donors

    def _is_contested(self, attempt: Preemption) -> bool:
        """Whether a pod that has no node would take what is freed before the receiver has its pods."""
        if self._waiting is None:
            shares = (pods for share in self.state.shares if share.has_begun for pods in share.all_pods())
            guests = (guest.pods for guest in self.state.guests)
            self._waiting = [pods for pods in (*shares, *guests) if pods.loose]
        spots = {spot.index: spot for _, spot, _ in attempt.placements}
        for spot in spots.values():
            free = list(spot.soon)
            for pods, where, _ in attempt.placements:
                if where is spot:
                    for number, amount in pods.pod.wants:
                        free[number] += amount
            for pods in self._waiting:
                if spot.index in pods.pod.order.rank and fits(pods.pod.wants, free):
                    return True
        return False

    # --- participants that rest ----------------------------------------------------------------------------------------

    def explain_resting(self) -> None:
        """Report missing capacity for a resting participant without any: a reason that changes with rests is noise."""
        resting = []
        for share in self.state.shares:
            refusal = self.state.refusals.get(share.of.id)
            is_resting = refusal is not None and refusal.kind == COOLING_DOWN and not refusal.needs
            if is_resting and share.rank not in self.kept.sizes_before:
                resting.append(share)
        best = _best_off(self.state) if resting else {}
        for share in resting:
            _tell_lack_of_room(self.state, share, best.get(share.of.priority, 0))


def _best_off(state: State) -> dict[int, int]:
    """Priority -> the highest score that a participant would keep after one step down for a less fulfilled one."""
    best: dict[int, int] = {}
    for share in state.shares:
        smaller = share.smaller()
        if share.of.rebalances and share.of.is_scaling_enabled and smaller is not None:
            best[share.of.priority] = max(best.get(share.of.priority, 0), share.score_if(smaller))
    return best


def _tell_lack_of_room(state: State, share: ParticipantState, best: int) -> None:
    """Report missing capacity, unless rebalancing would serve it: then only its cooldown has to end."""
    after = share.larger()
    if after is None or (share.of.rebalances and best >= share.score_if(after)):
        return
    placements = tried(state, share, step_to(share, after))
    if isinstance(placements, Rejection):
        state.refusals[share.of.id] = placements
    else:
        state.forget(placements)


def _requested(share: ParticipantState) -> set[int]:
    """The resources that its elastic pods request."""
    return {number for pods in share.elastic_pods() for number, _ in pods.pod.wants}


def _wants_more(state: State, share: ParticipantState) -> bool:
    of = share.of
    if share.is_waiting or share.is_released or not share.has_begun:
        return False
    if not of.is_scaling_enabled or share.larger() is None:
        return False
    if any(pods.loose for pods in share.all_pods()):
        loose = tuple((pods.pod, pods.loose) for pods in share.all_pods() if pods.loose)
        state.refusals.setdefault(of.id, Rejection(INSUFFICIENT, needs=loose))
        return False
    if not of.may_grow:
        state.refusals[of.id] = Rejection(COOLING_DOWN)
        return False
    return True


def _is_under_way(state: State, share: ParticipantState) -> bool:
    """Whether it would grow in a moment: otherwise settled participants would take its share.

    No capacity is kept for a cooldown longer than that of a fresh resize.
    """
    refusal = state.refusals.get(share.of.id)
    is_resting = refusal is not None and refusal.kind == COOLING_DOWN and not refusal.needs
    return is_resting and _is_soon(share) and not share.segments


def _is_soon(share: ParticipantState) -> bool:
    return not share.of.is_settled or share.of.is_fresh
