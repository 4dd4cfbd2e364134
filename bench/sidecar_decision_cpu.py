"""P9B: CPU of one decision of the sidecar with 10,000 steady pods in 50 groups; for comparison in 5 groups.

What the process spends on reading and writing is P9's; this is all that follows from what was read, `reconcile`, with the
memory of earlier turns. The groups' nodes are busy, each with another amount of object store in use.
"""

import random
import statistics
import sys
import time
from datetime import UTC, datetime, timedelta

from raytide.autoscaler.model import GcsState, NodeStatus, RayNode, amounts_of
from raytide.autoscaler.sidecar.reconcile import reconcile
from raytide.autoscaler.state.snapshot import ReconcilerState, Snapshot
from raytide.runtime.gc_tuning import tune_gc
from support.builders import group, head, pod, raycluster

from harness import result

PODS, GROUPS, FEW_GROUPS, BAR_MS = 10_000, 50, 5, 200
TURNS, WARM_UP = 7, 5
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
GIB = 1 << 30


def snapshots(groups: int) -> list[Snapshot]:
    """The same cluster, seen every five seconds."""
    rng = random.Random(1)
    each = PODS // groups
    cluster = raycluster(
        *(group(f"g{number}", each, high=2 * each) for number in range(groups)), enableInTreeAutoscaling=True
    )
    pods, nodes = [head()], [RayNode("head", NodeStatus.IDLE, head().name, "headgroup")]
    for number in range(PODS):
        name, kind = f"demo-worker-{number:05d}", f"g{number % groups}"
        pods.append(pod(name, group=kind, node_name=f"node-{number}"))
        total = {"CPU": 1, "memory": 2 * GIB, "object_store_memory": GIB, f"node:10.0.{number >> 8}.{number & 255}": 1}
        left = {**total, "object_store_memory": rng.randrange(1, GIB)}
        del left["CPU"]
        nodes.append(RayNode(f"{number:056x}", NodeStatus.RUNNING, name, kind, amounts_of(total), amounts_of(left)))
    state = GcsState(version=1, session="session", nodes=tuple(nodes))
    return [
        Snapshot(cluster, tuple(pods), state, EPOCH + timedelta(seconds=5 * turn), 1000.0 + 5 * turn)
        for turn in range(WARM_UP + TURNS)
    ]


def measure(groups: int) -> float:
    """Mean CPU of a steady turn, in ms."""
    state, times = ReconcilerState(), []
    for snapshot in snapshots(groups):
        started = time.process_time()
        plan = reconcile(snapshot, state)
        times.append(1000 * (time.process_time() - started))
        state = plan.state
        assert plan.reply is not None, plan.why_not
    assert not plan.reply.launches
    assert not plan.reply.terminations
    print(f"{PODS} pods in {groups} groups: best {min(times[WARM_UP:]):.0f} ms, first {times[0]:.0f} ms CPU")
    return statistics.mean(times[WARM_UP:])


def main() -> int:
    """Measure and print."""
    tune_gc()  # as the sidecar does
    few = measure(FEW_GROUPS)
    print(f"{PODS} pods in {FEW_GROUPS} groups: mean {few:.0f} ms CPU, no bar")
    return 0 if result("P9B", measure(GROUPS), f"ms CPU per turn, {PODS} pods in {GROUPS} groups", BAR_MS) else 1


if __name__ == "__main__":
    sys.exit(main())
