"""Whether fair sharing scales a TrainingJob down for another one, and why not, in words.

Decides nothing: the rules are those of the planner (ADR 0023, TJ §7.15). Pure. Called by smallest_change.py.
"""

from collections.abc import Mapping

from raytide.fairshare.algorithm.model import ClusterSnapshot, Participant


def donor_notes(snapshot: ClusterSnapshot, of: tuple[str, str, str]) -> Mapping[tuple[str, str, str], str]:
    """Kind, namespace and name of each other TrainingJob -> what is taken of it for that one; empty if it takes no part."""
    one = next((each for each in snapshot.participants if each.id == of), None)
    if one is None:
        return {}
    others = (each for each in snapshot.participants if each is not one)
    return {(each.id.kind, each.id.namespace, each.id.name): _gives(each, one) for each in others}


def _gives(other: Participant, participant: Participant) -> str:
    """Whether the other participant is scaled down for this one, and why not (TJ §7.15)."""
    if not participant.may_preempt:
        cause = (
            "that have scheduling gates, or got no node before"
            if participant.is_unproven
            else "with preemptionPolicy: Never"
        )
        return f"it is not scaled down for pods {cause}"
    if other.tenant != participant.tenant and other.is_scaling_enabled and other.current > other.floor:
        return "it belongs to another tenant, and is scaled down if that tenant has a higher share or borrows"
    if other.priority > participant.priority:
        return f"it has a higher priority ({other.priority} against {participant.priority})"
    if not other.is_scaling_enabled:
        return "scaling is disabled for it"
    if other.current <= other.floor:
        return "it is at its minimum"
    is_minimum = participant.current < participant.floor
    if not other.may_shrink and (other.priority == participant.priority or not is_minimum):
        return "it is in a cooldown"
    if participant.rebalances and other.rebalances and other.priority < participant.priority:
        return f"it is scaled down to {other.floor} for jobs of a higher priority"
    if participant.rebalances and other.rebalances:
        return f"it is scaled down to {other.floor} for jobs below their minimum, and for others once they are much less fulfilled"
    return f"it is scaled down to {other.floor}, but only for jobs below their minimum"
