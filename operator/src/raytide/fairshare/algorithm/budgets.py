"""Budgets: limits on growth apart from single nodes.

Two sums: what growth may fill of a pool of usable nodes together, by limits and by requests (TJ §3 rows 5 and 15), and what
the quotas of a namespace still allow (row 14). Growth is checked against both and charged to both; what is below a
minimum is checked against the quota only, and no participant shrinks because a sum is exceeded. Mutable, local to one
call of `allocate`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from raytide.api.pod_requirements import PODS
from raytide.fairshare.algorithm.model import ClusterSnapshot, Node, ParticipantId, Quota
from raytide.fairshare.algorithm.placement import ClusterCapacity, PodShape

_FULL: Final = 100
_LIMITS: Final = "limits."


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What is missing in a sum."""

    resource: str
    wanted: int
    left: int


class LoadBudget:
    """What growth may still fill of the usable nodes of a pool together, by resource.

    A pool is a set of nodes that share no pod with the others (`node_affinity.number_pools`): what is used in one pool
    limits no growth in another one, and nodes that no participant may use count nowhere (FD:SH-B8).
    """

    def __init__(self, snapshot: ClusterSnapshot, capacity: ClusterCapacity) -> None:
        self._names = capacity.resources
        self._percents = [snapshot.options.max_load_percent.get(name, _FULL) for name in capacity.resources]
        self._pods = capacity.number_of[PODS]
        count = max(capacity.pool_of, default=-1) + 2  # the last one: shapes that no node admits, with nothing
        self._bounds = [[0] * len(self._names) for _ in range(count)]
        self._by_limits = [[0] * len(self._names) for _ in range(count)]
        self._by_requests = [[0] * len(self._names) for _ in range(count)]
        self._terminating = [[0] * len(self._names) for _ in range(count)]
        """What terminating pods request; it still counts in both sums."""
        for node, number in zip(capacity.nodes, capacity.pool_of, strict=True):
            self._add(node, number)
        for number, bounds in enumerate(self._bounds):
            for resource, percent in enumerate(self._percents):
                bounds[resource] = bounds[resource] * percent // _FULL
                self._by_limits[number][resource] += bounds[resource]
                self._by_requests[number][resource] += bounds[resource]
        self._is_limited = any(percent < _FULL for percent in self._percents)
        self.has_terminating: Final = any(any(terminating) for terminating in self._terminating)

    def _add(self, node: Node, number: int) -> None:
        bounds, by_limits, by_requests = self._bounds[number], self._by_limits[number], self._by_requests[number]
        terminating = self._terminating[number]
        for resource, name in enumerate(self._names):
            whole, used = node.allocatable.get(name, 0), node.used.get(name, 0)
            # What a node uses beyond its capacity (failed devices, a resize in place that it cannot carry out) limits no other.
            beyond = max(0, used - whole)
            bounds[resource] += whole
            by_limits[resource] -= node.charged.get(name, 0) - beyond
            by_requests[resource] -= used - beyond
            terminating[resource] += node.terminating.get(name, 0)

    def _limits_requests(self, resource: int) -> bool:
        return self._percents[resource] < _FULL and resource != self._pods

    def bound(self, pod: PodShape, name: str) -> int:
        """What growth may fill in the pod's pool at most."""
        return self._bounds[pod.pool][self._names.index(name)]

    def left_by_limits(self, pod: PodShape, name: str) -> int:
        """What is left of that; negative if more is used."""
        return self._by_limits[pod.pool][self._names.index(name)]

    def left_by_requests(self, pod: PodShape, name: str) -> int:
        """The same by requests."""
        return self._by_requests[pod.pool][self._names.index(name)]

    def shortfall(
        self,
        pods: Iterable[tuple[PodShape, int]],
        *,
        uses_limits: bool,
        is_placed: bool = False,
        counts_terminating: bool = False,
    ) -> Shortfall | None:
        """The sum that so many more pods would exceed together; None if they fit.

        If `is_placed`, they are charged by requests already. What terminating pods use counts as left, unless
        `counts_terminating`.
        """
        limits: dict[tuple[int, int], int] = {}
        requests: dict[tuple[int, int], int] = {}
        for pod, count in pods:
            pool = pod.pool
            terminating = self._terminating[-1] if counts_terminating else self._terminating[pool]
            for number, amount in pod.limits if uses_limits else ():
                wanted = limits[pool, number] = limits.get((pool, number), 0) + amount * count
                left = self._by_limits[pool][number] + terminating[number]
                if left < wanted and number != self._pods:
                    return Shortfall(self._names[number], wanted, left)
            for number, amount in pod.requests if self._is_limited else ():
                wanted = requests[pool, number] = requests.get((pool, number), 0) + (0 if is_placed else amount * count)
                left = self._by_requests[pool][number] + terminating[number]
                if left < wanted and self._limits_requests(number):
                    return Shortfall(self._names[number], wanted, left)
        return None

    def accept_excess(self, pod: PodShape) -> None:
        """Let growth fill what is used now in the pod's pool, where that exceeds the limit (TJ:3.15).

        Donors give as much as the receiver takes; none shrinks only because minimums or pods of other workloads exceed the limit.
        """
        pool, terminating = pod.pool, self._terminating[pod.pool]
        for left in (self._by_limits[pool], self._by_requests[pool]):
            for resource, leaving in enumerate(terminating):
                left[resource] = max(left[resource], -leaving)

    def spend_limits(self, pod: PodShape, count: int) -> None:
        """Charge `count` more pods by limits only; a negative count releases them."""
        left = self._by_limits[pod.pool]
        for number, amount in pod.limits:
            left[number] -= amount * count

    def spend_requests(self, pod: PodShape, count: int) -> None:
        """Charge by requests only: existing pods are charged by limits already, but use no node until bound."""
        if self._is_limited:
            left = self._by_requests[pod.pool]
            for number, amount in pod.requests:
                left[number] -= amount * count


