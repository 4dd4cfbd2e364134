"""Capacity index: whether any node can hold a pod shape, and if not, which one comes nearest.

Sorts vectors of free capacity at one moment by each resource, and answers for any number of pod shapes by examining
only the vectors that have enough of the shape's rarest resource. While capacity only shrinks, a negative answer stays
valid. Used by `placement.py`, so that a thousand shapes do not examine five hundred nodes each (PF:P10), and by
`pending_reasons.py`.
"""

from bisect import bisect_left
from typing import Final, TypeAlias

_LOOKED_AT: Final = 16
"""How many vectors with the most of the rarest resource are compared: enough for a message."""

Vector: TypeAlias = list[int]
Requests: TypeAlias = tuple[tuple[int, int], ...]
"""(resource, amount) without zeros; scarce resources first."""


def fits(requests: Requests, vector: Vector) -> bool:
    """Whether one pod fits there."""
    for resource, amount in requests:  # noqa: SIM110 - a generator costs three times as much, a million times
        if vector[resource] < amount:
            return False
    return True


def times_that_fit(requests: Requests, vector: Vector) -> int:
    """How many pods fit there."""
    minimum = -1
    for resource, amount in requests:
        times = vector[resource] // amount
        if times <= 0:
            return 0
        if minimum < 0 or times < minimum:
            minimum = times
    return max(0, minimum)


class CapacityIndex:
    """An index over vectors, which must not change while it is used."""

    def __init__(self, vectors: list[Vector]) -> None:
        self._vectors = vectors
        self._by_resource: dict[int, tuple[list[int], list[Vector]]] = {}
        self._totals: dict[int, int] = {}

    def holds(self, requests: Requests) -> bool:
        """Whether any of them has capacity for one."""
        vectors, first = self._rarest(requests)
        for position in range(len(vectors) - 1, first - 1, -1):  # noqa: SIM110 - as above
            if fits(requests, vectors[position]):
                return True
        return False

    def maximum(self, resource: int) -> int:
        """The largest amount in any of them; 0 if there are none."""
        amounts, _ = self._sorted(resource)
        return max(0, amounts[-1]) if amounts else 0

    def total(self, resource: int) -> int:
        """The sum over all of them."""
        if resource not in self._totals:
            self._totals[resource] = sum(max(0, vector[resource]) for vector in self._vectors)
        return self._totals[resource]

    def lacking(self, requests: Requests) -> tuple[int, int, int] | None:
        """The resource that is short, how much is wanted, and what the best vector has; None if nothing is short.

        A resource of which no vector has enough comes first, scarce ones before others; otherwise the shortage of the
        nearest vector.
        """
        for resource, amount in requests:
            if self.maximum(resource) < amount:
                return resource, amount, self.maximum(resource)
        vectors, first = self._rarest(requests)
        nearest = vectors[max(first, len(vectors) - _LOOKED_AT) :]
        best = max(nearest, key=lambda vector: _nearness(requests, vector), default=None)
        if best is None:
            return None
        short = ((resource, amount, max(0, best[resource])) for resource, amount in requests if best[resource] < amount)
        return next(short, None)

    def _rarest(self, requests: Requests) -> tuple[list[Vector], int]:
        """All vectors sorted by the resource of which the fewest have enough, and where those begin."""
        fewest, begins, count = self._vectors, 0, len(self._vectors) + 1
        for resource, amount in requests:
            amounts, vectors = self._sorted(resource)
            first = bisect_left(amounts, amount)
            if len(vectors) - first < count:
                fewest, begins, count = vectors, first, len(vectors) - first
        return fewest, begins

    def _sorted(self, resource: int) -> tuple[list[int], list[Vector]]:
        if resource not in self._by_resource:
            vectors = sorted(self._vectors, key=lambda vector: vector[resource])
            self._by_resource[resource] = ([vector[resource] for vector in vectors], vectors)
        return self._by_resource[resource]


def _nearness(requests: Requests, vector: Vector) -> tuple[int, int]:
    """The fewest resources short, then the smallest shortage."""
    missing = [(amount - vector[number]) * 1000 // amount for number, amount in requests if vector[number] < amount]
    return -len(missing), -sum(missing)
