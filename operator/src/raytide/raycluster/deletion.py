"""Deletion of a RayCluster that has the finalizer for the state of its GCS in Redis (RC:FIN-1..4, D14).

Without that finalizer there is nothing to do: garbage collection removes the children, also while the operator is off (RC:REC-5).
With it, pods are deleted, a Job removes the state once the head is gone, and the finalizer is released when the Job has ended or
the time is over, whatever else is true of the cluster. Where no Job can or must run, it is released at once, and an event
names what stays in Redis. Pure: `state_of` says what is to be removed, `clean_up` and `release_unclean` what to do now. Called by
the reconciler before anything else.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from math import inf
from typing import Any, Final

from pydantic import ValidationError

from raytide.api import constants
from raytide.api.actions import Action, Create, EventSpec, Patch
from raytide.api.conditions import is_condition_true, parse_timestamp
from raytide.api.config import ClusterConfig
from raytide.api.meta import JOBS, RAYCLUSTERS, Manifest
from raytide.api.pod import FINISHED_PHASES, PodView
from raytide.api.raycluster import RayCluster
from raytide.raycluster import messages
from raytide.raycluster.manifests.redis_cleanup import build_cleanup_job, is_cleanup_of
from raytide.raycluster.observed import Observed
from raytide.raycluster.plan_worker_group import Victim
from raytide.raycluster.pod_actions import delete_pod
from raytide.raycluster.spec_queries import ROCKSDB, has_redis_fault_tolerance, is_managed_by_us
from raytide.raycluster.validation import violations

FINALIZER: Final = constants.REDIS_CLEANUP_FINALIZER
CLEANUP_TIMEOUT_S: Final = 300
LEAST_S: Final = 60.0
"""For how long it is tried at least, also where the time was over before the operator came back."""
REJECTED_FOR_S: Final = 30.0
"""How long the create of the Job is tried again; with the end of the head, a rejection holds no cluster for a minute (SC:S20)."""
RETRY_S: Final = 5.0
FIRST_POLL_S: Final = 2.0
LONGEST_POLL_S: Final = 15.0
MAX_DIGITS: Final = 9
"""Of the annotation that sets another time-out; a longer value is not accepted as a number of seconds."""
ORPHAN: Final = "orphan"
FOREGROUND: Final = "foregroundDeletion"
"""Kubernetes' finalizers of `--cascade=orphan` and `--cascade=foreground`."""


class JobState(Enum):
    """The clean-up Job."""

    ABSENT = "absent"
    """There is none, or one of that name that is not for this cluster: its create is tried, and rejected with the owner's name."""
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Deletion:
    """What to do now."""

    actions: tuple[Action, ...] = ()
    """Deletes of pods, or the create of the Job."""
    release: Patch | None = None
    """Removes the finalizer; there is nothing else to do then."""
    event: EventSpec | None = None
    """Event to emit once it is removed."""
    requeue_after_s: float | None = None


def is_being_deleted(obj: Mapping[str, Any]) -> bool:
    """Whether the object has a deletionTimestamp."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def is_held(obj: Mapping[str, Any]) -> bool:
    """Whether the object has the finalizer for Redis, and nobody else removes it: no operator acts on MultiKueue's copy."""
    managed_by = _text(obj, "spec", "managedBy")
    has_finalizer = FINALIZER in (obj["metadata"].get("finalizers") or ())
    return has_finalizer and (is_managed_by_us(managed_by) or managed_by == constants.MULTIKUEUE)


def wants_finalizer(cluster: RayCluster, config: ClusterConfig) -> bool:
    """Whether the state of a GCS in Redis is removed before this cluster is gone (RC:FIN-2)."""
    return config.cleans_up_redis and has_redis_fault_tolerance(cluster)


def finalizer_patch(metadata: Mapping[str, Any], *, is_added: bool) -> Patch:
    """Set or remove this finalizer only; on a Conflict another client changed the object, and it is read again."""
    rest = [finalizer for finalizer in metadata.get("finalizers") or () if finalizer != FINALIZER]
    return Patch(
        RAYCLUSTERS,
        metadata.get("namespace", ""),
        metadata["name"],
        metadata.get("uid", ""),
        {"metadata": {"finalizers": [*rest, *([FINALIZER] if is_added else [])] or None}},
        failure_reason=constants.FAILED_TO_ADD_FINALIZER if is_added else constants.FAILED_TO_REMOVE_FINALIZER,
        version=metadata.get("resourceVersion", ""),
    )


