"""Suspension phase of a RayCluster.

Takes the stored conditions and the spec, and returns one of five phases; there is no other state. A suspension and its
end are stored in status before they take effect, so that a crash, a new leader or a change of the spec in between
does not interrupt them (RC §5.4, RC:SU-1..4). Called by plan.py and by the modules that build status and conditions.
"""

from enum import Enum
from typing import Final

from raytide.api import constants
from raytide.api.conditions import ConditionUpdate, is_condition_true
from raytide.api.raycluster import RayCluster
from raytide.raycluster import messages


class Suspension(Enum):
    """The phases, in their order. Pods are created in the first one only."""

    NONE = "none"
    """Not suspended."""
    REQUESTED = "requested"
    """`spec.suspend` is true and nothing is stored yet: no pod is created or deleted."""
    SUSPENDING = "suspending"
    """Stored: all pods are deleted, even if `spec.suspend` was reset meanwhile."""
    SUSPENDED = "suspended"
    """Stored: there are no pods, until `spec.suspend` is explicitly false."""
    RESUMING = "resuming"
    """`spec.suspend` is false but the suspension is still stored: no pod is created until its end is stored."""

    @property
    def ends_pods(self) -> bool:
        """Whether every pod has to be deleted."""
        return self in (Suspension.SUSPENDING, Suspension.SUSPENDED)


HAS_BEEN_SUSPENDED: Final = ConditionUpdate(
    constants.PROVISIONED,
    status=False,
    reason=constants.PODS_PROVISIONING,
    message=messages.HAS_BEEN_SUSPENDED,
)


def suspension_of(cluster: RayCluster) -> Suspension:
    """The phase; a stored suspension takes precedence over the current spec.

    An absent `suspend` does not resume: only an explicit false does (RC:SU-4).
    """
    conditions = cluster.status.get("conditions") or ()
    if is_condition_true(conditions, constants.SUSPENDING):
        return Suspension.SUSPENDING
    if is_condition_true(conditions, constants.SUSPENDED):
        return Suspension.RESUMING if cluster.spec.suspend is False else Suspension.SUSPENDED
    return Suspension.REQUESTED if cluster.spec.suspend else Suspension.NONE


def suspension_conditions(phase: Suspension, *, has_pods: bool) -> dict[str, ConditionUpdate]:
    """The conditions to store: the two of the suspension, and RayClusterProvisioned once it is complete (RC §1.6)."""
    is_over = phase is Suspension.SUSPENDING and not has_pods
    is_suspended = is_over or phase is Suspension.SUSPENDED
    is_suspending = phase is Suspension.REQUESTED or (phase is Suspension.SUSPENDING and has_pods)
    how_to_resume = messages.HOW_TO_RESUME if is_suspended else ""
    progress = messages.DELETING_ALL_PODS if is_suspending else ""
    updates = {constants.PROVISIONED: HAS_BEEN_SUSPENDED} if is_over else {}
    return {
        **updates,
        constants.SUSPENDED: ConditionUpdate(constants.SUSPENDED, is_suspended, constants.SUSPENDED, how_to_resume),
        constants.SUSPENDING: ConditionUpdate(constants.SUSPENDING, is_suspending, constants.SUSPENDING, progress),
    }
