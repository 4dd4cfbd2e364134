"""What is ordered for workers whose group has left the spec?

Nobody can name them in the spec any more, so the record says which of them may go: those without a living Ray node, those
that agreed to leave, and after the deadline all. The sidecar drains, the operator deletes (SC:S14); until the record has
the deadline the operator waits for it. Pure; called by tick.py; the operator's side is raycluster/scaling.py.
"""

from datetime import timedelta

from raytide.api.scaling import MAX_NAMES_PER_GROUP, GroupDecision
from raytide.autoscaler.model import Instance
from raytide.autoscaler.ordering.orders import Snapshot
from raytide.autoscaler.ordering.standing import Standing


def removed_orders(snapshot: Snapshot, standing: Standing, found: tuple[Instance, ...]) -> dict[str, GroupDecision]:
    """By group that is gone and still has pods; nothing under an operator that reads no record."""
    if not standing.is_recorded:
        return {}
    in_spec = {group.name for group in standing.groups}
    pods = {pod.name: pod for pod in snapshot.pods if pod.is_worker and not pod.is_terminating}
    hosts: dict[str, list[Instance]] = {}
    for instance in found:
        if instance.pod in pods and instance.node_type and instance.node_type not in in_spec:
            hosts.setdefault(instance.node_type, []).append(instance)
    return {group: _order(mine, group, snapshot, standing) for group, mine in hosts.items()}


def _order(hosts: list[Instance], group: str, snapshot: Snapshot, standing: Standing) -> GroupDecision:
    before = None if standing.record is None else standing.record.groups.get(group)
    deadline = None if before is None else before.deadline
    if deadline is None:
        deadline = snapshot.now.replace(microsecond=0) + timedelta(seconds=snapshot.settings.preemption_grace_s)
    named = () if before is None else before.delete
    is_over = snapshot.now >= deadline
    may_go = [
        host.pod for host in hosts if host.pod in named or is_over or (not host.node_id and snapshot.gcs is not None)
    ]
    return GroupDecision(0, tuple(may_go[:MAX_NAMES_PER_GROUP]), deadline=deadline)
