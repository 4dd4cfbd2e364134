"""State of one participant in the course of a plan.

A `ParticipantState` starts from what a participant wants and where its pods are, and moves in steps of allowed sizes: pods without
a node leave first, then those that the participant names first. Each change is kept as a segment: from which size to
which, why, for which participant, and whether the capacity is free already. Mutable, local to one call of `allocate`;
independent of fairness. Rules TJ §3 rows 4, 9, 12; used by `minimums.py` and `grow.py`.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from raytide.api.sharing_record import REBALANCED, RELEASED
from raytide.fairshare.algorithm.model import Participant, ParticipantId
from raytide.fairshare.algorithm.placement import ClusterCapacity, PodShape
from raytide.fairshare.algorithm.tenants import TenantState

SCORE_BITS: Final = 64
"""Two fractions with denominators below 2^31 differ by more than 2^-62, so whole numbers of 2^-64 order them exactly."""


@dataclass(slots=True)
class ResizeStep:
    """One change of size: a shrink, a growth that may be written, or one that has to wait for capacity."""

    before: int
    after: int
    reason: str
    is_released: bool = True
    for_ids: list[ParticipantId] = field(default_factory=list)
    """Participants that reach their minimum with what is released."""
    receivers: list[ParticipantId] = field(default_factory=list)
    """Participants that grow with it."""
    for_pods: list[str] = field(default_factory=list)
    """Pods of other workloads, each by the oldest of its kind."""
    nodes: dict[str, int] = field(default_factory=dict)

    @property
    def is_growth(self) -> bool:
        """Whether the size increases."""
        return self.after > self.before


@dataclass(eq=False, slots=True)
class Pods:
    """Pods of one shape: how many are on each node, how many have none, and which leave first."""

    pod: PodShape
    where: dict[str, int]
    unplaced: int
    """Without a node, both in the cluster and in this plan."""
    to_create: int = 0
    """How many of these have no pod yet."""
    in_vain: int = 0
    """How many of these get no node, whatever the capacity: they hold none."""
    pending: list[str] = field(default_factory=list)
    """Nodes that this plan assigned to pods that have none in the cluster: these leave before running ones."""
    leaves_first: list[str] = field(default_factory=list)
    """Known nodes, the next to leave at the end; empty: any may be chosen."""
    leaves_last: str = ""
    """Node of the instance that leaves after all others."""
    owner: "ParticipantState | None" = None
    """None: pods of another workload."""

    @property
    def placed(self) -> int:
        """How many have a node, in the cluster or in this plan."""
        return sum(self.where.values())

    def add(self, name: str) -> None:
        """Place one more there."""
        self.where[name] = self.where.get(name, 0) + 1

    def remove(self, name: str) -> None:
        """Remove one there."""
        if self.where[name] == 1:
            del self.where[name]
        else:
            self.where[name] -= 1


@dataclass(eq=False, slots=True)
class ParticipantState:
    """One participant in a plan."""

    spec: Participant
    rank: int
    """Its rank among equals: smaller GPU, CPU, memory first, then older, then by id (TJ §3 row 8)."""
    size: int
    instances: Pods
    companions: Pods | None
    cores: list[Pods]
    tenant: TenantState
    has_gpus: bool = False
    """Whether its instances request GPUs."""
    span: int = 0
    """The number of instances above the minimum at which the score is 1: up to the maximum, but at most as many as the
    nodes that it may use could hold if they were empty. A maximum beyond that would only buy a lower score."""
    began_at: int = 0
    """Its score before the plan."""
    segments: list[ResizeStep] = field(default_factory=list)
    pods_to_create: int = 0
    """Instances without a pod, which a quota still has to allow."""
    is_waiting: bool = False
    """Below its minimum, with no victim that could shrink for it."""
    release_message: str = ""
    """Why some of it was released, as a message; empty if nothing was."""
    full_release_message: str = ""
    """The same with the names of other namespaces."""

    def release_message_for(self, reader: str | None) -> str:
        """Why some of it was released, for readers of that namespace; None: with all names."""
        return self.release_message if reader is not None else self.full_release_message

    @property
    def score(self) -> int:
        """The fulfilment score as a whole number; exact to compare."""
        return self.score_if(self.size)

    def score_if(self, size: int) -> int:
        """The score it would have at another size."""
        return ((size - self.spec.floor) << SCORE_BITS) // self.span if self.span > 0 else 1 << SCORE_BITS

    def companions_at(self, size: int) -> int:
        """How many companions go with that size."""
        return 0 if self.spec.companion is None else self.spec.companion.wanted(size)

    @property
    def has_given(self) -> bool:
        """Whether its last change in this plan is a shrink."""
        return bool(self.segments) and not self.segments[-1].is_growth

    @property
    def is_released(self) -> bool:
        """Whether it shrank for its own sake: it does not grow again in the same plan."""
        return self.has_given and not (
            self.segments[-1].for_ids or self.segments[-1].receivers or self.segments[-1].for_pods
        )

    @property
    def has_grown(self) -> bool:
        """Whether its last change in this plan is a growth."""
        return bool(self.segments) and self.segments[-1].is_growth

    @property
    def requested(self) -> frozenset[int]:
        """The resources that its elastic pods request."""
        own = self.instances.pod.resources
        return own if self.companions is None else own | self.companions.pod.resources

    def is_charged(self, resource: int) -> bool:
        """Whether its instances count against the sum of that resource."""
        pod = self.instances.pod
        return any(number == resource for number, _ in (*pod.requests, *pod.limits))

    @property
    def has_started(self) -> bool:
        """Whether it may have pods: a gang has none before it is admitted."""
        return self.size > 0 or not self.spec.is_gang

    @property
    def has_unplaced(self) -> bool:
        """Whether any of its pods has no node."""
        companions = self.companions
        return bool(self.instances.unplaced or self.cores or (companions is not None and companions.unplaced))

    @property
    def is_complete(self) -> bool:
        """Whether it has its minimum, and all its pods have a node."""
        return not self.has_unplaced and self.size >= self.spec.floor

    def larger(self) -> int | None:
        """The next allowed size upwards."""
        return larger_size(self.spec, self.size)

    def smaller(self) -> int | None:
        """The next allowed size downwards."""
        return smaller_size(self.spec, self.size)

    def size_without_unplaced(self, maximum: int) -> int | None:
        """The allowed size after releasing at most `maximum` instances without a node and no other; None if there is none.

        Instances without a node are only numbers: a thousand of them leave as quickly as one.
        """
        if self.companions is not None:
            return None
        after = smallest_size(self.spec, self.size - min(maximum, self.instances.unplaced))
        return after if after < self.size else None

    def all_pods(self) -> Iterator[Pods]:
        """Its pods by shape: those independent of the size, then instances, then companions."""
        yield from self.cores
        yield self.instances
        if self.companions is not None:
            yield self.companions

    def elastic_pods(self) -> Iterator[Pods]:
        """Its pods whose number depends on the size."""
        yield self.instances
        if self.companions is not None:
            yield self.companions

    def surplus(self, minimum: int) -> Iterator[tuple[Pods, int]]:
        """The pods that it gives down to that size, and how many of each."""
        yield self.instances, self.size - minimum
        if self.companions is not None:
            yield self.companions, self.companions_at(self.size) - self.companions_at(minimum)

    def missing_for_minimum(self, pods: Pods) -> int:
        """How many more of these need a node for its minimum."""
        if pods is self.instances:
            return max(0, self.spec.floor - pods.placed)
        return max(0, self.companions_at(self.spec.floor) - pods.placed) if pods is self.companions else pods.unplaced

    # --- decisions -----------------------------------------------------------------------------------------------------

    def record_growth(self, after: int, reason: str, nodes: list[str], *, is_released: bool) -> None:
        """Increase the size; after a growth that has to wait for capacity, every later one waits too."""
        last = self.segments[-1] if self.segments else None
        is_released = is_released and (last is None or (last.is_growth and last.is_released))
        if last is None or not last.is_growth or last.is_released != is_released:
            last = ResizeStep(self.size, self.size, reason, is_released)
            self.segments.append(last)
        for name in nodes:
            last.nodes[name] = last.nodes.get(name, 0) + 1
        last.after = self.size = after

    def record_shrink(
        self,
        count: int,
        reason: str,
        nodes: list[str],
        for_id: ParticipantId | None = None,
        for_pods: Sequence[str] = (),
    ) -> None:
        """Record a shrink of the size, which has changed already; several become one, with the best reason."""
        last = self.segments[-1] if self.segments else None
        if last is None or last.is_growth:
            before = self.size + count if last is None else last.after
            last = ResizeStep(before, before, reason)
            self.segments.append(last)
        for name in nodes:
            last.nodes[name] = last.nodes.get(name, 0) - 1
        if for_id is not None and reason == REBALANCED:
            last.receivers += [for_id] if for_id not in last.receivers else []
            if last.reason in RELEASED:  # not only instances without a node any more
                last.reason = reason
        elif for_id is not None and for_id not in last.for_ids:
            last.reason = reason
            last.for_ids.append(for_id)
        if for_pods:
            last.reason = last.reason if last.for_ids else reason
            last.for_pods.extend(for_pods)
        last.after -= count


def larger_size(participant: Participant, size: int) -> int | None:
    """The smallest allowed size above `size`; None at the maximum, and at a requested size."""
    floor, ceiling = participant.floor, participant.ceiling
    if size >= ceiling:
        return None
    if size < floor:
        return floor
    if participant.grows_to is not None and size >= participant.grows_to:
        return None
    if participant.sizes:
        position = bisect_right(participant.sizes, size)
        is_there = position < len(participant.sizes) and participant.sizes[position] <= ceiling
        return participant.sizes[position] if is_there else None
    begin = _steps_begin(participant)
    after = begin if size < begin else begin + ((size - begin) // participant.step + 1) * participant.step
    return after if after <= ceiling else None


def smaller_size(participant: Participant, size: int) -> int | None:
    """The largest allowed size below `size`; None at the minimum."""
    return None if size <= participant.floor else allowed_size(participant, size - 1)


def smallest_size(participant: Participant, minimum: int) -> int:
    """The smallest allowed size that is not below `minimum`; the maximum if there is none."""
    return (
        participant.floor
        if minimum <= participant.floor
        else larger_size(participant, minimum - 1) or participant.ceiling
    )


def largest_size(participant: Participant) -> int:
    """The largest allowed size: the maximum, unless the sizes are listed or in steps."""
    return allowed_size(participant, participant.ceiling)


def allowed_size(participant: Participant, maximum: int) -> int:
    """The largest allowed size that is not above `maximum`, and at least the minimum."""
    floor, maximum = participant.floor, min(maximum, participant.ceiling)
    if participant.sizes:
        position = bisect_right(participant.sizes, maximum)
        return max(floor, participant.sizes[position - 1]) if position > 0 else floor
    begin = _steps_begin(participant)
    return max(floor, begin + (maximum - begin) // participant.step * participant.step) if maximum >= begin else floor


def _steps_begin(participant: Participant) -> int:
    return participant.floor if participant.step_from is None else participant.step_from


def build_participant_state(
    participant: Participant, rank: int, capacity: ClusterCapacity, tenant: TenantState
) -> ParticipantState:
    """The state of the participant before anything is decided."""
    pod, size = capacity.pod(participant.shape), participant.current
    companion = participant.companion
    instances = _pods(pod, participant.placed, size, [])
    instances.leaves_last = participant.leaves_last
    _set_in_vain(instances, participant, participant.pods_to_create, participant.gated)
    has_started = size > 0 or not participant.is_gang
    companions = None
    if companion is not None:
        count = max(companion.wanted(size), companion.current) if has_started else companion.current
        companions = _pods(
            capacity.pod(companion.shape), companion.placed, count, list(reversed(companion.leaves_first))
        )
        _set_in_vain(companions, participant, companion.to_create, companion.gated)
    cores = []
    for core in participant.core:
        if core.missing > 0:
            cores.append(Pods(capacity.pod(core.shape), {}, core.missing))
            _set_in_vain(cores[-1], participant, core.to_create, core.gated)
    state = ParticipantState(participant, rank, size, instances, companions, cores, tenant, has_gpus=pod.size[0] > 0)
    state.span = _span(participant, pod)
    state.pods_to_create, state.began_at = participant.pods_to_create, state.score
    for pods in state.all_pods():
        pods.owner = state
    return state


def _set_in_vain(pods: Pods, participant: Participant, to_create: int, gated: int) -> None:
    """Which of its pods without a node hold no capacity: gated ones, those that are never created, and those that are doubted."""
    pods.to_create = 0 if participant.is_forbidden else to_create
    rejected = to_create if participant.is_forbidden else 0
    doubted = pods.unplaced - to_create - gated if participant.is_doubted else 0
    pods.in_vain = min(pods.unplaced, gated + rejected + max(0, doubted))


def _span(participant: Participant, pod: PodShape) -> int:
    if not participant.is_elastic:
        return 0
    return max(1, min(participant.ceiling, pod.reachable) - participant.floor)


def _pods(pod: PodShape, placed: Mapping[str, int], count: int, leaves_first: list[str]) -> Pods:
    where = {name: number for name, number in placed.items() if number > 0}
    return Pods(pod, where, max(0, count - sum(where.values())), leaves_first=leaves_first)
