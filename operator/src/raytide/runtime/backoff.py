"""How long to wait after the n-th failure in a row?

Counts go in, seconds come out: doubling, bounded and without chance, so that simulations repeat. Used by the work
queue, the informer and the expectations.
"""

from dataclasses import dataclass


def backoff_s(failures: int, *, first_s: float, longest_s: float) -> float:
    """`first_s` after the first failure, twice that after the second, never more than `longest_s`."""
    return min(longest_s, first_s * 2.0 ** min(failures - 1, 30)) if failures > 0 else 0.0


@dataclass(slots=True)
class Backoff:
    """The same for one thing that may fail repeatedly; remembers the count."""

    first_s: float
    longest_s: float
    failures: int = 0

    def next_s(self) -> float:
        """One more failure: wait this long."""
        self.failures += 1
        return backoff_s(self.failures, first_s=self.first_s, longest_s=self.longest_s)

    def reset(self) -> None:
        """It works again."""
        self.failures = 0
