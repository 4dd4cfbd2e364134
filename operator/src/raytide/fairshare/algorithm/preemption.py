"""Preemption: the fewest instances that must go so that a claim gets all it needs.

Pods take free capacity first, also such as other pods are about to leave. For each pod that finds none, the node is
chosen where it costs the tenant with the highest share, the lowest priority, then the fewest instances, then where most of the
other pods fit too, then the best-off donors; `donors.py` says who gives to whom. Victims are instances on that node. A donor with
pods that have no node loses these first, because kube-scheduler would give them what is freed. At the end, steps that turned out not to be needed are undone. All or
nothing: if the claim does not get everything, or costs more than it may, the state is as before (TJ §3 rows 7, 8, 12,
16; FD:SH-B3). Called by `minimums.py` and `grow.py`.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, TypeAlias

from raytide.fairshare.algorithm.budgets import Shortfall
from raytide.fairshare.algorithm.capacity_index import Vector, fits
from raytide.fairshare.algorithm.donors import Claim, Scope, far_behind, minimum_size
from raytide.fairshare.algorithm.model import ParticipantId
from raytide.fairshare.algorithm.participant_state import ParticipantState, Pods, smaller_size
from raytide.fairshare.algorithm.placement import NodeCapacity, PodShape
from raytide.fairshare.algorithm.state import AllocationState, Placement

_UNPLACED, _PENDING, _ORDERED, _CHOSEN = range(4)
"""Where a leaving pod comes from: without a node, assigned in this plan, the next of a known order, or chosen here."""

_UNLIMITED: Final = 1 << 60
_PRIORITY_BITS: Final = 33
"""More than the difference of two priorities needs."""

Gone: TypeAlias = tuple[Pods, str, int, int]
"""The pods, the node, how many, and which of the four kinds; more than one only without a node."""
Gains: TypeAlias = dict[int, int]
"""Resource -> what becomes free on one node."""
Cost: TypeAlias = tuple[int, int, int, int, int]
"""Highest level of a donor (`_level`), number of instances, how many of the claim's pods fit then (negated), lowest score of a donor
(negated, as in `Turn`), rank of the node."""
Turn: TypeAlias = tuple[int, int, int, ParticipantState]
"""Order of donors: lower level, higher score, larger and younger first (TJ §3 row 8); no two have the same rank."""


@dataclass(eq=False, slots=True)
class ReleasedStep:
    """One step that a donor shrinks."""

    donor: ParticipantState
    count: int
    """By how many instances it shrinks."""
    gone: list[Gone] = field(default_factory=list)

    @property
    def is_of_waiting_pods(self) -> bool:
        """Whether only instances without a node leave."""
        return all(source == _UNPLACED for *_, source in self.gone)

    @property
    def is_any_order(self) -> bool:
        """Whether it may be undone before later steps of the same donor: a single instance that could be any."""
        has_single_steps = self.donor.companions is None and not self.donor.spec.sizes and self.donor.spec.step == 1
        return has_single_steps and len(self.gone) == 1 and self.gone[0][-1] == _CHOSEN

    @property
    def nodes(self) -> list[str]:
        """Nodes that instances leave; not those of instances that have a node in this plan only."""
        return [
            name
            for pods, name, _, source in self.gone
            if pods is self.donor.instances and source in (_ORDERED, _CHOSEN)
        ]


@dataclass(frozen=True, slots=True)
class _Option:
    """What has to go from one node for one more pod, and what it costs."""

    cost: Cost
    steps: tuple[tuple[ParticipantState, int], ...]
    """Donors, and by how many steps each shrinks."""


@dataclass(eq=False, slots=True)
class Preemption:
    """An attempt: the steps taken and the pods placed so far."""

    state: AllocationState
    claim: Claim
    max_victims: int = _UNLIMITED
    """How many instances with a node it may cost."""
    candidates: Sequence[ParticipantState] | None = None
    """All that may be donors; None: every participant."""
    steps: list[ReleasedStep] = field(default_factory=list)
    placements: list[Placement] = field(default_factory=list)
    _gave_too_much: bool = False
    """Whether donors of one tenant gave more together than the tenant may have to give."""
    _has_relieved: bool = False
    """Whether a donor shrank for a sum, and not for a node."""
    _minimum_sizes: dict[int, int] = field(default_factory=dict)
    """Rank of a donor -> the smallest size to which it shrinks for this claim."""
    _queues: dict[int, list[tuple[Cost, int]]] = field(default_factory=dict)
    """Number of a shape -> nodes by cost; a cost is a lower bound until it is computed again."""

    @property
    def _is_leaves_last(self) -> bool:
        """Whether the instance that leaves last counts like any other."""
        return self.claim.scope is Scope.LEAVES_LAST

    @property
    def victims(self) -> int:
        """How many instances with a node it costs so far."""
        return sum(step.count for step in self.steps if not step.is_of_waiting_pods)

    @property
    def donors(self) -> list[ParticipantState]:
        """The participants that shrink, each once."""
        return sorted({id(step.donor): step.donor for step in self.steps}.values(), key=lambda donor: donor.rank)

    def left_last(self) -> Iterator[tuple[ParticipantId, str]]:
        """The donors whose instance that leaves last has left, each with its node."""
        for donor in self.donors:
            node = donor.instances.leaves_last
            if node and node not in donor.instances.where:
                yield donor.spec.id, node

    def try_preempt(self) -> bool:
        """Preempt donors and place everything within all limits; if that fails, change nothing and return False."""
        self._accept_excess()
        if self._try_take_all() and self._try_fit_limits() and not self._gave_too_much:
            self._undo_unneeded()
            if self.victims <= self.max_victims:
                return True
        self.undo()
        return False

    def try_place(self) -> bool:
        """Place everything without preemption; if it does not all fit, place nothing and return False."""
        participant = self.claim.participant
        is_allowed = participant is None or participant.tenant.shortfall(self.claim.additional) is None
        if is_allowed and all(not self._place_and_count_missing(pods, count) for pods, count in self.claim.needs):
            return True
        self.undo()
        return False

    def undo(self) -> None:
        """Undo everything."""
        self.state.forget(self.placements)
        for step in reversed(self.steps):
            self._restore(step)
        self.placements, self.steps, self._gave_too_much = [], [], False

    def _try_take_all(self) -> bool:
        for pods, count in self.claim.needs:
            missing = self._place_and_count_missing(pods, count)
            if missing and self.claim.scope is not Scope.GROWTH:
                self._release_waiting(pods.pod)
            while missing:
                if self.victims > self.max_victims or not self._preempt_for(pods.pod, missing):
                    return False
                missing = self._place_and_count_missing(pods, missing)
        return True

    def _place_and_count_missing(self, pods: Pods, count: int) -> int:
        """Place as many as fit; returns how many are missing."""
        placed = self.state.place(pods, count)
        self.placements += placed
        return count - len(placed)

    def _try_fit_limits(self) -> bool:
        """Whether the tenant's limits and the load limit allow the claim, donors having shrunk until they do."""
        participant = self.claim.participant
        if participant is None:
            return True
        while (short := participant.tenant.shortfall(self.claim.additional)) is not None:
            if not self._try_relieve(short, [each for each in self._donors() if each.tenant is participant.tenant]):
                return False
        pools = {pods.pod.pool for pods, _ in self.claim.needs}  # a sum is that of one pool (FD:SH-B8)
        while (short := self._load_shortfall()) is not None:
            donors = [each for each in self._donors() if each.instances.pod.pool in pools]
            if not self._try_relieve(short, donors, is_of_usable_nodes=True):
                return False
        return True

    def _accept_excess(self) -> None:
        """No donor shrinks for what minimums and pods of other workloads use beyond the load limit."""
        if self.claim.scope is Scope.GROWTH:
            for pods, _ in self.claim.needs:
                self.state.load.accept_excess(pods.pod)

    def _load_shortfall(self) -> Shortfall | None:
        """What the load limit lacks for the growth, which has its nodes; minimums are not limited."""
        participant = self.claim.participant
        if participant is None or self.claim.scope is not Scope.GROWTH:
            return None
        uses_limits = participant.spec.uses_limits
        return self.state.load.shortfall(self.claim.additional, uses_limits=uses_limits, is_placed=True)

    def _try_relieve(
        self, short: Shortfall, donors: Iterable[ParticipantState], *, is_of_usable_nodes: bool = False
    ) -> bool:
        """Shrink the first of the donors by one step, for a sum; False if none can give it."""
        resource = self.state.capacity.number_of[short.resource]
        donors = [each for each in donors if each.is_charged(resource) and self._can_step(each)]
        if is_of_usable_nodes:
            donors = [each for each in donors if each.instances.unplaced or self._usable_node(each)]
        if not donors or self.victims > self.max_victims:
            return False
        *_, donor = min(self._turn(donor, donor.score) for donor in donors)
        self._has_relieved = True
        self._take(donor, self._usable_node(donor) if is_of_usable_nodes else "", donor.smaller())
        return True

    def _usable_node(self, donor: ParticipantState) -> str:
        """The usable node that an instance of the donor leaves next; empty if there is none."""
        pods, usable = donor.instances, self.state.capacity.by_name
        leaving = [name for name in pods.where if name in usable and _available(pods, name) > 0]
        return min(leaving, key=lambda name: (pods.where[name], name), default="")

    # --- who gives -----------------------------------------------------------------------------------------------------

    def _minimum_size_of(self, donor: ParticipantState) -> int:
        minimum = self._minimum_sizes.get(donor.rank)
        if minimum is None:
            minimum = self._minimum_sizes[donor.rank] = minimum_size(donor, self.claim)
        return minimum

    def _donors(self) -> list[ParticipantState]:
        """Those that have something to give for this claim."""
        candidates = self.state.participants if self.candidates is None else self.candidates
        return [donor for donor in candidates if self._minimum_size_of(donor) < donor.size]

    def _can_step(self, donor: ParticipantState) -> bool:
        after = donor.smaller()
        return after is not None and after >= self._minimum_size_of(donor)

    def _gains(self, donor: ParticipantState, name: str, steps: int) -> Gains:
        """What so many steps of the donor free on the node; empty if it does not give so many."""
        after = _after(donor, steps)
        if not self._minimum_size_of(donor) <= after < donor.size:
            return {}
        gains: Gains = {}
        for pods, surplus in donor.surplus(after):
            count = min(surplus - pods.unplaced, _available(pods, name, is_last=after == 0 or self._is_leaves_last))
            for number, amount in pods.pod.requests if count > 0 else ():
                gains[number] = gains.get(number, 0) + amount * count
        return gains

    # --- the cheapest node ---------------------------------------------------------------------------------------------

    def _preempt_for(self, pod: PodShape, missing: int) -> bool:
        """Free one node for one of the missing ones; whether there is such a node."""
        queue = self._queue(pod, missing)
        while queue:
            known, position = queue[0]
            option = self._option(pod, pod.order.nodes[position], position, missing)
            if option is None:
                heappop(queue)
            elif option.cost > known:
                heapreplace(queue, (option.cost, position))
            elif self._try_option(pod, pod.order.nodes[position], option):
                return True
            else:
                heappop(queue)
        return False

    def _queue(self, pod: PodShape, missing: int) -> list[tuple[Cost, int]]:
        """Nodes with instances that may go, by the least that it can cost there."""
        queue = self._queues.get(pod.number)
        if queue is None:
            lowest_cost: dict[int, tuple[int, int]] = {}
            max_gains: dict[int, Gains] = {}
            donors = self._donors()
            useful = self._useful(pod, donors)
            for donor in donors if useful else ():
                turn = self._turn(donor, donor.score)[:2]
                for pods, at_most in donor.surplus(self._minimum_size_of(donor)):
                    requests = pods.pod.requests
                    for position, number in self._positions(
                        pod, pods.where.items()
                    ):  # of every pod of every donor: P10
                        if position not in useful:
                            continue
                        gains = max_gains.get(position)
                        if gains is None:
                            gains = max_gains[position] = {}
                            lowest_cost[position] = turn
                        elif turn < lowest_cost[position]:
                            lowest_cost[position] = turn
                        count = min(at_most, number)
                        for resource, amount in requests:
                            gains[resource] = gains.get(resource, 0) + amount * count
            nodes = pod.order.nodes
            queue = [
                ((level, 1, -missing, score, position), position)
                for position, (level, score) in lowest_cost.items()
                if _fits_with(pod, nodes[position].free_soon, [max_gains[position]])
            ]
            self._queues[pod.number] = queue
            heapify(queue)
        return queue

    def _useful(self, pod: PodShape, donors: Iterable[ParticipantState]) -> Collection[int]:
        """Nodes for which donors matter: those with enough of the scarcest resource, where no donor has any of it."""
        scarce, amount = pod.requests[0]
        nodes = pod.order.nodes
        if any(scarce in donor.requested for donor in donors):
            return range(len(nodes))
        return {position for position, node in enumerate(nodes) if node.free_soon[scarce] >= amount}

    def _turn(self, donor: ParticipantState, score: int) -> Turn:
        """One that the plan scales down already counts as ahead by the gap, so that few are resized."""
        ahead = score - far_behind(score, self.state.snapshot.options.rebalance_gap) if donor.has_given else 0
        return _level(donor), -score - ahead, -donor.rank, donor

    def _positions(self, pod: PodShape, where: Iterable[tuple[str, int]]) -> Iterator[tuple[int, int]]:
        """The places of these nodes among those that the shape may use, each with its number."""
        by_name, position_of = self.state.capacity.by_name, pod.order.position_of
        for name, number in where:
            node = by_name.get(name)
            if node is not None and node.index in position_of:
                yield position_of[node.index], number

    def _option(self, pod: PodShape, node: NodeCapacity, position: int, missing: int) -> _Option | None:
        """What has to go from this node for one of the missing ones; None if all that may go is not enough."""
        owners = {pods.owner.rank: pods.owner for pods in self.state.pods_on(node.name) if pods.owner is not None}
        donors = [donor for donor in owners.values() if self._minimum_size_of(donor) < donor.size]
        turns = sorted(self._turn(donor, donor.score) for donor in donors)
        steps = self._single(pod, node, turns) or self._several(pod, node, turns)
        if not steps:
            return None
        taken = tuple((owners[number], count) for number, count in steps.items())
        level = max(_level(donor) for donor, _ in taken)
        instances = sum(donor.size - _after(donor, count) for donor, count in taken)
        lowest = max(self._turn(donor, donor.score)[1] for donor, _ in taken)
        gains = (self._gains(donor, node.name, count) for donor, count in taken) if missing > 1 else ()
        fitting = _count_fitting(pod, node.free_soon, gains, missing)
        return _Option((level, instances, -fitting, lowest, position), taken)

    def _single(self, pod: PodShape, node: NodeCapacity, turns: list[Turn]) -> dict[int, int]:
        """The donor one step of which is enough: the fewest instances, then in the order of donors; empty if there is none."""
        found = [
            (_level(donor), donor.size - _after(donor, 1), position, donor)
            for position, (*_, donor) in enumerate(turns)
            if _fits_with(pod, node.free_soon, [self._gains(donor, node.name, 1)])
        ]
        return {min(found)[-1].rank: 1} if found else {}

    def _several(self, pod: PodShape, node: NodeCapacity, turns: list[Turn]) -> dict[int, int]:
        """Steps of several donors, the best-off first and scored again after each; empty if they are not enough."""
        queue = list(turns)
        steps: dict[int, int] = {}
        gains: dict[int, Gains] = {}
        while queue:
            *_, donor = heappop(queue)
            count = steps.get(donor.rank, 0) + 1
            before, after = gains.get(donor.rank, {}), self._gains(donor, node.name, count)
            short = _short(pod, node.free_soon, gains.values())
            if all(after.get(number, 0) <= before.get(number, 0) for number in short):
                continue
            steps[donor.rank], gains[donor.rank] = count, after
            if _fits_with(pod, node.free_soon, gains.values()):
                return self._without_spare(pod, node, {turn[-1].rank: turn[-1] for turn in turns}, steps, gains)
            heappush(queue, self._turn(donor, donor.score_if(_after(donor, count))))
        return {}

    def _without_spare(
        self,
        pod: PodShape,
        node: NodeCapacity,
        donors: dict[int, ParticipantState],
        steps: dict[int, int],
        gains: dict[int, Gains],
    ) -> dict[int, int]:
        """The steps without those that are not needed; those of the donors that came last go first."""
        for number in reversed(list(steps)):
            while steps[number]:
                fewer = self._gains(donors[number], node.name, steps[number] - 1)
                if not _fits_with(pod, node.free_soon, [fewer, *(gains[other] for other in gains if other != number)]):
                    break
                steps[number], gains[number] = steps[number] - 1, fewer
        return {number: count for number, count in steps.items() if count}

    def _try_option(self, pod: PodShape, node: NodeCapacity, option: _Option) -> bool:
        """Take the steps; False, with nothing changed, if donors of one tenant would give more together than it has to."""
        begin = len(self.steps)
        for donor, count in option.steps:
            for _ in range(count):
                self._take(donor, node.name, donor.smaller())
        if self._gave_too_much:
            while len(self.steps) > begin:
                self._restore(self.steps.pop())
            self._gave_too_much = False
            self._minimum_sizes.clear()
            return False
        elsewhere = {name: 1 for step in self.steps[begin:] for _, name, _, _ in step.gone if name != node.name}
        for position, _ in self._positions(
            pod, elsewhere.items()
        ):  # what is freed there as well may make these nodes cheaper
            heappush(self._queues[pod.number], ((option.cost[0], 0, 0, 0, position), position))
        return True

    # --- one step ------------------------------------------------------------------------------------------------------

    def _release_waiting(self, pod: PodShape) -> None:
        """Remove pods without a node that compete for what will be freed; surplus instances of donors only."""
        for donor in self._donors():
            if donor.instances.unplaced and _competes(donor, pod):
                self._take(donor, "", donor.size_without_unplaced(donor.size - self._minimum_size_of(donor)))

    def _take(self, donor: ParticipantState, name: str, after: int | None) -> None:
        """Shrink the donor to `after`, on that node as far as possible; None: it has no such size."""
        if after is None:
            return
        if self.state.tenants.has_any:  # what it may give depends on what others of its tenant have given
            self._gave_too_much |= after < minimum_size(donor, self.claim)
            self._minimum_sizes.clear()
        step = ReleasedStep(donor, donor.size - after)
        for pods, count in donor.surplus(after):
            step.gone += _leave(self.state, pods, count, name, is_last=self._is_leaves_last)
        donor.size = after
        self.steps.append(step)

    def _restore(self, step: ReleasedStep) -> None:
        step.donor.size += step.count
        for pods, name, count, source in reversed(step.gone):
            self.state.spend(pods, count)
            if source == _UNPLACED:
                pods.unplaced += count
                continue
            pods.add(name)
            node = self.state.capacity.by_name.get(name)
            if node is not None:
                self.state.load.spend_requests(pods.pod, 1)
                self.state.capacity.keep(pods.pod, node)
            else:
                self.state.load.spend_limits(pods.pod, -1)
            if source == _PENDING:
                pods.pending.append(name)
            elif source == _ORDERED:
                pods.leaves_first.append(name)

    # --- what was not needed -------------------------------------------------------------------------------------------

    def _undo_unneeded(self) -> None:
        """Undo steps that turned out not to be needed, the last ones first; what a sum needed is not judged by nodes."""
        if self._has_relieved:
            return
        kept: list[ReleasedStep] = []
        settled: set[int] = set()
        for step in sorted(self.steps, key=lambda step: not step.is_of_waiting_pods)[::-1]:
            is_next = step.donor.rank not in settled or step.is_any_order
            if is_next and (self._is_harmless(step) if step.is_of_waiting_pods and kept else self._fits_beside(step)):
                self._restore(step)
            else:
                settled.add(step.donor.rank)
                kept.append(step)
        self.steps = kept[::-1]

    def _is_harmless(self, step: ReleasedStep) -> bool:
        """Whether the pods without a node fit besides; otherwise they would take what is freed for the claim."""
        return self.state.capacity.find(step.donor.instances.pod) is not None

    def _fits_beside(self, step: ReleasedStep) -> bool:
        """Whether all of it could stay beside the claim's pods."""
        left: dict[int, Vector] = {}
        for pods, name, _, source in step.gone:
            node = self.state.capacity.by_name.get(name)
            if source == _UNPLACED or node is None:
                continue
            vector = left.setdefault(node.index, list(node.free_soon))
            if not fits(pods.pod.requests, vector):
                return False
            for number, amount in pods.pod.requests:
                vector[number] -= amount
        return True


