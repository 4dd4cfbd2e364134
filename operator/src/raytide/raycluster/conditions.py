"""Status conditions of a RayCluster.

Takes the cluster, its observed pods and the outcomes of this reconcile, and returns the new list of conditions: the
five of KubeRay (RC §1.6), and those of Raytide, which are present only while they apply: `WorkersMissing` (SC:S21), the
three about scaling (conditions_scaling.py), `Unsupported` (fields of features that are not built) and `Invalid`.
lastTransitionTime changes only when a status does (RC:K-6). Called by status.py.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from raytide.api import constants
from raytide.api.actions import EventSpec, Outcome, Result
from raytide.api.conditions import (
    ConditionJson,
    Conditions,
    ConditionUpdate,
    apply_updates,
    find_condition,
    is_condition_true,
)
from raytide.api.config import PodConfig
from raytide.api.meta import PODS
from raytide.api.pod import ContainerView, PodView
from raytide.api.pod_failure import failure_of, failure_of_rejection, is_namespace_terminating
from raytide.api.raycluster import RayCluster
from raytide.diagnosis.model import Diagnosis
from raytide.diagnosis.render import holder_and_fix
from raytide.raycluster import causes, messages
from raytide.raycluster.conditions_scaling import scaling_conditions
from raytide.raycluster.desired_replicas import ScalingState, wanted_pods
from raytide.raycluster.observed import Observed
from raytide.raycluster.owned_objects import NAMELESS_SLOTS
from raytide.raycluster.suspension import Suspension, suspension_conditions, suspension_of
from raytide.raycluster.validation import Violation, unsupported

FAILURE_CLASS: Final = {
    constants.FAILED_TO_CREATE_SERVICE: constants.FAILED_CREATE_SERVICE,
    constants.FAILED_TO_CREATE_SERVICE_ACCOUNT: constants.FAILED_CREATE_SERVICE_ACCOUNT,
    constants.FAILED_TO_CREATE_ROLE: constants.FAILED_CREATE_ROLE,
    constants.FAILED_TO_CREATE_ROLE_BINDING: constants.FAILED_CREATE_ROLE_BINDING,
    constants.FAILED_TO_CREATE_HEAD_POD: constants.FAILED_CREATE_HEAD_POD,
    constants.FAILED_TO_DELETE_HEAD_POD: constants.FAILED_DELETE_HEAD_POD,
    constants.FAILED_TO_CREATE_WORKER_POD: constants.FAILED_CREATE_WORKER_POD,
    constants.FAILED_TO_DELETE_WORKER_POD: constants.FAILED_DELETE_WORKER_POD,
    constants.FAILED_TO_DELETE_POD_COLLECTION: constants.FAILED_DELETE_ALL_PODS,
}
"""ReplicaFailure's reason by event reason; those of services and RBAC objects are Raytide's, KubeRay has none."""

CREATES: Final = frozenset(reason for reason in FAILURE_CLASS if reason.startswith("FailedToCreate"))
"""Event reasons of rejected creates."""
RANDOM_SUFFIX_LENGTH: Final = 5


def conditions_of(
    cluster: RayCluster,
    observed: Observed,
    scaling: ScalingState,
    outcomes: Sequence[Outcome],
    now: datetime,
    *,
    missing: Sequence["MissingWorkers"],
    violations: Sequence[Violation] = (),
    config: PodConfig = PodConfig(),  # noqa: B008 - frozen
) -> list[dict[str, object]]:
    """All conditions of a valid cluster; `missing` are those of `missing_workers`, `violations` are why no pods are created for it nevertheless (FD:RC-B3)."""
    conditions: Conditions = tuple(cluster.status.get("conditions") or ())
    updates: dict[str, ConditionUpdate | None] = {  # in the order in which KubeRay first sets them, then Raytide's
        constants.REPLICA_FAILURE: replica_failure(observed, outcomes),
        constants.HEAD_POD_READY: head_pod_ready(observed.heads),
    }
    is_stored_as_suspended = is_condition_true(conditions, constants.SUSPENDED)
    if not is_stored_as_suspended and not is_condition_true(conditions, constants.PROVISIONED):
        updates[constants.PROVISIONED] = provisioned(cluster, observed, scaling)
    updates |= suspension_conditions(suspension_of(cluster), has_pods=bool(observed.suspendable))
    updates[constants.WORKERS_MISSING] = workers_missing(cluster, observed, missing)
    updates |= scaling_conditions(cluster, observed, scaling)
    updates[constants.UNSUPPORTED] = unsupported_fields(cluster, config)
    updates[constants.INVALID] = invalid(violations) if violations else None
    return apply_updates(conditions, updates, now)


def invalid_conditions(
    conditions: Sequence[ConditionJson],
    violations: Sequence[Violation],
    now: datetime,
    besides: Mapping[str, ConditionUpdate] | None = None,
) -> list[dict[str, object]]:
    """The stored conditions, plus `Invalid` with every violation of the spec, plus the conditions in `besides`."""
    return apply_updates(tuple(conditions), {**(besides or {}), constants.INVALID: invalid(violations)}, now)


def condition_events(before: Sequence[ConditionJson], after: Sequence[ConditionJson]) -> Iterator[EventSpec]:
    """The events for conditions of a status that was just written.

    `WorkersMissing`, `ScalingLimited` and `ReplicasContended` have one when they become True and when their reason changes, not
    when numbers in their message do. Workers that merely start have none. The conditions before are those that were stored, so that an operator that
    restarts repeats none.
    """
    for condition_type in (constants.WORKERS_MISSING, constants.SCALING_LIMITED, constants.REPLICAS_CONTENDED):
        old, new = find_condition(before, condition_type) or {}, find_condition(after, condition_type) or {}
        is_known = old.get("status") == "True" and old.get("reason") == new.get("reason")
        if new.get("status") == "True" and not is_known and new.get("reason") != constants.WAITING_FOR_PODS:
            yield messages.condition_true(condition_type, str(new.get("message") or ""))


# --- one condition each -----------------------------------------------------------------------------------------------


def invalid(violations: Sequence[Violation]) -> ConditionUpdate:
    """`Invalid`: the violations of the spec and the requests that cannot be fulfilled; at least one."""
    message = "; ".join(str(violation) for violation in violations)
    return ConditionUpdate(constants.INVALID, status=True, reason=violations[0].event_reason, message=message)


def head_pod_ready(heads: Sequence[PodView]) -> ConditionUpdate:
    """`HeadPodReady`: the head pod's own Ready condition, plus the reason of a container that is stuck (RC §1.6)."""
    if not heads:
        return ConditionUpdate(
            constants.HEAD_POD_READY,
            status=False,
            reason=constants.HEAD_POD_NOT_FOUND,
            message=messages.HEAD_POD_NOT_FOUND,
        )
    head = min(heads, key=lambda pod: (pod.is_terminating, pod.creation_timestamp or "~"))
    ready = head.ready
    if head.failed_start:
        container = head.ended_container
        reason = (container.reason if container else "") or head.reason or ready.reason or constants.UNKNOWN
        return ConditionUpdate(constants.HEAD_POD_READY, status=False, reason=reason, message=head.failed_start)
    if not ready.status:
        return ConditionUpdate(constants.HEAD_POD_READY, status=False, reason=constants.UNKNOWN)
    reason, message = ready.reason, ready.message
    if reason == "ContainersNotReady":
        sidecars = [each for each in head.init_containers if each.is_sidecar]  # the pod is Ready when they are, too
        ended = [each for each in (*head.containers, *sidecars) if each.state in ("waiting", "terminated")]
        if ended:
            # The others wait for a native sidecar that does not start.
            stuck = next((each for each in ended if each.reason != "PodInitializing"), ended[0])
            reason = stuck.reason or reason
            message = "; ".join(filter(None, (message, f"{stuck.name}: {_why_stuck(stuck)}")))
    return ConditionUpdate(
        constants.HEAD_POD_READY, ready.status, reason or _default_head_reason(ready.is_true), message
    )


