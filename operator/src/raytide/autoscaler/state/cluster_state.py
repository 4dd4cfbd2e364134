"""State of the cluster in one tick: node types, instances and unavailable groups.

Takes the snapshot, the targets in force and the timers. Returns all that scheduling, scaling and reporting read besides
the snapshot, or the reason why nothing can be scheduled. It only prepares the input of node_types.py, instances.py and
group_availability.py. Called by autoscaler/sidecar/reconcile.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from raytide.autoscaler.model import GcsState, Instance
from raytide.autoscaler.state.current_targets import CurrentTargets
from raytide.autoscaler.state.group_availability import AvailabilityInputs, Limits, assess_availability
from raytide.autoscaler.state.instances import Instances, instances
from raytide.autoscaler.state.node_types import NodeTypes, asked_resources, node_types
from raytide.autoscaler.state.observation import InstanceInputs
from raytide.autoscaler.state.snapshot import ReconcilerState, Snapshot

DEMAND_LAG_S: Final = 2.0
"""Twice the interval at which the GCS polls the raylets' task queues (AS:G-6)."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Observed state of the whole cluster."""

    current: CurrentTargets
    types: NodeTypes
    found: Instances
    by_group: Mapping[str, Sequence[Instance]]
    """All instances by group, in order."""
    problems: Mapping[str, str]
    """Problems of the spec by group; an empty name means the whole cluster."""
    registered_s: Mapping[str, float]
    """By Ray node id, when it was first seen."""
    limits: Limits | None = None
    """None: nothing can be scheduled; `why_not` has the reason."""
    why_not: str = ""


def read_cluster_state(snapshot: Snapshot, state: ReconcilerState, current: CurrentTargets) -> ClusterState:
    """Read node types, instances and unavailable groups from the snapshot."""
    gcs = snapshot.gcs or GcsState()
    topologies = {gang.topology.label for gang in gcs.gangs if gang.topology is not None}
    types = node_types(snapshot.cluster["spec"], gcs.nodes, asked_resources(gcs), topologies)
    time_limits = snapshot.settings.time_limits
    inputs = _instance_inputs(snapshot, state, current, types, gcs)
    found = instances(inputs, state.timers, time_limits, state.known)
    cluster = ClusterState(current, types, found, found.by_group(), types.problems_by_group(), state.registered_s)
    if snapshot.gcs is None:
        return replace(cluster, why_not="the GCS does not answer")
    cluster = replace(cluster, registered_s=_joined(found.instances, state.registered_s, snapshot.monotonic_s))
    if not found.is_head_running:
        return replace(cluster, why_not="the head's Ray node is not running")
    availability = _availability_inputs(snapshot, current)
    limits = assess_availability(found, types, availability, time_limits, snapshot.settings.recovery_s)
    return replace(cluster, limits=limits)


def _instance_inputs(
    snapshot: Snapshot, state: ReconcilerState, current: CurrentTargets, types: NodeTypes, gcs: GcsState
) -> InstanceInputs:
    return InstanceInputs(
        pods=snapshot.pods,
        nodes=gcs.nodes,
        types=types,
        now_s=snapshot.monotonic_s,
        desired_hosts={each.group.name: each.replicas * each.group.num_of_hosts for each in current.targets},
        to_delete=frozenset(name for each in current.targets for name in each.names_to_delete),
        drains=frozenset(state.draining_since_s),
    )


def _availability_inputs(snapshot: Snapshot, current: CurrentTargets) -> AvailabilityInputs:
    status: Any = snapshot.cluster.get("status")
    return AvailabilityInputs(
        now=snapshot.now,
        now_s=snapshot.monotonic_s,
        status=status if isinstance(status, Mapping) else {},
        backoffs={each.group.name: each.decision.backoff for each in current.targets},
        reasons={each.group.name: each.decision.why for each in current.targets},
        gates={each.group.name: each.group.scale_gates for each in current.targets},
        node_autoscaler=snapshot.node_autoscaler,
    )


def _joined(found: Iterable[Instance], registered_s: Mapping[str, float], now_s: float) -> dict[str, float]:
    return {i.node_id: registered_s.get(i.node_id, now_s) for i in found if i.node_id}