def cut(state: AllocationState, donor: ParticipantState, size: int) -> ReleasedStep:
    """Shrink to that size, wherever the instances are."""
    step = ReleasedStep(donor, donor.size - size)
    step.gone = [*_leave(state, donor.instances, step.count, "")]
    if donor.companions is not None:
        surplus = donor.companions.placed + donor.companions.unplaced - donor.companions_at(size)
        step.gone += _leave(state, donor.companions, surplus, "")
    donor.size = size
    return step


def _leave(state: AllocationState, pods: Pods, count: int, wished: str, *, is_last: bool = False) -> Iterator[Gone]:
    """Remove so many: those without a node at once and first, then one by one, on the wished node if possible."""
    count = max(0, count)
    state.spend(pods, -count)
    unplaced = min(count, max(0, pods.unplaced))
    if unplaced > 0:
        pods.unplaced -= unplaced
        yield pods, "", unplaced, _UNPLACED
    for _ in range(count - unplaced):
        name, source = _next_to_leave(pods, wished, state.capacity.by_name, is_last=is_last)
        pods.remove(name)
        node = state.capacity.by_name.get(name)
        if node is not None:
            state.load.spend_requests(pods.pod, -1)
            state.capacity.release(pods.pod, node)
        else:  # no sum counts what is on a node that is not usable
            state.load.spend_limits(pods.pod, 1)
        yield pods, name, 1, source


