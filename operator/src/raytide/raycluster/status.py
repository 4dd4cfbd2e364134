"""What does a RayCluster's status say?

Takes the cluster as read, what is observed after acting, the plan and its outcomes, and gives the whole status; the
difference to the one read is the patch (D8). It keeps KubeRay's fields, values and conditions (RC §1.5–1.7), and adds
`WorkersMissing`, `Invalid` and `Unsupported` while there is something to say. Where `tracks_readiness` asks for it, `state`
leaves `ready` when head or workers have been missing for 30 s (SC:S21, RM:I9); by default it stays, as in KubeRay, because
Kueue evicts what does not (FD:RC-B5). Called by the controller once per pass; writes nothing itself.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from raytide.api import names
from raytide.api.actions import Outcome, Result
from raytide.api.conditions import find_condition, moment_of, timestamp
from raytide.api.config import AutoscalerMode
from raytide.api.merge_patch import merge_difference
from raytide.api.raycluster import RayCluster, WorkerGroupSpec
from raytide.raycluster.observed import Observed
from raytide.raycluster.planned import Plan, sooner
from raytide.raycluster.scaling import Scaling, scaling_of, wanted_pods
from raytide.raycluster.scaling_conditions import next_look_in
from raytide.raycluster.status_conditions import conditions_of, invalid_conditions
from raytide.raycluster.suspension import Suspension, suspension_of, suspension_sayings
from raytide.raycluster.totals import desired_resources, max_workers, min_workers

READY: Final = "ready"
SUSPENDED: Final = "suspended"
MISSING_TOLERANCE_S: Final = 30.0
_ENDS_WELL: Final = frozenset({Result.DONE, Result.SKIPPED})

Status = dict[str, Any]


def status(
    cluster: RayCluster,
    observed: Observed,
    todo: Plan,
    outcomes: Sequence[Outcome],
    now: datetime,
    *,
    mode: AutoscalerMode = "raytide",
    tracks_readiness: bool = False,
) -> Status:
    """The whole status as it should read now; equal to the one read when nothing changed."""
    old = cluster.status
    new: Status = {**old, **_seen(cluster, observed)}
    phase = suspension_of(cluster)
    if todo.violations:
        # The generation is not observed: nothing was done about it (RM:I9). A suspension goes on.
        is_on = phase is not Suspension.NONE
        besides = suspension_sayings(phase, has_pods=bool(observed.pods)) if is_on else None
        new["conditions"] = invalid_conditions(old.get("conditions") or (), todo.violations, now, besides)
        new |= _entered(cluster, _suspended_state(cluster, phase, observed), now) if is_on else {}
    else:
        new["observedGeneration"] = max(cluster.metadata.generation, int(old.get("observedGeneration") or 0))
        scaling = scaling_of(cluster, observed, mode)
        new |= _wanted(cluster, scaling)
        new["conditions"] = conditions_of(cluster, observed, scaling, outcomes, now, faults=todo.unprotected)
        has_trouble = bool(observed.refusals) or any(outcome.result not in _ENDS_WELL for outcome in outcomes)
        is_over = tracks_readiness and _tolerated_s({**new, "state": old.get("state")}, now) == 0
        state = _next_state(cluster, observed, new, has_trouble=has_trouble, is_over=is_over)
        new |= _entered(cluster, state, now)
    new = {key: value for key, value in new.items() if value not in (None, "", 0, {}, [], ())}
    if merge_difference(old, new):
        new["lastUpdateTime"] = timestamp(now)
    return new


def status_patch(cluster: RayCluster, computed: Mapping[str, Any]) -> Status | None:
    """The body of the status patch; None when there is nothing to write.

    Guarded by the version that was read, because a status endpoint takes no notice of a uid: a namesake, or a spec that
    changed meanwhile, is a Conflict.
    """
    difference = merge_difference(cluster.status, computed)
    if not difference:
        return None
    return {"metadata": {"resourceVersion": cluster.metadata.resource_version}, "status": difference}


def look_again_in(
    cluster: RayCluster,
    observed: Observed,
    computed: Mapping[str, Any],
    now: datetime,
    *,
    mode: AutoscalerMode = "raytide",
    tracks_readiness: bool = False,
) -> float | None:
    """Seconds until the status has to change though nothing happens; None when only news matter."""
    conditions = computed.get("conditions") or ()
    scaling = next_look_in(cluster, scaling_of(cluster, observed, mode), conditions, observed.seen_at)
    return sooner(leaves_ready_in(computed, now) if tracks_readiness else None, scaling)


def leaves_ready_in(computed: Mapping[str, Any], now: datetime) -> float | None:
    """Seconds until `state` has to leave `ready` unless things get better; None when it need not.

    Never zero for a status computed at `now`: what was due is done, and what stayed ready then (all pods run, one of them
    has no Ready condition) is no reason to look again at once, for ever.
    """
    left_s = _tolerated_s(computed, now)
    return None if left_s == 0 else left_s


def _tolerated_s(status_json: Mapping[str, Any], now: datetime) -> float | None:
    """What is left of the 30 s, None when nothing is missing or the state is not `ready` anyway."""
    since = _unwell_since(status_json.get("conditions") or ())
    if status_json.get("state") != READY or since is None:
        return None
    return max(0.0, MISSING_TOLERANCE_S - (now - since).total_seconds())


# --- parts -----------------------------------------------------------------------------------------------------------


def _seen(cluster: RayCluster, observed: Observed) -> Status:
    """What only depends on pods and services, and stays true for an invalid spec."""
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


def _wanted(cluster: RayCluster, scaling: Scaling) -> Status:
    groups = cluster.spec.worker_group_specs
    return {
        "desiredWorkerReplicas": sum(wanted_pods(group, scaling.order_of(group)) for group in groups),
        "minWorkerReplicas": min_workers(groups),
        "maxWorkerReplicas": max_workers(groups),
        **desired_resources(cluster, replicas_by_group=_decided(groups, scaling)),
    }


def _head(observed: Observed) -> Status:
    """Address and name of head pod and service (RC §1.5); a headless service shows the pod's address."""
    pod, service = observed.head, observed.head_service
    pod_ip = pod.pod_ip if pod else ""
    head = {"podIP": pod_ip, "podName": pod.name if pod else ""}
    if service is not None:
        is_headless = service.cluster_ip == "None"
        head |= {"serviceName": service.name, "serviceIP": pod_ip if is_headless else service.cluster_ip}
    return {key: value for key, value in head.items() if value}


