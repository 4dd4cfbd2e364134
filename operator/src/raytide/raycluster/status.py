"""Status of a RayCluster.

Takes the cluster as read, its observed state after the writes, the plan and its outcomes, and returns the whole status;
the difference to the one read is the patch (D8). It keeps KubeRay's fields, values and conditions (RC §1.5–1.7), and
adds `diagnoses`, `WorkersMissing`, `Invalid` and `Unsupported` while they apply. With `tracks_readiness`, `state` leaves `ready`
when head or workers have been missing for 30 s (SC:S21, RM:I9); by default it stays, as in KubeRay, because Kueue
evicts a cluster that leaves it (FD:RC-B5). Called by the reconciler once per reconcile; it writes nothing itself.
"""

from collections.abc import Container, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from raytide.api import constants
from raytide.api.actions import Outcome, Result
from raytide.api.conditions import find_condition, parse_timestamp, timestamp, without_unreached
from raytide.api.config import PodConfig
from raytide.api.merge_patch import merge_difference
from raytide.api.plan import earliest
from raytide.api.raycluster import RayCluster, WorkerGroupSpec
from raytide.api.record_fields import diagnoses_entry
from raytide.raycluster.conditions import conditions_of, diagnoses, invalid_conditions, missing_workers
from raytide.raycluster.conditions_scaling import scaling_requeue_after_s
from raytide.raycluster.desired_replicas import ScalingState, wanted_pods
from raytide.raycluster.observed import Observed
from raytide.raycluster.plan_types import RayClusterPlan
from raytide.raycluster.resource_totals import desired_resources, max_workers, min_workers
from raytide.raycluster.suspension import Suspension, suspension_conditions, suspension_of

READY: Final = "ready"
SUSPENDED: Final = "suspended"
MISSING_TOLERANCE_S: Final = 30.0
SHOWN_AT_0: Final = ("desiredWorkerReplicas", "availableWorkerReplicas", "readyWorkerReplicas")
"""Numbers in columns of kubectl, which are empty where KubeRay omits a 0."""
_NOT_FAILED: Final = frozenset({Result.DONE, Result.SKIPPED})

Status = dict[str, Any]


def status(
    cluster: RayCluster,
    observed: Observed,
    planned: RayClusterPlan,
    outcomes: Sequence[Outcome],
    now: datetime,
    *,
    scaling: ScalingState,
    config: PodConfig = PodConfig(),  # noqa: B008 - frozen
    tracks_readiness: bool = False,
) -> Status:
    """The whole status for `now`; equal to the one read when nothing changed. `scaling` is that of `observed`."""
    old = cluster.status
    new: Status = {**without_unreached(old, cluster.metadata.generation), **_seen(cluster, observed)}
    phase = suspension_of(cluster)
    if planned.violations:
        # The generation is not observed: nothing was written for it (RM:I9). A suspension continues.
        is_on = phase is not Suspension.NONE
        besides = suspension_conditions(phase, has_pods=bool(observed.suspendable)) if is_on else None
        new["conditions"] = invalid_conditions(old.get("conditions") or (), planned.violations, now, besides)
        new |= _entered(cluster, _suspended_state(cluster, phase, observed), now) if is_on else {}
    else:
        new["observedGeneration"] = cluster.metadata.generation
        new |= _wanted(cluster, scaling)
        missing = tuple(missing_workers(cluster, observed, scaling, outcomes))
        new["conditions"] = conditions_of(
            cluster, observed, scaling, outcomes, now, missing=missing, violations=planned.unprotected, config=config
        )
        new["diagnoses"] = diagnoses_entry(diagnoses(cluster, observed, outcomes, missing))
        has_failures = bool(observed.pending_retries) or any(outcome.result not in _NOT_FAILED for outcome in outcomes)
        is_over = tracks_readiness and _tolerated_s({**new, "state": old.get("state")}, now) == 0
        state = _next_state(cluster, observed, new, has_failures=has_failures, is_over=is_over)
        new |= _entered(cluster, state, now)
    zeros = _shown_zeros(old, is_valid=not planned.violations)
    new = {key: value for key, value in new.items() if value not in (None, "", 0, {}, [], ()) or key in zeros}
    if merge_difference(old, new):
        new["lastUpdateTime"] = timestamp(now)
    return new


def requeue_after_s(
    cluster: RayCluster,
    observed: Observed,
    computed: Mapping[str, Any],
    now: datetime,
    *,
    scaling: ScalingState,
    tracks_readiness: bool = False,
) -> float | None:
    """Seconds until the status changes by the passing of time alone; None when only a watch event can change it."""
    conditions = computed.get("conditions") or ()
    scaling_s = scaling_requeue_after_s(cluster, scaling, conditions, observed.seen_at)
    return earliest(leaves_ready_in(computed, now) if tracks_readiness else None, scaling_s)


