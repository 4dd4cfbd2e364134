"""Which creates of a group does the API server refuse?

Takes `status.conditions` of the RayCluster and a group, gives the reason and the API server's words; the operator writes
them into `ReplicaFailure`, one entry per group. Pure; called by limits.py.
"""

import re
from collections.abc import Sequence
from typing import Final

from raytide.api import names
from raytide.api.conditions import ConditionJson, find_condition
from raytide.api.pod_trouble import Cause, trouble_of_refusal

CREATE_FAILED: Final = "FailedCreateWorkerPod"
"""Why `ReplicaFailure` is True when a worker could not be created, in KubeRay's words and ours."""
_ENTRY: Final = re.compile(r"(?:^|; )group ([^:;]+): ")


def refusal_of(conditions: Sequence[ConditionJson], group: str) -> tuple[str, str] | None:
    """(reason, the API's words) if creates of that group are refused, as the operator says in `ReplicaFailure`."""
    condition = find_condition(conditions, names.REPLICA_FAILURE)
    if condition is None or condition.get("status") != "True":
        return None
    message = str(condition.get("message") or "")
    parts = _ENTRY.split(message)
    texts = [text for name, text in zip(parts[1::2], parts[2::2], strict=True) if name == group]
    if len(parts) == 1 and f"-{group}-worker-" in message:  # KubeRay names the pod, not the group
        texts = [message]
    for trouble in (trouble_of_refusal("", text) for text in texts):
        if trouble.cause is Cause.QUOTA or condition.get("reason") == CREATE_FAILED:
            return trouble.cause, trouble.detail
    return None
