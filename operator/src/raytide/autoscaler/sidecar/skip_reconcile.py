"""Whether a reconcile can be skipped, because another tick would produce the same plan.

Compares the snapshot and plan of the last complete tick with the current snapshot, so that an unchanged large cluster
costs next to nothing (PF:P9). True only if no timer is running: every node is a busy Ray node or the head, there is no
demand, nothing was ordered, and no input of a decision has changed. Called by loop.py before reconcile; at least once a
minute a complete tick runs in any case.
"""

from dataclasses import replace
from typing import Final

from raytide.autoscaler.model import HEAD_TYPE, GcsState, Status
from raytide.autoscaler.state.snapshot import ReconcileResult, Snapshot

MAX_SKIP_S: Final = 60.0


def can_skip_reconcile(before: Snapshot, plan: ReconcileResult, now: Snapshot) -> bool:
    """Whether `plan`, which followed from `before`, also follows from `now`."""
    return (
        now.monotonic_s - before.monotonic_s < MAX_SKIP_S
        and _version(now) == _version(before)
        and now.pods == before.pods
        and _is_settled(plan)
        and before.gcs is not None
        and now.gcs is not None
        and _has_no_demand(now.gcs)
        and _without_irrelevant_values(now.gcs) == _without_irrelevant_values(before.gcs)
    )


def _without_irrelevant_values(state: GcsState) -> GcsState:
    """State without values that change by themselves and affect no decision: its version and the head's idle time."""
    nodes = tuple(replace(node, idle_ms=0) if node.node_type == HEAD_TYPE else node for node in state.nodes)
    return replace(state, version=0, nodes=nodes)


def _version(snapshot: Snapshot) -> str:
    metadata = snapshot.cluster["metadata"]
    return f"{metadata.get('uid')}/{metadata.get('resourceVersion')}"


def _is_settled(plan: ReconcileResult) -> bool:
    """Whether nothing was ordered, no timer is due, and no instance is launching or terminating."""
    return (
        not (plan.patch or plan.drains or plan.why_not)
        and plan.requeue_after_s is None
        and not any(decision.backoff or decision.why for decision in plan.decisions.values())
        and all(instance.status is Status.RAY_RUNNING for instance in plan.instances)
    )


def _has_no_demand(state: GcsState) -> bool:
    return not (state.tasks or state.gangs or state.constraint)