def leaves_ready_in(computed: Mapping[str, Any], now: datetime) -> float | None:
    """Seconds until `state` has to leave `ready` unless the cluster recovers; None when it need not.

    Never zero for a status computed at `now`: a due transition has been made, and a state that stayed `ready` (all pods
    run, one of them has no Ready condition) must not requeue the cluster at once again and again.
    """
    left_s = _tolerated_s(computed, now)
    return None if left_s == 0 else left_s


def _tolerated_s(status_json: Mapping[str, Any], now: datetime) -> float | None:
    """The rest of the 30 s; None when nothing is missing or the state is not `ready`."""
    since = _unready_since(status_json.get("conditions") or ())
    if status_json.get("state") != READY or since is None:
        return None
    return max(0.0, MISSING_TOLERANCE_S - (now - since).total_seconds())


def _shown_zeros(old: Mapping[str, Any], *, is_valid: bool) -> Container[str]:
    """The numbers that are written when they are 0: all, but not into a status in which KubeRay omitted the ready workers.

    Such a status stays what it is until the number is another one, as long as KubeRay may take the cluster over again. The same
    holds while a spec is invalid.
    """
    is_new = is_valid and "observedGeneration" not in old
    return SHOWN_AT_0 if is_new or "readyWorkerReplicas" in old else ()


# --- parts -----------------------------------------------------------------------------------------------------------


def _seen(cluster: RayCluster, observed: Observed) -> Status:
    """Fields that depend on pods and services only, and are correct for an invalid spec too."""
    running = [pod for pod in observed.workers if pod.is_running]
    seen: Status = {
        "readyWorkerReplicas": sum(pod.is_running_and_ready for pod in running),
        "availableWorkerReplicas": len(running),
        "head": _head(observed),
    }
    if observed.head_service is not None:
        ports = {port.name: port.endpoint for port in observed.head_service.ports}
        seen["endpoints"] = {**(cluster.status.get("endpoints") or {}), **ports}
    return seen


def _wanted(cluster: RayCluster, scaling: ScalingState) -> Status:
    groups = cluster.spec.worker_group_specs
    return {
        "desiredWorkerReplicas": sum(wanted_pods(group, scaling.desired_replicas_of(group)) for group in groups),
        "minWorkerReplicas": min_workers(groups),
        "maxWorkerReplicas": max_workers(groups),
        **desired_resources(cluster, replicas_by_group=_decided(groups, scaling)),
    }


def _head(observed: Observed) -> Status:
    """Address and name of head pod and service (RC §1.5); for a headless service the pod's address."""
    pod, service = observed.head, observed.head_service
    pod_ip = pod.pod_ip if pod else ""
    head = {"podIP": pod_ip, "podName": pod.name if pod else ""}
    if service is not None:
        is_headless = service.cluster_ip == "None"
        head |= {"serviceName": service.name, "serviceIP": pod_ip if is_headless else service.cluster_ip}
    return {key: value for key, value in head.items() if value}


def _decided(groups: Sequence[WorkerGroupSpec], scaling: ScalingState) -> dict[str, int]:
    """The replicas of the groups that the record decides; the others count as written (RC §1.5)."""
    return {
        group.group_name: scaling.desired_replicas_of(group).replicas
        for group in groups
        if scaling.decision_of(group) is not None
    }


def _entered(cluster: RayCluster, state: str, now: datetime) -> Status:
    """The fields that change with the state."""
    if state == str(cluster.status.get("state") or ""):
        return {}
    if not state:
        return {"state": ""}
    times = {**(cluster.status.get("stateTransitionTimes") or {}), state: timestamp(now)}
    return {"state": state, "reason": "", "stateTransitionTimes": times}


def _next_state(cluster: RayCluster, observed: Observed, new: Status, *, has_failures: bool, is_over: bool) -> str:
    """The new `state`; `is_over` means that the tolerance for an outdated `ready` has passed."""
    before = str(cluster.status.get("state") or "")
    phase = suspension_of(cluster)
    if phase is not Suspension.NONE:
        return _suspended_state(cluster, phase, observed)
    has_all = len(observed.pods) == new["desiredWorkerReplicas"] + 1
    are_well = all(pod.is_running_and_not_unready and not pod.is_terminating for pod in observed.pods)
    if not has_failures and has_all and are_well:  # a terminating pod is not one of the wanted pods (RM:I9)
        return READY
    return "" if is_over else before


def _suspended_state(cluster: RayCluster, phase: Suspension, observed: Observed) -> str:
    """The old state until the last pod is gone; only then is the capacity free for other workloads (RC:SU-2)."""
    before = str(cluster.status.get("state") or "")
    return before if observed.suspendable or phase is Suspension.RESUMING else SUSPENDED


def _unready_since(conditions: Sequence[Mapping[str, Any]]) -> datetime | None:
    """The time since which head or workers have been missing."""
    head = find_condition(conditions, constants.HEAD_POD_READY)
    workers = find_condition(conditions, constants.WORKERS_MISSING)
    unready = [workers] if workers else []
    if head and head.get("status") == "False":
        unready.append(head)
    times = [parse_timestamp(str(condition.get("lastTransitionTime"))) for condition in unready]
    return min((time for time in times if time is not None), default=None)