def _available(pods: Pods, name: str, *, is_last: bool = False) -> int:
    """How many of these pods can leave the node next; pods assigned in this plan leave before running ones."""
    if pods.pending:
        return pods.pending.count(name)
    if pods.leaves_first:
        return int(pods.leaves_first[-1] == name)
    return pods.where.get(name, 0) - int(name == pods.leaves_last and not is_last)


def _next_to_leave(pods: Pods, wished: str, usable: Container[str], *, is_last: bool) -> tuple[str, int]:
    """Pods assigned in this plan first, then in the participant's order, then the wished node, then the emptiest.

    Nodes that are not usable come before the emptiest: a drain ends the pods there next, and would do so besides.
    """
    if pods.pending:
        if wished in pods.pending:
            pods.pending.remove(wished)
            return wished, _PENDING
        return pods.pending.pop(), _PENDING
    if pods.leaves_first:
        return pods.leaves_first.pop(), _ORDERED
    if _available(pods, wished, is_last=is_last) > 0:
        return wished, _CHOSEN
    order = {name: (_available(pods, name) <= 0, name in usable, pods.where[name], name) for name in pods.where}
    return min(order, key=order.__getitem__), _CHOSEN


def _after(donor: ParticipantState, steps: int) -> int:
    """The size after so many steps down; the present size if there are fewer."""
    size = donor.size
    for _ in range(steps):
        smaller = smaller_size(donor.spec, size)
        if smaller is None:
            return donor.size
        size = smaller
    return size


