"""Samples of the metrics about a RayCluster's workers.

Takes the cluster, its observed state, its scaling state and the computed conditions, and returns the desired and the
ready workers of each group, the missing ones with the most frequent cause, and the reason of `ScalingLimited`. Reasons
come from closed lists, so that a client that writes the decision record cannot create series: other reasons of that record count as
`Other`. Called by the reconciler, exported by metrics.py (RC §6.2).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from raytide.api import constants
from raytide.api.actions import Outcome
from raytide.api.autoscaler_decision import LIMIT_REASONS
from raytide.api.conditions import ConditionJson, find_condition, is_condition_true
from raytide.api.raycluster import RayCluster
from raytide.raycluster.conditions import missing_workers
from raytide.raycluster.desired_replicas import ScalingState, wanted_pods
from raytide.raycluster.observed import Observed

DESIRED: Final = "desired"
READY: Final = "ready"
OTHER: Final = "Other"


@dataclass(frozen=True, slots=True)
class WorkerSamples:
    """The samples of one RayCluster by the values of their labels."""

    workers: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    """By group and state."""
    missing: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    """By group and reason."""
    limited: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    """By reason."""


NO_SAMPLES: Final = WorkerSamples()


def worker_samples(
    cluster: RayCluster,
    observed: Observed,
    scaling: ScalingState,
    outcomes: Sequence[Outcome],
    conditions: Sequence[ConditionJson],
) -> WorkerSamples:
    """The samples of a cluster whose spec is valid."""
    workers: dict[tuple[str, ...], int] = {}
    for group in cluster.spec.worker_group_specs:
        name = group.group_name
        workers[name, DESIRED] = wanted_pods(group, scaling.desired_replicas_of(group))
        workers[name, READY] = sum(pod.is_running_and_ready and not pod.is_terminating for pod in observed.group(name))
    missing = (
        missing_workers(cluster, observed, scaling, outcomes)
        if is_condition_true(conditions, constants.WORKERS_MISSING)
        else ()
    )
    limit = _reason(conditions, constants.SCALING_LIMITED, LIMIT_REASONS)
    return WorkerSamples(
        workers=workers,
        missing={
            (each.group, each.failure.reason if each.failure else constants.WAITING_FOR_PODS): each.missing
            for each in missing
        },
        limited={(limit,): 1} if limit else {},
    )


def _reason(conditions: Sequence[ConditionJson], condition_type: str, known: frozenset[str]) -> str | None:
    """The reason of a condition that is True, `Other` if it is not known; None if it is not True."""
    condition = find_condition(conditions, condition_type)
    if condition is None or condition.get("status") != "True":
        return None
    reason = str(condition.get("reason") or "")
    return reason if reason in known else OTHER