# --- what is to be removed -------------------------------------------------------------------------------------------


def state_of(obj: Manifest, config: ClusterConfig) -> RayCluster | str:
    """The cluster whose state in Redis is to be removed, or why none is; empty where Redis has none (RC:FIN-1, RC:FIN-4)."""
    if _text(obj, "spec", "gcsFaultToleranceOptions", "backend") == ROCKSDB:
        return ""
    if not is_managed_by_us(_text(obj, "spec", "managedBy")):
        return messages.OTHER_CONTROLLER
    if ORPHAN in (obj["metadata"].get("finalizers") or ()):
        return messages.PODS_ARE_KEPT
    if not config.cleans_up_redis:
        return messages.CLEANUP_IS_OFF
    try:
        cluster = RayCluster.parse(obj)
    except ValidationError:
        return messages.UNREADABLE_SPEC
    if violations(cluster, config):
        return messages.INVALID_SPEC
    return cluster if has_redis_fault_tolerance(cluster) else messages.FT_IS_OFF


def is_head_gone(observed: Observed) -> bool:
    """Whether no head writes to Redis any more, nor may still be created.

    One on a lost node is waited for no longer than before it is replaced.
    """
    heads = (*observed.heads, *(pod for pod in observed.arriving if pod.is_head))
    return all(head.is_finished or observed.is_lost(head) for head in heads)


def job_state(cluster: RayCluster, job: Manifest | None) -> JobState:
    """The state of the Job of that name (RC:FIN-3)."""
    if job is None or not is_cleanup_of(cluster, job):
        return JobState.ABSENT
    conditions = (job.get("status") or {}).get("conditions") or ()
    if is_condition_true(conditions, "Complete") or is_condition_true(conditions, "SuccessCriteriaMet"):
        return JobState.SUCCEEDED
    has_failed = is_condition_true(conditions, "Failed") or is_condition_true(conditions, "FailureTarget")
    return JobState.FAILED if has_failed else JobState.RUNNING


# --- what to do now --------------------------------------------------------------------------------------------------


def seconds_left(obj: Mapping[str, Any], now: datetime, tried_for_s: float) -> float:
    """Seconds until the finalizer is released in any case; this operator has tried for `tried_for_s`."""
    metadata = obj["metadata"]
    return max(_timeout_s(metadata) - _elapsed_s(metadata, now), LEAST_S - tried_for_s)


def timed_out(obj: Mapping[str, Any]) -> Deletion:
    """Release the finalizer because the time is over."""
    return _release(obj, constants.FORCE_DELETED_STUCK_CLUSTER, messages.CLEANUP_TIMED_OUT)


def clean_up(
    cluster: RayCluster,
    observed: Observed,
    job: JobState | None,
    config: ClusterConfig,
    *,
    left_s: float,
    tried_for_s: float,
) -> Deletion:
    """Delete the pods, run the Job once the head is gone, and release the finalizer after it; `job` is None while there is a head."""
    obj = cluster.raw
    if observed.ownerless_heads:
        why = messages.head_runs_on(observed.ownerless_heads[0])
        return _release(obj, constants.REDIS_CLEANUP_SKIPPED, why)
    if job is JobState.SUCCEEDED:
        if lost := [head for head in observed.heads if not head.is_finished]:
            why = messages.head_is_lost(lost[0].name, lost[0].node_name)
            return _release(obj, constants.REDIS_CLEANUP_FAILED, why)
        return Deletion(release=finalizer_patch(obj["metadata"], is_added=False))
    if job is JobState.FAILED:
        return _release(obj, constants.REDIS_CLEANUP_FAILED, messages.CLEANUP_JOB_FAILED)
    pods = (*observed.suspendable, *observed.kept)
    alive = (pod for pod in pods if pod.uid and not pod.is_terminating)
    # The Job comes first: unanswered deletes of workers skip the rest of a pass.
    actions: list[Action] = [_create(cluster, config, left_s)] if job is JobState.ABSENT else []
    actions += (delete_pod(Victim(pod, messages.CLUSTER_DELETED)) for pod in alive)
    poll_s = left_s if job is None else min(max(FIRST_POLL_S, tried_for_s / 4), LONGEST_POLL_S)
    return Deletion(tuple(actions), requeue_after_s=min(left_s, poll_s))


