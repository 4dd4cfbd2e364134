"""Exponential backoff without jitter.

Takes the number of consecutive failures and returns seconds: doubling and bounded, without jitter so that simulations
are reproducible. Used by the work queue, the informer and the expectations.
"""

from dataclasses import dataclass


def backoff_s(failures: int, *, first_s: float, longest_s: float) -> float:
    """`first_s` after the first failure, twice that after the second, never more than `longest_s`."""
    return min(longest_s, first_s * 2.0 ** min(failures - 1, 30)) if failures > 0 else 0.0


@dataclass(slots=True)
class Backoff:
    """Backoff of one operation; stores the failure count."""

    first_s: float
    longest_s: float
    failures: int = 0

    def next_s(self) -> float:
        """Count one more failure; returns the seconds to wait."""
        self.failures += 1
        return backoff_s(self.failures, first_s=self.first_s, longest_s=self.longest_s)

    def reset(self) -> None:
        """Reset the failure count."""
        self.failures = 0