def _decided(groups: Sequence[WorkerGroupSpec], scaling: Scaling) -> dict[str, int]:
    """The replicas of the groups about which the record rules; the others count as written (RC §1.5)."""
    return {
        group.group_name: scaling.order_of(group).replicas for group in groups if scaling.decision_of(group) is not None
    }


def _entered(cluster: RayCluster, state: str, now: datetime) -> Status:
    """What changes when the state does."""
    if state == str(cluster.status.get("state") or ""):
        return {}
    if not state:
        return {"state": ""}
    times = {**(cluster.status.get("stateTransitionTimes") or {}), state: timestamp(now)}
    return {"state": state, "reason": "", "stateTransitionTimes": times}


def _next_state(cluster: RayCluster, observed: Observed, new: Status, *, has_trouble: bool, is_over: bool) -> str:
    """What `state` becomes; `is_over` says that a `ready` which is no longer earned has been borne long enough."""
    before = str(cluster.status.get("state") or "")
    phase = suspension_of(cluster)
    if phase is not Suspension.NONE:
        return _suspended_state(cluster, phase, observed)
    has_all = len(observed.pods) == new["desiredWorkerReplicas"] + 1
    are_well = all(pod.is_running_and_not_unready and not pod.is_terminating for pod in observed.pods)
    if not has_trouble and has_all and are_well:  # a dying pod is none of those that are wanted (RM:I9)
        return READY
    return "" if is_over else before


def _suspended_state(cluster: RayCluster, phase: Suspension, observed: Observed) -> str:
    """As it was, until the last pod has gone: whoever waits for the room may have it then, not before (RC:SU-2)."""
    before = str(cluster.status.get("state") or "")
    return before if observed.pods or phase is Suspension.RESUMING else SUSPENDED


def _unwell_since(conditions: Sequence[Mapping[str, Any]]) -> datetime | None:
    """Since when head or workers have been missing."""
    head = find_condition(conditions, names.HEAD_POD_READY)
    workers = find_condition(conditions, names.WORKERS_MISSING)
    unwell = [workers] if workers else []
    if head and head.get("status") == "False":
        unwell.append(head)
    moments = [moment_of(str(condition.get("lastTransitionTime"))) for condition in unwell]
    return min((moment for moment in moments if moment is not None), default=None)
