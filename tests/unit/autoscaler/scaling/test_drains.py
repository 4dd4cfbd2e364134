"""The number of nodes that are drained in one pass."""

from collections import Counter
from datetime import UTC, datetime

from raytide.autoscaler.model import GcsState, NodeStatus, RayNode, amounts_of
from raytide.autoscaler.scaling.drains import MAX_DRAINS
from raytide.autoscaler.sidecar.reconcile import reconcile
from raytide.autoscaler.state.snapshot import ReconcilerState, Snapshot
from support.builders import group, head, pod, raycluster

CPU = amounts_of({"CPU": 1})
NODES = 150


def idle_cluster(*names: str) -> Snapshot:
    """Groups of nodes that have been idle for ten minutes."""
    cluster = raycluster(*(group(name, NODES, low=0, high=NODES) for name in names), enableInTreeAutoscaling=True)
    pods, nodes = [head()], [RayNode("head", NodeStatus.IDLE, head().name, "headgroup")]
    for name in names:
        for number in range(NODES):
            pods.append(pod(f"{name}-{number}", group=name, node_name=f"node-{name}-{number}"))
            node_id = f"id-{name}-{number}"
            nodes.append(RayNode(node_id, NodeStatus.IDLE, pods[-1].name, name, CPU, CPU, idle_ms=600_000))
    state = GcsState(version=1, session="session", nodes=tuple(nodes))
    return Snapshot(cluster, tuple(pods), state, datetime(2026, 1, 1, tzinfo=UTC), 1000.0)


def drained(snapshot: Snapshot) -> Counter[str]:
    """Drains by group, once every node has been known for longer than demand may lag behind."""
    known = {node.node_id: 0.0 for node in snapshot.gcs.nodes}
    return Counter(drain.group for drain in reconcile(snapshot, ReconcilerState(registered_s=known)).drains)


def test_all_groups_together_drain_no_more_nodes_in_a_tick_than_the_limit():
    assert drained(idle_cluster("a", "b", "c")) == {"a": NODES, "b": MAX_DRAINS - NODES}


def test_fewer_nodes_than_the_limit_are_drained_in_one_tick():
    assert drained(idle_cluster("a")) == {"a": NODES}
