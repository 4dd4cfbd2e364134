"""One worker group as it stands in the spec of the RayCluster.

A frozen value with the spec's numbers unchanged, absent ones as None, so that a patch can test them. Made by
state/worker_groups.py; read by state, scaling and reporting.
"""

from dataclasses import dataclass

from raytide.api.autoscaler_decision import clamp_between
from raytide.api.quantity import MAX_INT32


@dataclass(frozen=True, slots=True)
class SpecGroup:
    """One worker group as it stands in the spec; `index` is its place in the list, for JSON pointers."""

    index: int
    name: str
    replicas: int | None = None
    min_replicas: int = 0
    max_replicas: int = MAX_INT32
    num_of_hosts: int = 1
    is_suspended: bool = False
    workers_to_delete: tuple[str, ...] | None = None
    """None: the list is absent."""
    has_scale_strategy: bool = False
    scale_gates: tuple[str, ...] = ()
    """Types of the entries of `scaleStrategy.scaleGate`: while there is one, the group gets no new nodes."""

    @property
    def spec_replicas(self) -> int:
        """Replicas an operator derives from the spec alone (RC:WG-2)."""
        return self.clamp(self.min_replicas if self.replicas is None else self.replicas)

    def clamp(self, replicas: int) -> int:
        """Limit replicas to min and max as the operator does (RC:WG-2)."""
        return clamp_between(replicas, self.min_replicas, self.max_replicas)
