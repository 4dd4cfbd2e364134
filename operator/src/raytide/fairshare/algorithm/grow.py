"""Growth above minimums, and rebalancing between participants.

One queue: first the tenant with the lowest share after the step (`tenants.py`), within it the highest priority, within that
participants with GPUs, within these always the least fulfilled, one allowed step at a time; scores are updated after every step
(TJ §3 rows 8 to 10, 15, 16; TJ §4 step 2). A step with all
pods that come with it has to fit the cluster's load limit, the namespace's quotas and real nodes. It takes free
capacity, and where there is none what donors give (`donors.py`): those of a lower priority, and those that are further
ahead by more than the gap of the options, because each resize costs a training a change of membership. No instance goes
for capacity that a pending pod would take.

A participant that does not fit is skipped. Rounds are repeated until one frees nothing, so that little is left for the
next plan. Free capacity that a claimant of the same or a higher priority will take once a cooldown
ends is kept for it. Called by `allocate.py`; mutable state in `state.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby
from typing import Final, TypeAlias

from raytide.api.sharing_record import GROWING, REBALANCED
from raytide.fairshare.algorithm.capacity_index import fits
from raytide.fairshare.algorithm.donors import Claim, Scope, far_behind
from raytide.fairshare.algorithm.minimums import MinimumGuarantees, shrink_donors
from raytide.fairshare.algorithm.model import COOLING_DOWN, INSUFFICIENT
from raytide.fairshare.algorithm.participant_state import SCORE_BITS, ParticipantState, Pods
from raytide.fairshare.algorithm.preemption import Preemption
from raytide.fairshare.algorithm.scale_steps import GrowthStep, Kind, fits_before_release, next_step, try_step
from raytide.fairshare.algorithm.state import AllocationState, Placement, Rejection, TenantTurns

_FEW: Final = 32
"""How many donors of other tenants are looked at first."""

Turn: TypeAlias = tuple[int, bool, int, int, ParticipantState]
"""Order of receivers of one tenant: priority, GPUs, score, rank; the participant is never compared, as no two have the same rank."""


@dataclass(eq=False, slots=True)
class Kept:
    """Capacity that this plan keeps for claimants, and for participants with a resize under way or a cooldown that ends soon."""

    for_claims: list[Placement] = field(default_factory=list)
    sizes_before: dict[int, tuple[ParticipantState, int]] = field(default_factory=dict)
    """Rank -> a participant that counts as larger while capacity is kept for it, and its real size."""

    def restore_sizes(self) -> None:
        """Restore the real sizes: what was kept is decided once the resize has settled."""
        for participant, size in self.sizes_before.values():
            participant.size = size


def grow(state: AllocationState, claims: MinimumGuarantees) -> Kept:
    """Grant capacity above minimums; returns what was kept, for the caller to release."""
    growth = _Growth(state, state.snapshot.options.rebalance_gap)
    cooling = sorted(claims.cooling, key=lambda claim: -claim[0].spec.priority)
    participants = sorted(state.participants, key=lambda participant: -participant.spec.priority)
    levels = [
        (priority, list(level))
        for priority, level in groupby(participants, key=lambda participant: participant.spec.priority)
    ]
    if state.tenants.has_any:  # shares of tenants come before priorities
        levels = [(min((priority for priority, _ in levels), default=0), participants)]
    for priority, level in levels:
        while cooling and cooling[0][0].spec.priority >= priority:
            for pods, count in cooling.pop(0)[1]:
                growth.kept.for_claims += state.place(pods, count)
        growth.fill(level)
    while growth.has_preempted:
        growth.begin_round()
        for _, level in levels:
            growth.fill(level)
    growth.explain_resting()
    return growth.kept


@dataclass(eq=False, slots=True)
class _Growth:
    """Rounds of growth in one plan."""

    state: AllocationState
    gap: Fraction
    """The part of its score by which a donor has to be ahead of a receiver."""
    kept: Kept = field(default_factory=Kept)
    has_preempted: bool = False
    """Whether an instance was preempted in this round."""
    _hopeless: dict[object, int] = field(default_factory=dict)
    """Kind of step -> the least score for which no donors were found in this round."""
    _rejected: dict[Kind, Rejection] = field(default_factory=dict)
    """Kind of step -> why it does not fit into free capacity; until anything changes."""
    _waiting: list[Pods] | None = None
    _by_lead: dict[str, list[ParticipantState]] = field(default_factory=dict)
    """Tenant -> participants that may give anything: lowest priority first, then the best-off before the plan."""
    _by_counted: dict[str, dict[frozenset[int], list[ParticipantState]]] = field(default_factory=dict)
    """The same by the resources that count for tenants, of those that their pods request; with tenants only."""
    _short: dict[int, dict[str, int]] = field(default_factory=dict)
    """Pool -> tenant -> its lowest share with a step for which there was no capacity in this round."""

    def begin_round(self) -> None:
        """Forget what was learnt about donors."""
        self.has_preempted = False
        self._hopeless.clear()
        self._short.clear()

    def fill(self, level: list[ParticipantState]) -> None:
        """Grow participants of one priority, or of all tenants, until no step fits."""
        participants = [
            participant
            for participant in level
            if _check_can_grow(self.state, participant) or _is_under_way(self.state, participant)
        ]
        self._rejected.clear()
        queue = TenantTurns(map(_turn, participants), self._share_with_next)
        while (participant := queue.pop()) is not None:
            if self._try_grow(participant) and participant.larger() is not None and not participant.spec.retries:
                queue.push(_turn(participant))

    def _share_with_next(self, participant: ParticipantState) -> int:
        """The share that its tenant would have with its next step; with tenants only, because all shares are 0 without.

        A step beyond the borrowing limit adds nothing: its turn is soon, it is rejected, and smaller steps of its tenant follow.
        """
        tenant = participant.tenant
        step = next_step(self.state, participant) if self.state.tenants.has_any else None
        return tenant.share if step is None or tenant.shortfall(step.wanted) else tenant.share_with(step.wanted)

    def _try_grow(self, participant: ParticipantState) -> bool:
        """Grant or reserve its next allowed size; False, with the rejection recorded, if that is not possible."""
        step = next_step(self.state, participant)
        if step is None:
            return False
        if not participant.spec.may_grow and _grows_soon(participant):
            return self._reserve_step(step)
        rejection = self._grow_by(step)
        if rejection is None:
            self._rejected.clear()
            return True
        self.state.rejections[participant.spec.id] = rejection
        if self.state.tenants.has_any and rejection.kind == INSUFFICIENT:
            lowest = self._short.setdefault(participant.instances.pod.pool, {})
            name, share = participant.tenant.spec.name, participant.tenant.share_with(step.wanted)
            lowest[name] = min(share, lowest.get(name, share))
        return False

    def _try_place(self, step: GrowthStep) -> list[Placement] | Rejection:
        """Place the step on free capacity, or return why it does not fit; no kind of step is tried twice in vain."""
        placements = self._rejected.get(step.kind) or try_step(self.state, step)
        if isinstance(placements, Rejection):
            self._rejected[step.kind] = placements
        return placements

    def _reserve_step(self, step: GrowthStep) -> bool:
        """Reserve the capacity of the step until the participant's cooldown ends; False if it does not fit."""
        participant = step.participant
        if isinstance(self._try_place(step), Rejection):
            return False
        self.state.charge(step.participant, step.needs)
        self.kept.sizes_before.setdefault(participant.rank, (participant, participant.size))
        participant.size = step.after
        self._rejected.clear()
        return True

    def _grow_by(self, step: GrowthStep) -> Rejection | None:
        """Grant the step, or return why not, with nothing changed."""
        participant = step.participant
        is_now = fits_before_release(self.state, step)
        placements = self._try_place(step)
        if isinstance(placements, Rejection):
            return None if self._try_preempt(step, placements) else placements
        nodes = [node.name for pods, node, _ in placements if pods is participant.instances]
        self.state.charge(step.participant, step.needs)
        is_released = is_now and all(is_free for _, _, is_free in placements)
        participant.record_growth(step.after, GROWING, nodes, is_released=is_released)
        return None

    # --- from donors ---------------------------------------------------------------------------------------------------

    def _try_preempt(self, step: GrowthStep, rejection: Rejection) -> bool:
        """Take the step from donors and grant it; False, with nothing changed, if no donors can give it."""
        participant = step.participant
        if not participant.spec.takes_by_rebalancing or rejection.quota:
            return False
        kind = (*step.kind, participant.spec.priority)
        if participant.score >= self._hopeless.get(kind, 1 << SCORE_BITS + 1):
            return False
        claim = Claim(Scope.GROWTH, participant.spec.priority, tuple(step.needs), participant, self.gap)
        victims_per_instance = self.state.snapshot.options.victims_per_instance
        share = participant.tenant.share
        attempt = self._attempt(claim, victims_per_instance * (step.after - participant.size))
        if attempt is not None and (self._is_contested(attempt) or self._is_reclaimed_next(step, attempt, share)):
            attempt.undo()
            attempt = None
        if attempt is None:
            self._hopeless[kind] = participant.score
            return False
        self.state.charge(step.participant, step.needs)
        shrink_donors(attempt, REBALANCED, for_id=participant.spec.id)
        nodes = [node.name for pods, node, _ in attempt.placements if pods is participant.instances]
        participant.record_growth(step.after, REBALANCED, nodes, is_released=False)
        self.has_preempted = True
        return True

    def _attempt(self, claim: Claim, max_victims: int) -> Preemption | None:
        """The attempt that succeeded. With tenants many may give: the first few are tried first, because looking at all costs time."""
        donors = [] if claim.participant is None else list(self._candidates(claim.participant))
        is_many = self.state.tenants.has_any and len(donors) > _FEW
        for some in (donors[:_FEW], donors) if is_many else (donors,):
            attempt = Preemption(self.state, claim, max_victims, some)
            if some and attempt.try_preempt():
                return attempt
        return None

    def _candidates(self, receiver: ParticipantState) -> Iterator[ParticipantState]:
        """Participants that might give to the receiver: a superset, so that most need not be looked at."""
        if not self._by_lead:
            willing = (each for each in self.state.participants if each.spec.rebalances and each.spec.may_shrink)
            for each in sorted(willing, key=lambda each: (each.spec.priority, -each.began_at)):
                self._by_lead.setdefault(each.tenant.spec.name, []).append(each)
                if self.state.tenants.has_any:
                    counted = each.requested.intersection(each.tenant.totals)
                    self._by_counted.setdefault(each.tenant.spec.name, {}).setdefault(counted, []).append(each)
        if self.state.tenants.has_any:
            yield from self._candidates_of_other_tenants(receiver)
        priority, score = receiver.spec.priority, receiver.score
        for donor in self._by_lead.get(receiver.tenant.spec.name, ()):
            is_lower = donor.spec.priority < priority
            is_far = is_lower or receiver.has_gpus or score < far_behind(donor.began_at, self.gap)
            if donor.spec.priority > priority or not is_far:
                break
            yield donor

    def _candidates_of_other_tenants(self, receiver: ParticipantState) -> Iterator[ParticipantState]:
        """Those of other tenants, the highest shares first.

        All of tenants that borrow what its own is guaranteed, or have a higher share; of the others those that have
        nothing that counts for tenants of what it needs.
        """
        own, wanted = receiver.tenant, receiver.requested
        guaranteed = own.within_nominal(()) & wanted
        for tenant in self.state.tenants.by_share():
            if tenant is own:
                continue
            name = tenant.spec.name
            is_ahead = own.share < far_behind(tenant.share, self.gap)
            if is_ahead or any(tenant.used[number] > tenant.nominal[number] for number in guaranteed):
                yield from self._by_lead.get(name, ())
                continue
            for counted, donors in self._by_counted.get(name, {}).items():
                if counted.isdisjoint(wanted):
                    yield from donors

    def _is_contested(self, attempt: Preemption) -> bool:
        """Whether a pod that has no node would take what is freed before the receiver has its pods."""
        if self._waiting is None:
            participants = (
                pods
                for participant in self.state.participants
                if participant.has_started
                for pods in participant.all_pods()
            )
            external_pods = (external.pods for external in self.state.external_pods)
            self._waiting = [pods for pods in (*participants, *external_pods) if pods.unplaced]
        nodes = {node.index: node for _, node, _ in attempt.placements}
        for node in nodes.values():
            free = list(node.free_soon)
            for pods, where, _ in attempt.placements:
                if where is node:
                    for number, amount in pods.pod.requests:
                        free[number] += amount
            for pods in self._waiting:
                if node.index in pods.pod.order.position_of and fits(pods.pod.requests, free):
                    return True
        return False

    def _is_reclaimed_next(self, step: GrowthStep, attempt: Preemption, share: int) -> bool:
        """Whether another tenant, for whose step there was no capacity, would reclaim it: the tenant borrows more with it.

        Only tenants that had their turn before count.

        `share` is the one before. The donors belong to the same tenant; those of other tenants compare the shares themselves.
        """
        tenant = step.participant.tenant
        share_with_step = tenant.share_with(step.wanted)
        if share_with_step <= share or any(donor.tenant is not tenant for donor in attempt.donors):
            return False
        short = self._short.get(step.participant.instances.pod.pool, {})
        return any(lowest < share_with_step for name, lowest in short.items() if name != tenant.spec.name)

    # --- participants that rest ----------------------------------------------------------------------------------------

    def explain_resting(self) -> None:
        """Report missing capacity for a resting participant without any: a reason that changes with rests is noise."""
        resting = []
        for participant in self.state.participants:
            rejection = self.state.rejections.get(participant.spec.id)
            is_resting = rejection is not None and rejection.kind == COOLING_DOWN and not rejection.needs
            if is_resting and participant.rank not in self.kept.sizes_before:
                resting.append(participant)
        best = _best_off(self.state) if resting else {}
        for participant in resting:
            _record_missing_capacity(self.state, participant, best.get(participant.spec.priority, 0))