class QuotaLedger:
    """What the quotas of each namespace still allow, and for which participants."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._left: dict[str, list[tuple[Quota, dict[str, int]]]] = {}
        for quota in sorted(snapshot.quotas, key=lambda quota: (quota.namespace, quota.name)):
            self._left.setdefault(quota.namespace, []).append((quota, dict(quota.free)))
        self.has_any: Final = bool(self._left)

    def excess_pods(self, who: ParticipantId, pod: PodShape) -> tuple[int, str, Shortfall] | None:
        """How many of its wanted pods exceed a quota and will be rejected, by which quota, and what that lacks."""
        worst: tuple[int, str, Shortfall] | None = None
        quotas = self._for(who)
        charge = self._charge([(pod, 1)]) if quotas else {}
        for quota, left in quotas:
            for resource, amount in charge.items():
                count = -(left.get(resource, 0) // amount) if amount > 0 else 0
                if count > 0 and (worst is None or count > worst[0]):
                    worst = count, quota.name, Shortfall(resource, amount, 0)
        return worst

    def shortfall(self, who: ParticipantId, pods: Iterable[tuple[PodShape, int]]) -> tuple[str, Shortfall] | None:
        """The quota that would reject these additional pods together, and what it lacks."""
        quotas = self._for(who)
        charge = self._charge(pods) if quotas else {}
        for quota, left in quotas:
            for resource, amount in charge.items():
                if amount > 0 and left.get(resource, amount) < amount:
                    return quota.name, Shortfall(resource, amount, max(0, left[resource]))
        return None

    def spend(self, who: ParticipantId, pods: Iterable[tuple[PodShape, int]]) -> None:
        """Charge these pods; negative counts release them."""
        quotas = self._for(who)
        charge = self._charge(pods) if quotas else {}
        for _, left in quotas:
            for resource in left.keys() & charge.keys():
                left[resource] -= charge[resource]

    def _for(self, who: ParticipantId) -> list[tuple[Quota, dict[str, int]]]:
        return [entry for entry in self._left.get(who.namespace, ()) if entry[0].is_for(who)]

    @staticmethod
    def _charge(pods: Iterable[tuple[PodShape, int]]) -> Mapping[str, int]:
        """By name, because a quota also limits what no node offers yet."""
        charge: dict[str, int] = {}
        for pod, count in pods:
            for prefix, amounts in (("", pod.shape.requests), (_LIMITS, pod.shape.limits)):
                for name, amount in sorted(amounts.items()):
                    charge[prefix + name] = charge.get(prefix + name, 0) + amount * count
        return charge
