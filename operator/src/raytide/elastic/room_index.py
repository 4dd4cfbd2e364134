"""Does anything hold this much at once, and if not, what comes nearest?

Takes vectors of room as they are at one moment, sorts them by each resource, and answers for any number of pod shapes by
looking only at those that have enough of whatever is rarest for the shape. While room only shrinks, a no stays a no. Used by
`placement.py`, so that a thousand shapes do not ask five hundred nodes each (PF:P10), and by `reasons.py`.
"""

from bisect import bisect_left
from typing import Final, TypeAlias

_LOOKED_AT: Final = 16
"""Of those that have enough of the rarest, the ones with the most of it: enough for a sentence."""

Vector: TypeAlias = list[int]
Wants: TypeAlias = tuple[tuple[int, int], ...]
"""(resource, amount), nothing of which is zero; scarce things first."""


def fits(wants: Wants, vector: Vector) -> bool:
    """Whether one fits there."""
    for resource, amount in wants:  # noqa: SIM110 - a generator costs three times as much, a million times
        if vector[resource] < amount:
            return False
    return True


def times_that_fit(wants: Wants, vector: Vector) -> int:
    """How many fit there."""
    least = -1
    for resource, amount in wants:
        times = vector[resource] // amount
        if times <= 0:
            return 0
        if least < 0 or times < least:
            least = times
    return max(0, least)


class RoomIndex:
    """Some vectors, which nobody changes as long as they are asked about."""

    def __init__(self, vectors: list[Vector]) -> None:
        self._vectors = vectors
        self._by_resource: dict[int, tuple[list[int], list[Vector]]] = {}
        self._totals: dict[int, int] = {}

    def holds(self, wants: Wants) -> bool:
        """Whether any of them has room for one."""
        vectors, first = self._rarest(wants)
        for position in range(len(vectors) - 1, first - 1, -1):  # noqa: SIM110 - as above
            if fits(wants, vectors[position]):
                return True
        return False

    def most(self, resource: int) -> int:
        """The most that any of them has; nothing where there are none."""
        amounts, _ = self._sorted(resource)
        return max(0, amounts[-1]) if amounts else 0

    def total(self, resource: int) -> int:
        """What all of them have together."""
        if resource not in self._totals:
            self._totals[resource] = sum(max(0, vector[resource]) for vector in self._vectors)
        return self._totals[resource]

    def lacking(self, wants: Wants) -> tuple[int, int, int] | None:
        """The resource that is short, how much is wanted, and what the best has; None if nothing is.

        What nobody has enough of is said first, the scarce before the rest; otherwise what is short where least is missing.
        """
        for resource, amount in wants:
            if self.most(resource) < amount:
                return resource, amount, self.most(resource)
        vectors, first = self._rarest(wants)
        nearest = vectors[max(first, len(vectors) - _LOOKED_AT) :]
        best = max(nearest, key=lambda vector: _nearness(wants, vector), default=None)
        if best is None:
            return None
        short = ((resource, amount, max(0, best[resource])) for resource, amount in wants if best[resource] < amount)
        return next(short, None)

    def _rarest(self, wants: Wants) -> tuple[list[Vector], int]:
        """All of them by the resource of which the fewest have enough, and where those begin."""
        fewest, begins, count = self._vectors, 0, len(self._vectors) + 1
        for resource, amount in wants:
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


def _nearness(wants: Wants, vector: Vector) -> tuple[int, int]:
    """The fewest resources short, then the least of them missing."""
    missing = [(amount - vector[number]) * 1000 // amount for number, amount in wants if vector[number] < amount]
    return -len(missing), -sum(missing)
