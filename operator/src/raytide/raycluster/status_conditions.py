"""What do the conditions of a RayCluster say?

Takes the cluster, its observed pods and the outcomes of this pass, and gives the new list of conditions: KubeRay's five
(RC §1.6), and those of ours that stand there only while there is something to say: `WorkersMissing` (SC:S21), the three
about scaling (scaling_conditions.py), `Unsupported` (fields whose feature is not built) and `Invalid`. Times move only
when a status does (RC:K-6). Called by status.py.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import reduce
from typing import Final

from raytide.api import names
from raytide.api.actions import Outcome, Result
from raytide.api.conditions import (
    ConditionJson,
    Conditions,
    Saying,
    is_condition_true,
    remove_condition,
    set_condition,
)
from raytide.api.meta import PODS
from raytide.api.pod import PodView
from raytide.api.pod_trouble import is_namespace_terminating, trouble_of, trouble_of_refusal
from raytide.api.raycluster import RayCluster
from raytide.raycluster.observed import Observed
from raytide.raycluster.plan import HEADLESS_SLOT, RIGHTS_SLOT, SERVICE_SLOT
from raytide.raycluster.scaling import Scaling, wanted_pods
from raytide.raycluster.scaling_conditions import scaling_sayings
from raytide.raycluster.suspension import Suspension, suspension_of, suspension_sayings
from raytide.raycluster.validation import Violation, unsupported

FAILURE_CLASS: Final = {
    names.FAILED_TO_CREATE_SERVICE: "FailedCreateService",
    names.FAILED_TO_CREATE_SERVICE_ACCOUNT: "FailedCreateServiceAccount",
    names.FAILED_TO_CREATE_ROLE: "FailedCreateRole",
    names.FAILED_TO_CREATE_ROLE_BINDING: "FailedCreateRoleBinding",
    names.FAILED_TO_CREATE_HEAD_POD: "FailedCreateHeadPod",
    names.FAILED_TO_DELETE_HEAD_POD: "FailedDeleteHeadPod",
    names.FAILED_TO_CREATE_WORKER_POD: "FailedCreateWorkerPod",
    names.FAILED_TO_DELETE_WORKER_POD: "FailedDeleteWorkerPod",
    names.FAILED_TO_DELETE_POD_COLLECTION: "FailedDeleteAllPods",
}
"""ReplicaFailure's reason by event reason; those of services and rights are ours, KubeRay has none."""

WAITING: Final = "WaitingForPods"
RANDOM_SUFFIX_LENGTH: Final = 5


def conditions_of(
    cluster: RayCluster,
    observed: Observed,
    scaling: Scaling,
    outcomes: Sequence[Outcome],
    now: datetime,
    *,
    faults: Sequence[Violation] = (),
) -> list[dict[str, object]]:
    """All conditions of a valid cluster; `faults` are why it gets no new pods all the same (FD:RC-B3)."""
    conditions: Conditions = tuple(cluster.status.get("conditions") or ())
    sayings: dict[str, Saying | None] = {  # in the order in which KubeRay first sets them, then ours
        names.REPLICA_FAILURE: replica_failure(observed, outcomes),
        names.HEAD_POD_READY: head_pod_ready(observed.heads),
    }
    is_stored_as_suspended = is_condition_true(conditions, names.SUSPENDED)
    if not is_stored_as_suspended and not is_condition_true(conditions, names.PROVISIONED):
        sayings[names.PROVISIONED] = provisioned(cluster, observed, scaling)
    sayings |= suspension_sayings(suspension_of(cluster), has_pods=bool(observed.pods))
    sayings[names.WORKERS_MISSING] = workers_missing(cluster, observed, scaling, outcomes)
    sayings |= scaling_sayings(cluster, scaling, observed.seen_at)
    sayings[names.UNSUPPORTED] = unsupported_fields(cluster)
    sayings[names.INVALID] = invalid(faults) if faults else None
    return _told(conditions, sayings, now)


def invalid_conditions(
    conditions: Sequence[ConditionJson],
    faults: Sequence[Violation],
    now: datetime,
    besides: Mapping[str, Saying] | None = None,
) -> list[dict[str, object]]:
    """The conditions as they were, plus every fault of the spec, and `besides` what goes on all the same."""
    return _told(tuple(conditions), {**(besides or {}), names.INVALID: invalid(faults)}, now)


def _told(conditions: Conditions, sayings: dict[str, Saying | None], now: datetime) -> list[dict[str, object]]:
    def tell(so_far: Conditions, entry: tuple[str, Saying | None]) -> Conditions:
        kind, saying = entry
        if saying is None:
            return remove_condition(so_far, kind)
        return set_condition(so_far, kind, status=saying.status, reason=saying.reason, message=saying.message, now=now)

    return [dict(condition) for condition in reduce(tell, sayings.items(), conditions)]


# --- one condition each ------------------------------------------------------------------------------------------------


def invalid(faults: Sequence[Violation]) -> Saying:
    """What is wrong with the spec, or asked for and not possible; at least one fault."""
    message = "; ".join(str(fault) for fault in faults)
    return Saying(names.INVALID, status=True, reason=faults[0].event_reason, message=message)