def after_rejection(obj: Mapping[str, Any], message: str, rejected_for_s: float) -> Deletion:
    """The API server rejected the create of the Job, first so many seconds ago; infinite where it will do so for ever."""
    if rejected_for_s < REJECTED_FOR_S:
        return Deletion(requeue_after_s=RETRY_S)
    return _release(obj, constants.REDIS_CLEANUP_FAILED, messages.cleanup_job_rejected(message))


def left_in_redis(cluster: RayCluster, config: ClusterConfig) -> tuple[EventSpec, ...]:
    """What stays in Redis when the finalizer of a live cluster is removed, because its state is not cleaned up any more."""
    state = state_of(cluster.raw, config)
    event = _release(cluster.raw, constants.REDIS_CLEANUP_SKIPPED, state).event if isinstance(state, str) else None
    return (event,) if event is not None and state else ()


def release_unclean(obj: Mapping[str, Any], pods: Iterable[PodView], why: str, left_s: float) -> Deletion:
    """Release the finalizer without a Job, for the reason `why`; a Job that KubeRay has started is waited for as long as it would."""
    cleanups = [pod for pod in pods if pod.node_type == constants.REDIS_CLEANUP]
    is_running = any(pod.phase not in FINISHED_PHASES and not pod.is_terminating for pod in cleanups)
    if is_running and left_s > 0:
        return Deletion(requeue_after_s=left_s)
    phases = {pod.phase for pod in cleanups}
    if not why or "Succeeded" in phases:
        return Deletion(release=finalizer_patch(obj["metadata"], is_added=False))
    if "Failed" in phases:
        return _release(obj, constants.REDIS_CLEANUP_FAILED, messages.CLEANUP_JOB_FAILED)
    return _release(obj, constants.REDIS_CLEANUP_SKIPPED, why)


def _create(cluster: RayCluster, config: ClusterConfig, left_s: float) -> Create:
    is_owned = FOREGROUND not in cluster.metadata.finalizers
    return Create(
        JOBS,
        build_cleanup_job(cluster, config.pods, is_owned=is_owned, deadline_s=left_s - RETRY_S),
        constants.CREATED_REDIS_CLEANUP_JOB,
        constants.FAILED_TO_CREATE_REDIS_CLEANUP_JOB,
    )


def _elapsed_s(metadata: Mapping[str, Any], now: datetime) -> float:
    """Seconds since the deletion began; infinite where the time cannot be read, so that it ends."""
    since = parse_timestamp(str(metadata.get("deletionTimestamp")))
    return (now - since).total_seconds() if since is not None else inf


def _timeout_s(metadata: Mapping[str, Any]) -> float:
    """Seconds after which it ends in any case; the annotation is parsed as KubeRay does (RC:FIN-3)."""
    asked = (metadata.get("annotations") or {}).get(constants.FT_DELETION_TIMEOUT_ANNOTATION, "")
    is_number = isinstance(asked, str) and asked.isascii() and asked.isdigit() and len(asked) <= MAX_DIGITS
    return int(asked) if is_number and int(asked) > 0 else CLEANUP_TIMEOUT_S


def _release(obj: Mapping[str, Any], reason: str, why: str) -> Deletion:
    """Release the finalizer, and tell what may remain in Redis, which only the user can remove then."""
    cluster = _text(obj, "metadata", "name")
    event = messages.redis_not_cleaned_up(reason, why, cluster, _storage_namespace(obj), _redis_address(obj))
    return Deletion(release=finalizer_patch(obj["metadata"], is_added=False), event=event)


def _storage_namespace(obj: Mapping[str, Any]) -> str:
    """The storage namespace of the GCS (RC:FT-2), also of an object that cannot be parsed."""
    chosen = _text(obj, "spec", "gcsFaultToleranceOptions", "externalStorageNamespace")
    annotated = _text(obj, "metadata", "annotations", constants.EXTERNAL_STORAGE_NAMESPACE_ANNOTATION)
    return chosen or annotated or _text(obj, "metadata", "uid")


def _redis_address(obj: Mapping[str, Any]) -> str:
    address = _text(obj, "spec", "gcsFaultToleranceOptions", "redisAddress")
    return ",".join(map(_without_user, address.split(","))) or messages.REDIS_ADDRESS_IN_HEAD


def _without_user(address: str) -> str:
    """An address without the user and password that it may have."""
    scheme, mark, rest = address.rpartition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


def _text(value: Any, *path: str) -> str:
    """The string at that path; empty for any other type, because the object may be unreadable."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else ""