def _short(pod: PodShape, free: Vector, gains: Iterable[Gains]) -> list[int]:
    """The resources that one more lacks there, with these gains."""
    gains = list(gains)
    return [
        number for number, amount in pod.requests if free[number] + sum(each.get(number, 0) for each in gains) < amount
    ]


def _fits_with(pod: PodShape, free: Vector, gains: Iterable[Gains]) -> bool:
    """Whether one more fits there, with these gains."""
    return not _short(pod, free, gains)


def _count_fitting(pod: PodShape, free: Vector, gains: Iterable[Gains], most: int) -> int:
    """How many more fit there with these gains, at most `most`; one fits for certain."""
    if most == 1:
        return 1
    gains = list(gains)
    amounts = ((free[number] + sum(each.get(number, 0) for each in gains), amount) for number, amount in pod.requests)
    return max(1, min(most, *(there // amount for there, amount in amounts if amount)))


def _level(donor: ParticipantState) -> int:
    """Sort key: the share of the tenant, highest first, then the priority."""
    return donor.spec.priority - (donor.tenant.share << _PRIORITY_BITS)


def _competes(donor: ParticipantState, pod: PodShape) -> bool:
    """Whether its pods without a node may use nodes of the claimant."""
    return not donor.instances.pod.order.position_of.keys().isdisjoint(pod.order.position_of)
