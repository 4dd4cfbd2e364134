"""What is done for a RayCluster that is being deleted?

Takes the object as it came, readable or not, valid or not, and the pods with its label, and says whether KubeRay's
finalizer is released now. Nothing else is done: pods and services go by garbage collection as soon as no finalizer holds
their owner, also with the operator off (RC:REC-5, D14). KubeRay's clean-up Job is not built; one that KubeRay has begun is
waited for, no longer than KubeRay would (RC:FIN-1..4). Called by the controller before anything else.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from raytide.api import names
from raytide.api.actions import Patch, Remark
from raytide.api.conditions import moment_of
from raytide.api.meta import RAYCLUSTERS
from raytide.api.pod import FINISHED_PHASES, PodView

CLEANUP_TIMEOUT_S: Final = 300
MOST_DIGITS: Final = 9
"""Of the annotation that sets another time-out; what is longer is no number of seconds."""
ROCKSDB: Final = "rocksdb"


@dataclass(frozen=True, slots=True)
class Deletion:
    """What to do now; nothing where no finalizer of ours to release holds the object."""

    release: Patch | None = None
    remark: Remark | None = None
    """To be told once the finalizer is released."""
    look_again_in: float | None = None
    """Seconds until it is released in any case."""


def is_being_deleted(obj: Mapping[str, Any]) -> bool:
    """Whether somebody asked for its deletion."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def deletion(obj: Mapping[str, Any], pods: Iterable[PodView], now: datetime) -> Deletion:
    """Release the finalizer, unless a clean-up of KubeRay's is running and in time."""
    finalizers = obj["metadata"].get("finalizers") or ()
    if names.REDIS_CLEANUP_FINALIZER not in finalizers:
        return Deletion()
    cleanups = [pod for pod in pods if pod.node_type == names.REDIS_CLEANUP]
    is_running = any(pod.phase not in FINISHED_PHASES and not pod.is_terminating for pod in cleanups)
    left_s = _left_s(obj["metadata"], now)
    if is_running and left_s > 0:
        return Deletion(look_again_in=left_s)
    return Deletion(_release(obj["metadata"], finalizers), _remark(obj, {pod.phase for pod in cleanups}, is_running))


def _left_s(metadata: Mapping[str, Any], now: datetime) -> float:
    """Seconds until a clean-up has taken too long; annotations as KubeRay reads them (RC:FIN-3)."""
    asked = (metadata.get("annotations") or {}).get(names.FT_DELETION_TIMEOUT_ANNOTATION, "")
    is_number = asked.isascii() and asked.isdigit() and len(asked) <= MOST_DIGITS
    timeout_s = int(asked) if is_number and int(asked) > 0 else CLEANUP_TIMEOUT_S
    since = moment_of(str(metadata.get("deletionTimestamp")))
    return timeout_s - (now - since).total_seconds() if since is not None else 0.0


def _release(metadata: Mapping[str, Any], finalizers: Iterable[str]) -> Patch:
    """All other finalizers stay; a Conflict means that the list was changed by somebody else, and is read again."""
    rest = [finalizer for finalizer in finalizers if finalizer != names.REDIS_CLEANUP_FINALIZER]
    return Patch(
        RAYCLUSTERS,
        metadata.get("namespace", ""),
        metadata["name"],
        metadata.get("uid", ""),
        {"metadata": {"finalizers": rest or None}},
        otherwise=names.FAILED_TO_REMOVE_FINALIZER,
        version=metadata.get("resourceVersion", ""),
    )


def _remark(obj: Mapping[str, Any], phases: set[str], is_running: bool) -> Remark | None:  # noqa: FBT001
    """What stays in Redis, if anything may: nobody but the user can remove it then."""
    if "Succeeded" in phases or _text(obj, "spec", "gcsFaultToleranceOptions", "backend") == ROCKSDB:
        return None
    if is_running:
        reason, why = names.FORCE_DELETED_STUCK_CLUSTER, "the clean-up that KubeRay began did not end in time"
    elif "Failed" in phases:
        reason, why = names.REDIS_CLEANUP_FAILED, "the clean-up that KubeRay began has failed"
    else:
        reason, why = names.REDIS_CLEANUP_SKIPPED, "Raytide runs no clean-up Job"
    note = (
        f"finalizer {names.REDIS_CLEANUP_FINALIZER} of RayCluster {_text(obj, 'metadata', 'name')} removed without cleaning up "
        f"Redis ({why}): what the GCS stored "
        f"under storage namespace {_storage_namespace(obj)} at {_redis_address(obj)} may still be there; remove it with "
        "cleanup_redis_storage of ray._private.gcs_utils, as the user guide shows"
    )
    return Remark(reason, note, action="Cleanup")


def _storage_namespace(obj: Mapping[str, Any]) -> str:
    """Under which name KubeRay had the GCS store its state (RC:FT-2)."""
    chosen = _text(obj, "spec", "gcsFaultToleranceOptions", "externalStorageNamespace")
    annotated = _text(obj, "metadata", "annotations", names.EXTERNAL_STORAGE_NAMESPACE_ANNOTATION)
    return chosen or annotated or _text(obj, "metadata", "uid")


def _redis_address(obj: Mapping[str, Any]) -> str:
    address = _text(obj, "spec", "gcsFaultToleranceOptions", "redisAddress")
    return address or "the address in RAY_REDIS_ADDRESS of its head"


def _text(value: Any, *path: str) -> str:
    """The text at that path; empty where something else stands there, because the object may be unreadable."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else ""