def _turn(participant: ParticipantState) -> Turn:
    """GPUs first, then the least fulfilled."""
    return -participant.spec.priority, not participant.has_gpus, participant.score, participant.rank, participant


def _best_off(state: AllocationState) -> dict[int, int]:
    """Priority -> the highest score that a participant would keep after one step down for a less fulfilled one."""
    best: dict[int, int] = {}
    for participant in state.participants:
        smaller = participant.smaller()
        if participant.spec.rebalances and participant.spec.is_scaling_enabled and smaller is not None:
            best[participant.spec.priority] = max(best.get(participant.spec.priority, 0), participant.score_if(smaller))
    return best


def _record_missing_capacity(state: AllocationState, participant: ParticipantState, best: int) -> None:
    """Report missing capacity, unless rebalancing would serve it: then only its cooldown has to end."""
    step = next_step(state, participant)
    if step is None or (participant.spec.takes_by_rebalancing and best >= participant.score_if(step.after)):
        return
    placements = try_step(state, step)
    if isinstance(placements, Rejection):
        state.rejections[participant.spec.id] = placements
    else:
        state.forget(placements)


def _check_can_grow(state: AllocationState, participant: ParticipantState) -> bool:
    """Whether it takes part in growth; records the rejection if pods without a node or a cooldown prevent that."""
    spec = participant.spec
    if participant.is_waiting or participant.is_released or not participant.has_started:
        return False
    if not spec.is_scaling_enabled or participant.larger() is None:
        return False
    if any(pods.unplaced for pods in participant.all_pods()):
        unplaced = tuple((pods.pod, pods.unplaced) for pods in participant.all_pods() if pods.unplaced)
        state.rejections.setdefault(spec.id, Rejection(INSUFFICIENT, needs=unplaced))
        return False
    if not spec.may_grow:
        state.rejections[spec.id] = Rejection(COOLING_DOWN)
        return False
    return True


def _is_under_way(state: AllocationState, participant: ParticipantState) -> bool:
    """Whether it would grow as soon as its last resize is carried out, or its cooldown has ended: others would take its share."""
    rejection = state.rejections.get(participant.spec.id)
    is_resting = rejection is not None and rejection.kind == COOLING_DOWN and not rejection.needs
    return is_resting and _grows_soon(participant) and not participant.segments


def _grows_soon(participant: ParticipantState) -> bool:
    return participant.spec.grows_soon or not participant.spec.is_settled