def head_pod_ready(heads: Sequence[PodView]) -> Saying:
    """The head pod's own Ready condition, with the container's trouble spelled out (RC §1.6)."""
    if not heads:
        return Saying(names.HEAD_POD_READY, status=False, reason="HeadPodNotFound", message="head pod not found")
    head = min(heads, key=lambda pod: (pod.is_terminating, pod.creation_timestamp or "~"))
    ready = head.ready
    if not ready.status:
        return Saying(names.HEAD_POD_READY, status=False, reason="Unknown")
    reason, message = ready.reason, ready.message
    if reason == "ContainersNotReady":
        stuck = next((c for c in head.containers if c.state in ("waiting", "terminated")), None)
        if stuck is not None:
            reason = stuck.reason or reason
            message = "; ".join(part for part in (message, f"{stuck.name}: {stuck.message}") if part)
    return Saying(names.HEAD_POD_READY, ready.status, reason or _default_head_reason(ready.is_true), message)


def _default_head_reason(is_ready: bool) -> str:  # noqa: FBT001 - the one thing it depends on
    return "HeadPodRunningAndReady" if is_ready else "Unknown"


def provisioned(cluster: RayCluster, observed: Observed, scaling: Scaling) -> Saying:
    """True the first time that head and all wanted workers run; the caller lets it stick (RC §1.6).

    KubeRay does not count, and calls a cluster provisioned whose workers could not even be created (FD:RC-B20).
    """
    are_well = all(pod.is_running_and_not_unready for pod in observed.pods)
    staying = [pod for pod in observed.pods if not pod.is_terminating]
    counts = Counter(pod.group for pod in staying if pod.is_worker)
    are_all = any(pod.is_head for pod in staying) and all(
        counts[group.group_name] >= wanted_pods(group, scaling.order_of(group))
        for group in cluster.spec.worker_group_specs
    )
    if are_well and are_all:
        return Saying(
            names.PROVISIONED,
            status=True,
            reason="AllPodRunningAndReadyFirstTime",
            message="all pods are running and ready",
        )
    return Saying(
        names.PROVISIONED,
        status=False,
        reason="RayClusterPodsProvisioning",
        message="pods are being provisioned",
    )


def replica_failure(observed: Observed, outcomes: Sequence[Outcome]) -> Saying | None:
    """What the API refused, by group, in its own words; gone when nothing is refused any more (RC §1.6, SC:S3)."""
    failures = dict(_refusals(observed, outcomes))
    if not failures:
        return None
    reasons = [FAILURE_CLASS.get(reason, reason) for _, reason in failures]
    nameless = (SERVICE_SLOT, HEADLESS_SLOT, RIGHTS_SLOT)
    texts = [text if group in nameless else f"group {group}: {text}" for (group, _), text in failures.items()]
    return Saying(names.REPLICA_FAILURE, status=True, reason=reasons[0], message="; ".join(texts))


def _refusals(observed: Observed, outcomes: Iterable[Outcome]) -> Iterable[tuple[tuple[str, str], str]]:
    """(group, event reason) and text of every refusal, remembered or fresh; the latest of a kind wins."""
    for refusal in observed.refusals:
        yield (refusal.group, refusal.reason), refusal.message
    for outcome in outcomes:
        if outcome.result is Result.REFUSED and not is_namespace_terminating(outcome.message):
            yield (outcome.action.group, outcome.action.otherwise), refusal_text(outcome)


def refusal_text(outcome: Outcome) -> str:
    """The API's words without the random end of a pod's name, so that a retry says the same and nothing is rewritten."""
    name = outcome.action.name
    if outcome.action.resource != PODS:
        return outcome.message or outcome.reason
    return (outcome.message or outcome.reason).replace(name, name[:-RANDOM_SUFFIX_LENGTH] + "*")


def workers_missing(
    cluster: RayCluster, observed: Observed, scaling: Scaling, outcomes: Sequence[Outcome]
) -> Saying | None:
    """Per group how many wanted workers are not ready, and the cause a person would act on (SC:S21)."""
    if suspension_of(cluster) is not Suspension.NONE:
        return None
    refused = {group: text for (group, _), text in _refusals(observed, outcomes)}
    found = [
        lack
        for group in cluster.spec.worker_group_specs
        if (
            lack := _lack(
                group.group_name,
                wanted_pods(group, scaling.order_of(group)),
                observed.group(group.group_name),
                refused.get(group.group_name),
            )
        )
    ]
    if not found:
        return None
    reason = next((reason for reason, _ in found if reason != WAITING), WAITING)
    return Saying(names.WORKERS_MISSING, status=True, reason=reason, message="; ".join(text for _, text in found))


def _lack(group: str, wanted: int, pods: Sequence[PodView], refused: str | None) -> tuple[str, str] | None:
    missing = wanted - sum(pod.is_running_and_ready and not pod.is_terminating for pod in pods)
    if missing <= 0:
        return None
    troubles = [trouble for pod in pods if (trouble := trouble_of(pod))]
    if refused is not None:
        troubles.append(trouble_of_refusal("", refused))
    text = f"group {group}: {missing} of {wanted} workers not ready"
    if not troubles:
        return WAITING, text
    counts = Counter(trouble.cause for trouble in troubles)
    worst, _ = counts.most_common(1)[0]
    detail = next(trouble.detail for trouble in troubles if trouble.cause is worst)
    return worst.value, f"{text} ({worst.value}: {detail})"


def unsupported_fields(cluster: RayCluster) -> Saying | None:
    """The fields of the spec that nothing here acts on yet; none is ignored silently."""
    fields = unsupported(cluster)
    if not fields:
        return None
    message = "; ".join(str(field) for field in fields)
    return Saying(names.UNSUPPORTED, status=True, reason="FeatureNotBuilt", message=message)
