"""Where does a RayCluster stand between running and suspended?

Takes the conditions that are stored and the spec, and gives one of five phases; nothing else is remembered. A suspension
and its end are stored in status before anything follows from them, so that a crash, a new leader or a spec that changes
its mind in between continues what was begun (RC §5.4, RC:SU-1..4). Called by plan.py and by everything that reports.
"""

from enum import Enum
from typing import Final

from raytide.api import names
from raytide.api.conditions import Saying, is_condition_true
from raytide.api.raycluster import RayCluster


class Suspension(Enum):
    """The phases, in their order. Pods are made in the first one only."""

    NONE = "none"
    """It runs."""
    REQUESTED = "requested"
    """`spec.suspend` is true and nothing is stored yet: no pod is made, none deleted."""
    SUSPENDING = "suspending"
    """Stored: all pods go, even if `spec.suspend` has been taken back since."""
    SUSPENDED = "suspended"
    """Stored: there are no pods, until `spec.suspend` is explicitly false."""
    RESUMING = "resuming"
    """`spec.suspend` is false and still stored as suspended: no pod is made before that is stored too."""

    @property
    def ends_pods(self) -> bool:
        """Whether every pod has to go."""
        return self in (Suspension.SUSPENDING, Suspension.SUSPENDED)


HAS_BEEN_SUSPENDED: Final = Saying(
    names.PROVISIONED, status=False, reason="RayClusterPodsProvisioning", message="the RayCluster has been suspended"
)


def suspension_of(cluster: RayCluster) -> Suspension:
    """The phase; a stored suspension comes before what the spec says now.

    `suspend` that is absent resumes nothing: only an explicit false does (RC:SU-4).
    """
    conditions = cluster.status.get("conditions") or ()
    if is_condition_true(conditions, names.SUSPENDING):
        return Suspension.SUSPENDING
    if is_condition_true(conditions, names.SUSPENDED):
        return Suspension.RESUMING if cluster.spec.suspend is False else Suspension.SUSPENDED
    return Suspension.REQUESTED if cluster.spec.suspend else Suspension.NONE


def suspension_sayings(phase: Suspension, *, has_pods: bool) -> dict[str, Saying]:
    """The conditions to store: the two of the suspension, and what becomes of RayClusterProvisioned (RC §1.6)."""
    is_over = phase is Suspension.SUSPENDING and not has_pods
    is_suspended = is_over or phase is Suspension.SUSPENDED
    is_suspending = phase is Suspension.REQUESTED or (phase is Suspension.SUSPENDING and has_pods)
    how_to_resume = "set spec.suspend to false to run the cluster again" if is_suspended else ""
    what_happens = "all pods are being deleted" if is_suspending else ""
    sayings = {names.PROVISIONED: HAS_BEEN_SUSPENDED} if is_over else {}
    return {
        **sayings,
        names.SUSPENDED: Saying(names.SUSPENDED, is_suspended, names.SUSPENDED, how_to_resume),
        names.SUSPENDING: Saying(names.SUSPENDING, is_suspending, names.SUSPENDING, what_happens),
    }
