"""Reservations: nodes that the first participant in line keeps while it waits for its minimum.

A minimum is granted as a whole and is never reclaimed, so a large gang would wait for ever while smaller ones behind it
fit into whatever becomes free. In each pool of nodes, the first participant below its minimum for which the cluster is
large enough gets a reservation: minimums behind it get nothing that it needs. Growth ignores reservations, so that no capacity is idle while a participant can grow; so do pods
that exist already, because kube-scheduler does.

A reservation lapses after a while, and returns later (`Participant.is_reservation_lapsed`). Mutable, local to one call of
`allocate`; called by `minimums.py` (TJ §3 row 10; FD:SH-B9).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import TypeAlias

from raytide.fairshare.algorithm.capacity_index import Requests, Vector, fits
from raytide.fairshare.algorithm.donors import Claim, Scope, groups_of, may_give
from raytide.fairshare.algorithm.participant_state import ParticipantState, Pods
from raytide.fairshare.algorithm.placement import NodeCapacity, count_that_fits
from raytide.fairshare.algorithm.state import AllocationState, Placement

Candidate: TypeAlias = tuple[bool, tuple[int, ...], int, NodeCapacity]
"""Order of nodes: those that the last plan reserved first; then what a pod would lack there of each resource, scarce ones
first; then the rank of the node."""


@dataclass(eq=False, slots=True)
class Reservations:
    """The reservations of one plan."""

    state: AllocationState
    _first_in: dict[int, ParticipantState] = field(default_factory=dict)
    """Pool -> the participant that has a reservation there."""
    _reserved: list[Placement] = field(default_factory=list)
    _is_enforced: bool = False
    _emptied: dict[int, Vector] | None = None
    """Capacity of each node without pods of participants; pods of other workloads count as soon as they are placed."""
    _too_large: set[tuple[tuple[int, int], ...]] = field(default_factory=set)
    """Needs for which the cluster is not large enough."""

    def first_in_line(self, needs: Iterable[tuple[Pods, int]]) -> ParticipantState | None:
        """The participant with a reservation in a pool where the needs are."""
        return next((self._first_in[pods.pod.pool] for pods, _ in needs if pods.pod.pool in self._first_in), None)

    def is_behind(self, needs: Iterable[tuple[Pods, int]]) -> bool:
        """Whether a reservation is withheld from these needs now."""
        return self._is_enforced and self.first_in_line(needs) is not None

    def enforce(self) -> None:
        """Withhold what is reserved from claims."""
        if not self._is_enforced:
            self._is_enforced = True
            for pods, node, _ in self._reserved:
                self._put(pods, node)

    def lift(self) -> None:
        """Give it back."""
        if self._is_enforced:
            self._is_enforced = False
            self.state.forget(self._reserved)

    def subtract_external(self, pods: Pods) -> None:
        """Subtract pods of another workload that have just been placed: no later reservation has their capacity."""
        if self._emptied is not None:  # else they are placed already when it is computed
            for name, number in pods.where.items():
                _decrease(self._emptied[self.state.capacity.by_name[name].index], pods.pod.requests, number)

    def reserve(self, participant: ParticipantState, needs: list[tuple[Pods, int]]) -> tuple[str, ...]:
        """Reserve nodes for the participant, if its pools have no reservation yet; returns their names, in order.

        The nodes that the last plan reserved for it, otherwise those where it lacks least: if a reservation moved whenever
        another node lacked less, participants behind it would take the nodes that it left. It has none if the cluster could
        not hold it without other participants either.
        """
        key = tuple((pods.pod.number, count) for pods, count in needs)
        if participant.spec.is_reservation_lapsed or self.first_in_line(needs) is not None or key in self._too_large:
            return ()
        kept = frozenset(participant.spec.reserved_nodes)
        found = self._chosen(participant, needs, kept)
        if found is None and kept:  # not on these nodes together with others, any more
            found = self._chosen(participant, needs, frozenset())
        if found is None:
            self._too_large.add(key)
            return ()
        for pods, node, _ in found:
            self._put(pods, node)
        self._reserved += found
        self._first_in.update({pods.pod.pool: participant for pods, _ in needs})
        return tuple(sorted({node.name for _, node, _ in found}))

    def _put(self, pods: Pods, node: NodeCapacity) -> None:
        self.state.capacity.put(pods.pod, node)
        self.state.load.spend_requests(pods.pod, 1)
        pods.add(node.name)

    def _chosen(
        self, participant: ParticipantState, needs: list[tuple[Pods, int]], kept: frozenset[str]
    ) -> list[Placement] | None:
        whole = self._without_participants()
        if any(count_that_fits(pods.pod, whole, enough=count) < count for pods, count in needs):
            return None
        emptied = {index: list(vector) for index, vector in whole.items()}
        left = self._with_donors(Claim(Scope.COOLING, participant.spec.priority, tuple(needs), participant))
        chosen: list[Placement] = []
        for pods, count in needs:
            requests = pods.pod.requests
            nodes: list[Candidate] = [
                (node.name not in kept, _lack(requests, left[node.index]), position, node)
                for position, node in enumerate(pods.pod.order.nodes)
                if fits(requests, emptied[node.index])
            ]
            heapify(nodes)
            for _ in range(count):
                if not nodes:
                    return None
                is_new, _, position, node = nodes[0]
                chosen.append((pods, node, False))
                for vectors_of in (left, emptied):
                    _decrease(vectors_of[node.index], requests)
                if fits(requests, emptied[node.index]):
                    heapreplace(nodes, (is_new, _lack(requests, left[node.index]), position, node))
                else:
                    heappop(nodes)
        return chosen

    def _with_donors(self, claim: Claim) -> list[Vector]:
        """Capacity of each node if all donors of the claim shrank to their minimums."""
        nodes = self.state.capacity.node_capacities
        left = [list(node.free_soon) for node in nodes]
        groups = groups_of(self.state.participants).items()
        donors = [donor for group, members in groups if may_give(group, claim) for donor in members]
        for donor in donors:
            for pods, at_most in donor.surplus(donor.spec.floor):
                for name, number in pods.where.items():
                    if (node := self.state.capacity.by_name.get(name)) is not None:
                        _decrease(left[node.index], pods.pod.requests, -min(number, at_most))
        return left

    def _without_participants(self) -> dict[int, Vector]:
        if self._emptied is None:
            self._emptied = {
                index: list(node.free_soon) for index, node in enumerate(self.state.capacity.node_capacities)
            }
            capacity = self.state.capacity
            for participant in self.state.participants:
                cores = [(capacity.pod(core.shape), core.placed) for core in participant.spec.core]
                for pod, where in (*cores, *((pods.pod, pods.where) for pods in participant.all_pods())):
                    for name, number in where.items():
                        if name in capacity.by_name:
                            _decrease(self._emptied[capacity.by_name[name].index], pod.requests, -number)
        return self._emptied


def _lack(requests: Requests, free: Vector) -> tuple[int, ...]:
    return tuple(max(0, amount - max(0, free[number])) for number, amount in requests)


def _decrease(vector: Vector, requests: Requests, times: int = 1) -> None:
    for number, amount in requests:
        vector[number] -= amount * times