def _why_stuck(container: ContainerView) -> str:
    """Its message; a container that was killed has none, and KubeRay then ends the condition's message after its name."""
    if container.message or container.exit_code is None:
        return container.message or container.reason
    return f"terminated with exit code {container.exit_code}"


def _default_head_reason(is_ready: bool) -> str:  # noqa: FBT001 - the one thing it depends on
    return constants.HEAD_POD_READY_REASON if is_ready else constants.UNKNOWN


def provisioned(cluster: RayCluster, observed: Observed, scaling: ScalingState) -> ConditionUpdate:
    """`RayClusterProvisioned`: True once the head and all wanted workers run; the caller keeps it True (RC §1.6).

    KubeRay does not count pods, so it reports a cluster as provisioned whose workers could not be created (FD:RC-B20).
    """
    are_well = all(pod.is_running_and_not_unready for pod in observed.pods)
    staying = [pod for pod in observed.pods if not pod.is_terminating]
    counts = Counter(pod.group for pod in staying if pod.is_worker)
    are_all = any(pod.is_head for pod in staying) and all(
        counts[group.group_name] >= wanted_pods(group, scaling.desired_replicas_of(group))
        for group in cluster.spec.worker_group_specs
    )
    if are_well and are_all:
        return ConditionUpdate(
            constants.PROVISIONED,
            status=True,
            reason=constants.ALL_PODS_READY_FIRST_TIME,
            message=messages.ALL_PODS_READY,
        )
    return ConditionUpdate(
        constants.PROVISIONED,
        status=False,
        reason=constants.PODS_PROVISIONING,
        message=messages.PODS_PROVISIONING,
    )


def replica_failure(observed: Observed, outcomes: Sequence[Outcome]) -> ConditionUpdate | None:
    """`ReplicaFailure`: the API server's rejections by group, verbatim; None when there are none (RC §1.6, SC:S3)."""
    failures = dict(_rejections(observed, outcomes))
    if not failures:
        return None
    reasons = [FAILURE_CLASS.get(reason, reason) for _, reason in failures]
    texts = [
        text if group in NAMELESS_SLOTS else messages.of_group(group, text) for (group, _), text in failures.items()
    ]
    return ConditionUpdate(constants.REPLICA_FAILURE, status=True, reason=reasons[0], message="; ".join(texts))


