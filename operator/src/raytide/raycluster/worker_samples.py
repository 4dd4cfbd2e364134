"""Samples of the metrics about a RayCluster's workers.

Takes the cluster, its observed state, its scaling state and the computed conditions, and returns the desired and the
ready workers of each group, the missing ones by the reason of `WorkersMissing`, and the reason of `ScalingLimited`.
Reasons come from closed lists, so that a client that writes the decision record cannot create series: others count as
`Other`. Called by the reconciler, exported by metrics.py (RC §6.2).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from raytide.api import constants
from raytide.api.autoscaler_decision import LIMIT_REASONS
from raytide.api.conditions import ConditionJson, find_condition
from raytide.api.pod_failure import Cause
from raytide.api.raycluster import RayCluster
from raytide.raycluster.desired_replicas import ScalingState, wanted_pods
from raytide.raycluster.observed import Observed

DESIRED: Final = "desired"
READY: Final = "ready"
MISSING_REASONS: Final = frozenset({*Cause, constants.WAITING_FOR_PODS})
OTHER: Final = "Other"


@dataclass(frozen=True, slots=True)
class WorkerSamples:
    """The samples of one RayCluster by the values of their labels."""

    workers: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    """By group and state."""
    missing: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    """By reason."""
    limited: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    """By reason."""


NO_SAMPLES: Final = WorkerSamples()


def worker_samples(
    cluster: RayCluster, observed: Observed, scaling: ScalingState, conditions: Sequence[ConditionJson]
) -> WorkerSamples:
    """The samples of a cluster whose spec is valid."""
    workers: dict[tuple[str, ...], int] = {}
    missing = 0
    for group in cluster.spec.worker_group_specs:
        name = group.group_name
        desired = wanted_pods(group, scaling.desired_replicas_of(group))
        ready = sum(pod.is_running_and_ready and not pod.is_terminating for pod in observed.group(name))
        workers[name, DESIRED], workers[name, READY] = desired, ready
        missing += max(0, desired - ready)
    missing_reason = _reason(conditions, constants.WORKERS_MISSING, MISSING_REASONS)
    limit = _reason(conditions, constants.SCALING_LIMITED, LIMIT_REASONS)
    return WorkerSamples(
        workers=workers,
        missing={(missing_reason,): missing} if missing_reason else {},
        limited={(limit,): 1} if limit else {},
    )


def _reason(conditions: Sequence[ConditionJson], condition_type: str, known: frozenset[str]) -> str | None:
    """The reason of a condition that is True, `Other` if it is not known; None if it is not True."""
    condition = find_condition(conditions, condition_type)
    if condition is None or condition.get("status") != "True":
        return None
    reason = str(condition.get("reason") or "")
    return reason if reason in known else OTHER
