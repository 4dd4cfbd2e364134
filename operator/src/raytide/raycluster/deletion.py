"""Release of KubeRay's finalizer from a RayCluster that is being deleted.

Takes the object as received, readable or not, valid or not, and the pods with its label, and returns whether to release
the finalizer now. It deletes nothing: garbage collection removes pods and services once no finalizer blocks their
owner, also while the operator is off (RC:REC-5, D14). KubeRay's clean-up Job is not built; one that KubeRay has started
is waited for, no longer than KubeRay would (RC:FIN-1..4). Called by the reconciler before anything else.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from raytide.api import constants
from raytide.api.actions import EventSpec, Patch
from raytide.api.conditions import parse_timestamp
from raytide.api.meta import RAYCLUSTERS
from raytide.api.pod import FINISHED_PHASES, PodView
from raytide.raycluster import messages

CLEANUP_TIMEOUT_S: Final = 300
MAX_DIGITS: Final = 9
"""Of the annotation that sets another time-out; a longer value is not accepted as a number of seconds."""
ROCKSDB: Final = "rocksdb"


@dataclass(frozen=True, slots=True)
class Deletion:
    """What to do now; empty when the object has no finalizer for Raytide to release."""

    release: Patch | None = None
    event: EventSpec | None = None
    """Event to emit once the finalizer is released."""
    requeue_after_s: float | None = None
    """Seconds until it is released in any case."""


def is_being_deleted(obj: Mapping[str, Any]) -> bool:
    """Whether the object has a deletionTimestamp."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def deletion(obj: Mapping[str, Any], pods: Iterable[PodView], now: datetime) -> Deletion:
    """Release the finalizer, unless a clean-up pod of KubeRay's runs and its time-out has not passed."""
    finalizers = obj["metadata"].get("finalizers") or ()
    if constants.REDIS_CLEANUP_FINALIZER not in finalizers:
        return Deletion()
    cleanups = [pod for pod in pods if pod.node_type == constants.REDIS_CLEANUP]
    is_running = any(pod.phase not in FINISHED_PHASES and not pod.is_terminating for pod in cleanups)
    left_s = _left_s(obj["metadata"], now)
    if is_running and left_s > 0:
        return Deletion(requeue_after_s=left_s)
    return Deletion(
        _release(obj["metadata"], finalizers), _stuck_event(obj, {pod.phase for pod in cleanups}, is_running)
    )


def _left_s(metadata: Mapping[str, Any], now: datetime) -> float:
    """Seconds until the clean-up times out; the annotation is parsed as KubeRay does (RC:FIN-3)."""
    asked = (metadata.get("annotations") or {}).get(constants.FT_DELETION_TIMEOUT_ANNOTATION, "")
    is_number = asked.isascii() and asked.isdigit() and len(asked) <= MAX_DIGITS
    timeout_s = int(asked) if is_number and int(asked) > 0 else CLEANUP_TIMEOUT_S
    since = parse_timestamp(str(metadata.get("deletionTimestamp")))
    return timeout_s - (now - since).total_seconds() if since is not None else 0.0


def _release(metadata: Mapping[str, Any], finalizers: Iterable[str]) -> Patch:
    """Remove this finalizer only; on a Conflict another client changed the object, and it is read again."""
    rest = [finalizer for finalizer in finalizers if finalizer != constants.REDIS_CLEANUP_FINALIZER]
    return Patch(
        RAYCLUSTERS,
        metadata.get("namespace", ""),
        metadata["name"],
        metadata.get("uid", ""),
        {"metadata": {"finalizers": rest or None}},
        failure_reason=constants.FAILED_TO_REMOVE_FINALIZER,
        version=metadata.get("resourceVersion", ""),
    )


def _stuck_event(obj: Mapping[str, Any], phases: set[str], is_running: bool) -> EventSpec | None:  # noqa: FBT001
    """Event about data that may remain in Redis, which only the user can remove then; None when there is none."""
    if "Succeeded" in phases or _text(obj, "spec", "gcsFaultToleranceOptions", "backend") == ROCKSDB:
        return None
    if is_running:
        reason = constants.FORCE_DELETED_STUCK_CLUSTER
    else:
        reason = constants.REDIS_CLEANUP_FAILED if "Failed" in phases else constants.REDIS_CLEANUP_SKIPPED
    cluster = _text(obj, "metadata", "name")
    return messages.redis_not_cleaned_up(reason, cluster, _storage_namespace(obj), _redis_address(obj))


def _storage_namespace(obj: Mapping[str, Any]) -> str:
    """The storage namespace that KubeRay configured for the GCS (RC:FT-2)."""
    chosen = _text(obj, "spec", "gcsFaultToleranceOptions", "externalStorageNamespace")
    annotated = _text(obj, "metadata", "annotations", constants.EXTERNAL_STORAGE_NAMESPACE_ANNOTATION)
    return chosen or annotated or _text(obj, "metadata", "uid")


def _redis_address(obj: Mapping[str, Any]) -> str:
    address = _text(obj, "spec", "gcsFaultToleranceOptions", "redisAddress")
    return address or messages.REDIS_ADDRESS_IN_HEAD


def _text(value: Any, *path: str) -> str:
    """The string at that path; empty for any other type, because the object may be unreadable."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else ""
