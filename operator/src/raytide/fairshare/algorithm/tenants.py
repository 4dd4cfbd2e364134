"""Tenants: how much each group of participants uses, and the weighted dominant share by which groups are compared.

The words are those of Kueue. A tenant has a nominal quota, which other tenants can borrow while it does not use it; a
borrowing limit, which bounds what it may use above its nominal quota; and a weight. Its *share* is what it uses above
its nominal quota, as a part of what the usable nodes have, of the resource where that part is largest, divided by its
weight: 0 while it is within its nominal quota. Between tenants the lower share comes first, whatever the priorities;
within a tenant priorities and scores decide. Without tenants every participant belongs to one tenant whose share is 0,
so that only priorities and scores count.

What counts as used is every pod that participants want and that the plan keeps, with or without a node; pods of other
workloads do not count. Mutable, local to one call of `allocate` (TJ:7.13, D25).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from raytide.api.pod_requirements import PODS
from raytide.api.tenants import Tenant
from raytide.fairshare.algorithm.budgets import Shortfall
from raytide.fairshare.algorithm.capacity_index import Requests, Vector
from raytide.fairshare.algorithm.model import ClusterSnapshot
from raytide.fairshare.algorithm.placement import ClusterCapacity, PodShape

SHARE_BITS: Final = 64
"""Shares are whole numbers, exact to compare: 1 << SHARE_BITS is all of a resource, at weight 1."""

_UNLIMITED: Final = 1 << 60

Pods = Iterable[tuple[PodShape, int]]
"""Shapes, and how many of each."""


@dataclass(eq=False, slots=True)
class TenantState:
    """One tenant in a plan."""

    spec: Tenant
    nominal: Vector
    limit: Vector
    """Nominal quota and borrowing limit together, by number of the resource."""
    used: Vector
    totals: Mapping[int, int]
    """Resource that counts for shares -> what the usable nodes have of it."""
    names: tuple[str, ...]
    """Names of the resources, by number."""
    share: int = 0

    def used_with(self, pods: Pods) -> Vector:
        """What it would use with these pods as well; negative counts release pods."""
        used = list(self.used)
        _add(used, pods)
        return used

    def share_with(self, pods: Pods) -> int:
        """The share it would have with them."""
        return self.share_of(self.used_with(pods))

    def within_nominal(self, pods: Pods) -> set[int]:
        """The resources of which it would use no more than its nominal quota with these pods as well."""
        used = self.used_with(pods)
        return {number for number in self.totals if used[number] <= self.nominal[number]}

    def charge(self, pod: PodShape, count: int) -> None:
        """Count so many more pods as used; a negative count releases them."""
        self.charge_requests(pod.requests, count)

    def charge_requests(self, requests: Requests, count: int) -> None:
        """The same for pods that are in no plan."""
        for number, amount in requests:
            self.used[number] += amount * count
        self.share = self.share_of(self.used)

    def shortfall(self, pods: Pods) -> Shortfall | None:
        """What is missing for these additional pods within quota and borrowing limit together; None if nothing is."""
        if not self.spec.borrowing_limit:
            return None
        wanted = [0] * len(self.used)
        _add(wanted, pods)
        for number, amount in enumerate(wanted):
            if amount > 0 and self.used[number] + amount > self.limit[number]:
                return Shortfall(self.names[number], amount, max(0, self.limit[number] - self.used[number]))
        return None

    def share_of(self, used: Vector) -> int:
        """The share it would have if it used so much."""
        weight = self.spec.weight
        above = (
            (max(0, used[number] - self.nominal[number]) << SHARE_BITS)
            * weight.denominator
            // (total * weight.numerator)
            for number, total in self.totals.items()
        )
        return max(above, default=0)


class TenantLedger:
    """All tenants of a plan."""

    def __init__(self, snapshot: ClusterSnapshot, capacity: ClusterCapacity) -> None:
        self.has_any: Final = bool(snapshot.tenants)
        self._names = capacity.resources
        self._totals = _totals(snapshot, capacity) if snapshot.tenants else {}
        self._by_name = {each.name: self._state(each) for each in (Tenant(""), *snapshot.tenants)}

    def _state(self, tenant: Tenant) -> TenantState:
        nominal = [tenant.nominal_quota.get(name, 0) for name in self._names]
        borrowing_limits = [tenant.borrowing_limit.get(name) for name in self._names]
        limit = [
            _UNLIMITED if more is None else own + more for own, more in zip(nominal, borrowing_limits, strict=True)
        ]
        return TenantState(tenant, nominal, limit, [0] * len(self._names), self._totals, self._names)

    def by_name(self, name: str) -> TenantState:
        """The tenant of that name; participants of no tenant that is known form one of weight 1 without a quota."""
        return self._by_name.get(name) or self._by_name[""]

    def by_share(self) -> list[TenantState]:
        """All tenants, that with the highest share first."""
        return sorted(self._by_name.values(), key=lambda tenant: (-tenant.share, tenant.spec.name))


def _totals(snapshot: ClusterSnapshot, capacity: ClusterCapacity) -> dict[int, int]:
    """The resources that count for shares: those that a tenant names, or all if no tenant names any."""
    named = {name for tenant in snapshot.tenants for name in (*tenant.nominal_quota, *tenant.borrowing_limit)}
    counted = [name for name in capacity.resources if name != PODS and (not named or name in named)]
    totals = {name: sum(node.allocatable.get(name, 0) for node in capacity.nodes) for name in counted}
    return {capacity.number_of[name]: total for name, total in totals.items() if total > 0}


def _add(vector: Vector, pods: Pods) -> None:
    for pod, count in pods:
        for number, amount in pod.requests:
            vector[number] += amount * count
