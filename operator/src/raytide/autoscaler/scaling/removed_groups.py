"""Decisions for worker groups that were removed from the spec.

Their pods cannot be named in the spec, so the record lists which may be deleted: those without a live Ray node, those
that accepted their drain, and all after the deadline. The sidecar drains, the operator deletes (SC:S14) and waits until
the record has the deadline. Pure; called by autoscaler/sidecar/reconcile.py; the operator's side is
raycluster/desired_replicas.py.
"""

from datetime import timedelta

from raytide.api.autoscaler_decision import MAX_NAMES_PER_GROUP, GroupDecision
from raytide.autoscaler.model import Instance
from raytide.autoscaler.state.current_targets import CurrentTargets
from raytide.autoscaler.state.snapshot import Snapshot


def removed_decisions(
    snapshot: Snapshot, current: CurrentTargets, found: tuple[Instance, ...]
) -> dict[str, GroupDecision]:
    """Decisions by removed group that still has pods; empty for an operator that reads no record."""
    if not current.is_recorded:
        return {}
    in_spec = {each.group.name for each in current.targets}
    pods = {pod.name: pod for pod in snapshot.pods if pod.is_worker and not pod.is_terminating}
    hosts: dict[str, list[Instance]] = {}
    for instance in found:
        if instance.pod in pods and instance.node_type and instance.node_type not in in_spec:
            hosts.setdefault(instance.node_type, []).append(instance)
    return {group: _decision(mine, group, snapshot, current) for group, mine in hosts.items()}


def _decision(hosts: list[Instance], group: str, snapshot: Snapshot, current: CurrentTargets) -> GroupDecision:
    before = None if current.record is None else current.record.groups.get(group)
    deadline = None if before is None else before.deadline
    if deadline is None:
        deadline = snapshot.now.replace(microsecond=0) + timedelta(seconds=snapshot.settings.preemption_grace_s)
    names_to_delete = () if before is None else before.delete
    is_over = snapshot.now >= deadline
    may_go = [
        host.pod
        for host in hosts
        if host.pod in names_to_delete or is_over or (not host.node_id and snapshot.gcs is not None)
    ]
    return GroupDecision(0, tuple(may_go[:MAX_NAMES_PER_GROUP]), deadline=deadline)
