"""Rejected pod creates of a worker group, read from the `ReplicaFailure` condition.

Takes `status.conditions` of the RayCluster and a group, and returns the reason and the API server's message. The
operator writes them into `ReplicaFailure`, one entry per group. Pure; called by group_availability.py.
"""

import re
from collections.abc import Sequence
from typing import Final

from raytide.api import constants
from raytide.api.conditions import ConditionJson, find_condition
from raytide.api.pod_failure import Cause, failure_of_rejection
from raytide.diagnosis.model import Diagnosis

CREATE_FAILED: Final = "FailedCreateWorkerPod"
"""Reason of `ReplicaFailure` when a worker could not be created, in KubeRay and in Raytide."""
_ENTRY: Final = re.compile(r"(?:^|; )group ([^:;]+): ")


def rejection_of(conditions: Sequence[ConditionJson], group: str) -> Diagnosis | None:
    """The cause if creates of the group are rejected according to `ReplicaFailure`."""
    condition = find_condition(conditions, constants.REPLICA_FAILURE)
    if condition is None or condition.get("status") != "True":
        return None
    message = str(condition.get("message") or "")
    parts = _ENTRY.split(message)
    texts = [text for name, text in zip(parts[1::2], parts[2::2], strict=True) if name == group]
    if len(parts) == 1 and f"-{group}-worker-" in message:  # KubeRay names the pod, not the group
        texts = [message]
    for failure in map(failure_of_rejection, texts):
        if failure.reason == Cause.QUOTA or condition.get("reason") == CREATE_FAILED:
            return failure
    return None
