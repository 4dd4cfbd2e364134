"""Plan of a RayCluster as a frozen value.

It adds to api/plan.py what only a RayCluster has: missing protection, and the backoff of multi-host replicas. Made by
plan.py, read by the reconciler and by status.py; D5, D7.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from raytide.api.plan import Plan
from raytide.api.violations import Violation


@dataclass(frozen=True)
class RayClusterPlan(Plan):
    """The writes, events and flags of a RayCluster's pass."""

    unprotected: tuple[Violation, ...] = ()
    """Why no pod is created although the spec is valid: protection that it asks for is not available (FD:RC-B3)."""
    given_up: frozenset[str] = frozenset()
    """Groups in which a multi-host replica is deleted because the API server rejects its other hosts."""
    needs_no_replica: frozenset[str] = frozenset()
    """Multi-host groups that have all the replicas they want: the backoff of their next replica is reset."""

    @property
    def may_create(self) -> bool:
        """Whether creates in flight may be repeated: not without the protection that the cluster asks for."""
        return not (self.violations or self.unprotected)

    @classmethod
    def joined(cls, plans: Sequence[Self]) -> Self:
        """Several plans in sequence as one plan."""
        return replace(
            super().joined(plans),
            unprotected=tuple(violation for each in plans for violation in each.unprotected),
            given_up=frozenset[str]().union(*(each.given_up for each in plans)),
            needs_no_replica=frozenset[str]().union(*(each.needs_no_replica for each in plans)),
        )


NOTHING: Final = RayClusterPlan()
