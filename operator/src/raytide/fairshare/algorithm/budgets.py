"""Budgets: limits on growth apart from single nodes.

Two sums: what growth may fill of all usable nodes together, by limits and by requests (TJ §3 rows 5 and 15), and what
the quotas of a namespace still allow (row 14). Growth is checked against both and charged to both; what is below a
minimum is checked against the quota only, and no participant shrinks because a sum is exceeded. Mutable, local to one
call of `allocate`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from raytide.fairshare.algorithm.capacity_index import Wants
from raytide.fairshare.algorithm.model import PODS, ClusterSnapshot, ParticipantId, Quota
from raytide.fairshare.algorithm.placement import ClusterCapacity, PodShape, total

_FULL: Final = 100
_LIMITS: Final = "limits."


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What is missing in a sum."""

    resource: str
    wanted: int
    left: int


class LoadBudget:
    """What growth may still fill of all usable nodes together, by resource."""

    def __init__(self, pool: ClusterSnapshot, room: ClusterCapacity) -> None:
        self._names = room.resources
        percents = [pool.options.max_load_percent.get(name, _FULL) for name in room.resources]
        bounds = [
            total(room.nodes, name) * percent // _FULL for name, percent in zip(room.resources, percents, strict=True)
        ]
        self._by_limits = [
            bound - pool.charged.get(name, 0) for name, bound in zip(room.resources, bounds, strict=True)
        ]
        self._by_requests = {
            number: bounds[number] - sum(node.used.get(name, 0) for node in room.nodes)
            for number, name in enumerate(room.resources)
            if percents[number] < _FULL and name != PODS
        }
        self._pods = room.number_of[PODS]

    def shortfall(self, pod: PodShape, count: int, *, is_by_limits: bool) -> Shortfall | None:
        """The sum that `count` more pods would exceed; None if they fit."""
        if is_by_limits:
            left = self._by_limits
            for number, amount in pod.limits:
                if left[number] < amount * count and number != self._pods:
                    return Shortfall(self._names[number], amount * count, left[number])
        if self._by_requests:
            for number, amount in pod.wants:
                if self._by_requests.get(number, amount * count) < amount * count:
                    return Shortfall(self._names[number], amount * count, self._by_requests[number])
        return None

    def spend(self, pod: PodShape, count: int) -> None:
        """Charge `count` more pods; a negative count releases them."""
        self.spend_limits(pod, count)
        self.spend_requests(pod, count)

    def spend_limits(self, pod: PodShape, count: int) -> None:
        """Charge by limits only."""
        left = self._by_limits
        for number, amount in pod.limits:
            left[number] -= amount * count

    def spend_requests(self, pod: PodShape, count: int) -> None:
        """Charge by requests only: existing pods are charged by limits already, but use no node until bound."""
        if self._by_requests:
            for number, amount in pod.wants:
                if number in self._by_requests:
                    self._by_requests[number] -= amount * count


class QuotaLedger:
    """What the quotas of each namespace still allow, and for which participants."""

    def __init__(self, pool: ClusterSnapshot, room: ClusterCapacity) -> None:
        self._names = room.resources
        self._left: dict[str, list[tuple[Quota, dict[str, int]]]] = {}
        for quota in sorted(pool.quotas, key=lambda quota: (quota.namespace, quota.name)):
            self._left.setdefault(quota.namespace, []).append((quota, dict(quota.free)))

    def names_for(self, who: ParticipantId) -> tuple[str, ...]:
        """The quotas that the participant's pods count against."""
        return tuple(f"{quota.namespace}/{quota.name}" for quota, _ in self._for(who))

    def overdraft(self, who: ParticipantId, pod: PodShape) -> tuple[int, str, Shortfall] | None:
        """How many of its wanted pods will be rejected, by which quota, and what that lacks."""
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

    def _charge(self, pods: Iterable[tuple[PodShape, int]]) -> Mapping[str, int]:
        charge: dict[str, int] = {}
        for pod, count in pods:
            self._add(charge, pod.wants, count, "")
            self._add(charge, pod.limits, count, _LIMITS)
        return charge

    def _add(self, charge: dict[str, int], wants: Wants, count: int, prefix: str) -> None:
        for number, amount in wants:
            name = prefix + self._names[number]
            charge[name] = charge.get(name, 0) + amount * count