def _rejections(observed: Observed, outcomes: Iterable[Outcome]) -> Iterable[tuple[tuple[str, str], str]]:
    """(group, event reason) and text of every rejection, stored or new; the latest of each pair wins."""
    for retry in observed.pending_retries:
        yield (retry.group, retry.reason), retry.message
    for outcome in outcomes:
        if outcome.result is Result.REJECTED and not is_namespace_terminating(outcome.message):
            yield (outcome.action.group, outcome.action.failure_reason), rejection_text(outcome)


def rejection_text(outcome: Outcome) -> str:
    """The API server's message without a pod name's random suffix, so that a retry does not change the status."""
    name = outcome.action.name
    if outcome.action.resource != PODS:
        return outcome.message or outcome.reason
    return (outcome.message or outcome.reason).replace(name, name[:-RANDOM_SUFFIX_LENGTH] + "*")


def diagnoses(
    cluster: RayCluster, observed: Observed, outcomes: Sequence[Outcome], missing: Iterable["MissingWorkers"]
) -> Iterator[Diagnosis]:
    """`status.diagnoses`: why workers of each group are missing, then rejected creates that are not the most frequent cause.

    None while the cluster is suspended. Read by the autoscaler and by `raytide why` (SC:S21, FD:ST3-2).
    """
    if suspension_of(cluster) is not Suspension.NONE:
        return
    told, groups = set(), {constants.HEAD_GROUP, *(group.group_name for group in cluster.spec.worker_group_specs)}
    for each in missing:
        if each.failure is None:
            yield Diagnosis(constants.WAITING_FOR_PODS, each.missing, group=each.group)
            continue
        told.add((each.group, each.failure.reason))
        yield causes.of_group(replace(each.failure, count=each.missing), cluster, each.group, observed)
    for (slot, reason), text in _rejections(observed, outcomes):
        group = slot if slot in groups else ""
        found = replace(failure_of_rejection(text), group=group)
        if reason in CREATES and (group, found.reason) not in told:
            told.add((group, found.reason))
            yield found


def workers_missing(
    cluster: RayCluster, observed: Observed, missing: Iterable["MissingWorkers"]
) -> ConditionUpdate | None:
    """`WorkersMissing`: how many wanted workers of each group are not ready, the most frequent cause, holder and fix (SC:S21)."""
    if suspension_of(cluster) is not Suspension.NONE:
        return None
    reasons, texts = [], []
    for each in missing:
        name, failure = each.group, each.failure
        if failure is None:
            texts.append(messages.workers_not_ready(name, each.missing, each.wanted))
            continue
        reasons.append(failure.reason)
        text = messages.workers_not_ready(name, each.missing, each.wanted, failure.reason, failure.message)
        if len(reasons) <= causes.MAX_FIXES:
            text += holder_and_fix(causes.of_group(failure, cluster, name, observed), causes.workload_of(cluster))
        texts.append(text)
    if not texts:
        return None
    reason = reasons[0] if reasons else constants.WAITING_FOR_PODS
    return ConditionUpdate(constants.WORKERS_MISSING, status=True, reason=reason, message="; ".join(texts))


@dataclass(frozen=True, slots=True)
class MissingWorkers:
    """Wanted workers of a group that are not ready."""

    group: str
    missing: int
    wanted: int
    failure: Diagnosis | None
    """The most frequent known cause."""


def missing_workers(
    cluster: RayCluster, observed: Observed, scaling: ScalingState, outcomes: Sequence[Outcome]
) -> Iterator[MissingWorkers]:
    """The groups that have fewer ready workers than wanted, in the order of the spec."""
    rejections = {group: failure_of_rejection(text) for (group, _), text in _rejections(observed, outcomes)}
    for group in cluster.spec.worker_group_specs:
        name, pods = group.group_name, observed.group(group.group_name)
        wanted = wanted_pods(group, scaling.desired_replicas_of(group))
        missing = wanted - sum(pod.is_running_and_ready and not pod.is_terminating for pod in pods)
        if missing > 0:
            yield MissingWorkers(name, missing, wanted, most_frequent_failure(pods, rejections.get(name)))


def most_frequent_failure(pods: Sequence[PodView], rejection: Diagnosis | None) -> Diagnosis | None:
    """The most frequent cause with its first message, the API server's rejection of creates included; None when none is known."""
    failures = [failure for pod in pods if (failure := failure_of(pod))]
    if rejection is not None:
        failures.append(rejection)
    if not failures:
        return None
    reason, _ = Counter(failure.reason for failure in failures).most_common(1)[0]
    return next(failure for failure in failures if failure.reason == reason)


def unsupported_fields(cluster: RayCluster, config: PodConfig) -> ConditionUpdate | None:
    """`Unsupported`: the fields of the spec that Raytide does not act on yet, so that none is ignored silently."""
    fields = unsupported(cluster, config)
    if not fields:
        return None
    message = "; ".join(str(field) for field in fields)
    return ConditionUpdate(constants.UNSUPPORTED, status=True, reason=constants.FEATURE_NOT_BUILT, message=message)
