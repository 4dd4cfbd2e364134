"""Rejected pod creates of a worker group, from the status of the RayCluster.

Takes the status and a group, and returns the cause. Raytide's operator stores it in `status.diagnoses`; where KubeRay wrote the
status, or KubeRay's CRD drops that field, the condition `ReplicaFailure` has the API server's message, which names the pod.
Pure; called by group_availability.py.
"""

from collections.abc import Mapping
from typing import Any, Final

from raytide.api import constants
from raytide.api.pod_failure import REJECTIONS, Cause, failure_of_rejection
from raytide.api.record_fields import stored_diagnoses
from raytide.diagnosis.model import Diagnosis

CREATE_FAILED: Final = "FailedCreateWorkerPod"
"""Reason of `ReplicaFailure` when a worker could not be created, in KubeRay and in Raytide."""


def rejection_of(status: Mapping[str, Any], group: str) -> Diagnosis | None:
    """The cause if creates of the group are rejected."""
    stored = stored_diagnoses(status)
    rejected = (found for found in stored if found.group == group and found.reason in REJECTIONS)
    return next(rejected, None if stored else _of_pod_names(status, group))


def _of_pod_names(status: Mapping[str, Any], group: str) -> Diagnosis | None:
    """From `ReplicaFailure`, if its message names a pod of the group."""
    conditions = status.get("conditions")
    for condition in conditions if isinstance(conditions, list) else ():
        if not isinstance(condition, Mapping) or condition.get("type") != constants.REPLICA_FAILURE:
            continue
        message = str(condition.get("message") or "")
        found = failure_of_rejection(message)
        is_create = found.reason == Cause.QUOTA or condition.get("reason") == CREATE_FAILED
        if condition.get("status") == "True" and f"-{group}-worker-" in message and is_create:
            return found
    return None
