"""Messages of the sharing pass: notes in the sharing record, the readiness check and log lines.

One function or constant per text. Those of the planner, which `raytide plan` prints too, are in the package
`algorithm`: resize_messages.py, pending_reasons.py and explain.py. Log lines are templates with the arguments that
their docstring lists. Called by the modules of this package; decides nothing.
"""

from datetime import datetime
from typing import Final

from raytide.api.conditions import timestamp
from raytide.api.limits import (
    MAX_CONSTRAINT_BYTES,
    MAX_CONSTRAINTS,
    MAX_CONTAINERS,
    MAX_LABEL_BYTES,
    MAX_RESOURCES,
)
from raytide.api.meta import PRIORITY_CLASSES, RESOURCE_QUOTAS, Resource
from raytide.api.sharing_record import ABOVE_MAXIMUM, ADMITTED, REACHING_MINIMUM, REQUESTED
from raytide.fairshare.algorithm.resize_messages import RESERVED_FOR_IT

# --- notes in the sharing record ---------------------------------------------------------------------------------------


def size_requested(before: int, after: int, requested: int) -> str:
    """`Requested`: another client changed the size, such as `kubectl scale`; and what it requested, if that is another size."""
    number = "" if requested == after else f", {requested}"
    return f"{before}→{after}{number} requested in spec.trainer.replicas"


def awaiting_capacity(resize: str) -> str:
    """`AwaitingCapacity`: a resize whose capacity terminating pods still hold."""
    return f"{resize}; waits until terminating pods are gone"


def capacity_reserved(why: str, until: datetime) -> str:
    """Why a job waits that is the first in line, and until when those behind it get nothing that it needs."""
    return f"{why}; {RESERVED_FOR_IT} until {timestamp(until)}"


def awaits_nodes(why: str, at: datetime) -> str:
    """Why a gang waits, and when its pods exist again although there is no capacity for them."""
    return f"{why}; its pods exist again at {timestamp(at)}, so that a node autoscaler adds nodes"


def gang_timed_out(until: datetime) -> str:
    """`GangTimeout`: a gang that released its capacity, and when it may be admitted again."""
    return f"the minimum did not start in time; the job may be admitted again at {timestamp(until)}"


def capacity_unknown(error: str) -> str:
    """`CapacityUnknown`: nodes or pods may not be read; `error` is the API server's."""
    return f"capacity is unknown, so the job is not scaled up: {error}"


def clamped(before: int, after: int, reason: str) -> str:
    """A resize without known capacity, which only keeps a job within its bounds."""
    return f"{before}→{after} {_CLAMPED[reason]}"


_CLAMPED: Final = {
    ABOVE_MAXIMUM: "to reach an allowed size",
    ADMITTED: "to start with its minimum",
    REACHING_MINIMUM: "to reach its minimum",
    REQUESTED: "as requested in spec.trainer.replicas",
}

# --- read access -------------------------------------------------------------------------------------------------------

ALL_READABLE: Final = "all required resources can be read"
"""Readiness check."""
NO_CAPACITY: Final = "capacity is unknown, so no TrainingJob is scaled up: %s"
"""Log line: the API server's error."""
POD_TOO_LARGE: Final = (
    f"pod %s/%s has more than {MAX_RESOURCES} resources, {MAX_CONTAINERS} containers, {MAX_CONSTRAINTS} entries or "
    f"{MAX_CONSTRAINT_BYTES} bytes of node selector, node affinity and tolerations: no capacity is kept for it; "
    "other such pods of the namespace are not logged"
)
"""Log line: namespace and name of the pod."""
NODE_TOO_LARGE: Final = (
    f"node %s has more than {MAX_RESOURCES} resources, {MAX_CONSTRAINTS} taints or {MAX_LABEL_BYTES} bytes of labels: it counts as "
    "cordoned for TrainingJobs"
)
"""Log line: name of the node."""
OPTIONAL_READABLE_AGAIN: Final = "ResourceQuotas and PriorityClasses can be read again"
"""Log line."""
_WITHOUT: Final = {
    RESOURCE_QUOTAS: "jobs there may be scaled above their ResourceQuotas, and the API server then rejects their pods",
    PRIORITY_CLASSES: "all jobs and pods are treated as having the same priority",
}


def not_readable(resource: Resource, namespace: str, error: object) -> str:
    """A resource that may not be read; an empty namespace means all."""
    where = f" in namespace {namespace}" if namespace else ""
    return f"{resource.plural}{where} cannot be read: {error}"


def shared_without(resource: Resource, error: str) -> str:
    """The effect of an optional resource that may not be read; `error` is that of `not_readable`."""
    return f"{error}: {_WITHOUT[resource]}"


# --- log lines of passes and patches -----------------------------------------------------------------------------------

SHARING_POSTPONED: Final = "sharing pass postponed, because the API server is unavailable: %s"
"""Error."""
SHARING_FAILED: Final = "sharing pass failed; this is a bug, please report it"
SNAPSHOT_FAILED: Final = "building the sharing snapshot failed; trying each TrainingJob alone"
JOB_EXCLUDED: Final = "TrainingJob %s is excluded from sharing, because building its snapshot fails"
"""Key of the job."""
JOB_NOT_READABLE: Final = "TrainingJob %s cannot be read: %s"
"""Key of the job, error."""
PATCH_REJECTED: Final = "TrainingJob %s cannot be resized, its patch was rejected (%s): %s"
"""Key of the job, reason and message of the API server."""
NODES_ARE_AUTOSCALED: Final = (
    "nodes are autoscaled (%s): gangs without capacity have pods from time to time, for which nodes are added"
)
"""What shows it."""
NODE_AUTOSCALER_UNKNOWN: Final = (
    "it is not known whether nodes are autoscaled, so gangs wait for capacity; --node-autoscaler says it: %s"
)
"""Error."""
JOB_RESIZED: Final = "TrainingJob %s resized %d→%d: %s"
"""Key of the job, sizes before and after, message of the resize."""
