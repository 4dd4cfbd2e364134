"""Would deciding again change anything?

Takes the snapshot and the plan of the last full turn and the snapshot of now; says whether the same plan would come out, so
that a large cluster in which nothing happens costs next to nothing (PF:P9). It says yes only where no clock runs: every
node is a busy Ray node or the head, nothing is asked for, nothing was ordered, and nothing that a decision reads has
changed. Asked by loop.py before plan_tick; a full turn follows at least once a minute whatever it says.
"""

from dataclasses import replace
from typing import Final

from raytide.autoscaler.model import HEAD_TYPE, GcsState, Status
from raytide.autoscaler.ordering.orders import Snapshot, TickPlan

LONGEST_QUIET_S: Final = 60.0


def would_repeat(before: Snapshot, plan: TickPlan, now: Snapshot) -> bool:
    """Whether `plan`, which followed from `before`, also follows from `now`."""
    return (
        now.monotonic_s - before.monotonic_s < LONGEST_QUIET_S
        and _version(now) == _version(before)
        and now.pods == before.pods
        and _is_still(plan)
        and before.gcs is not None
        and now.gcs is not None
        and _is_unasked(now.gcs)
        and _as_far_as_it_matters(now.gcs) == _as_far_as_it_matters(before.gcs)
    )


def _as_far_as_it_matters(state: GcsState) -> GcsState:
    """Without what grows by itself and decides nothing: the number of questions asked, and how idle the head is."""
    nodes = tuple(replace(node, idle_ms=0) if node.node_type == HEAD_TYPE else node for node in state.nodes)
    return replace(state, version=0, nodes=nodes)


def _version(snapshot: Snapshot) -> str:
    metadata = snapshot.cluster["metadata"]
    return f"{metadata.get('uid')}/{metadata.get('resourceVersion')}"


def _is_still(plan: TickPlan) -> bool:
    """Nothing was ordered, nothing is due, and nobody is on the way in or out."""
    return (
        not (plan.patch or plan.drains or plan.why_not)
        and plan.look_again_s is None
        and not any(order.backoff or order.why for order in plan.orders.values())
        and all(instance.status is Status.RAY_RUNNING for instance in plan.instances)
    )


def _is_unasked(state: GcsState) -> bool:
    return not (state.tasks or state.gangs or state.constraint)
