"""Desired pods of a TrainingJob, computed independently of the product.

Input: the custom resource as JSON. Output: the number of pods of each role, by bounds, the size in the spec, suspension, the
end of the job and, for a gang, the sharing record in the annotation. Shares no logic with the product. Used by the invariant
checks and the comparison with the desired state.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from raytide.api import trainingjob_constants as constants

REVOKED_REASONS = ("GangTimeout", "Suspended")


@dataclass(frozen=True, slots=True)
class DesiredJobState:
    """Desired state of one version of a job."""

    generation: int
    counts: Mapping[str, int]
    """Role -> pods."""
    low: int
    high: int
    is_ending: bool
    """A trainer has succeeded: no pod is created, and pods that never ran may be deleted."""


def desired_job_state(job: Mapping[str, Any]) -> DesiredJobState:
    """The desired state of a TrainingJob."""
    spec, trainer = job["spec"], job["spec"]["trainer"]
    low, high = trainer["min-instance"], trainer.get("max-instance", trainer["min-instance"])
    size = max(low, min(high, desired_size(job)))
    has_pods = not has_ended(job) and not spec.get("suspend") and (not is_gang(job) or is_admitted(job))
    pservers = (spec.get("pserver") or {}).get("min-instance", 0)
    counts = {constants.TRAINER: size, constants.PSERVER: pservers, constants.MASTER: int("master" in spec)}
    status = (job.get("status") or {}).get("trainer") or {}
    return DesiredJobState(
        generation=job["metadata"]["generation"],
        counts=counts if has_pods else dict.fromkeys(counts, 0),
        low=low,
        high=high,
        is_ending=bool(status.get("succeeded")),
    )


def desired_size(job: Mapping[str, Any]) -> int:
    """The size in the spec, but at most what sharing granted; if a manifest without a size replaced the job, the last size."""
    trainer, record = job["spec"]["trainer"], record_of(job)
    size, is_shared = trainer.get("replicas"), (job["spec"].get("scaling") or {}).get("enabled", True)
    if record.get("uid") == job["metadata"]["uid"] and record.get("admitted") and (size is None or is_shared):
        return int(record["replicas"]) if size is None else min(int(size), int(record["replicas"]))
    if size is not None:
        return int(size)
    last = ((job.get("status") or {}).get("trainer") or {}).get("desired")
    return int(last or trainer["min-instance"])


def is_gang(job: Mapping[str, Any]) -> bool:
    """Whether all of its pods start together or none; after a timeout, an optimistic job starts as a gang too."""
    if ((job.get("status") or {}).get("admission") or {}).get("timeouts"):
        return True
    spec = job["spec"]
    asks_for_gpus = constants.GPU in (spec["trainer"].get("resources") or {}).get("requests", {})
    return bool(spec.get("startPolicy", "Gang" if asks_for_gpus else "Optimistic") == "Gang")


def is_admitted(job: Mapping[str, Any]) -> bool:
    """Whether the sharing record admits the gang and is newer than its last eviction."""
    record = record_of(job)
    if record.get("uid") != job["metadata"]["uid"] or not record.get("admitted"):
        return False
    status = condition(job, constants.ADMITTED)
    if status.get("status") == "True" or status.get("reason") not in REVOKED_REASONS:
        return True
    return bool(record.get("admittedAt")) and _moment(record["admittedAt"]) > _moment(status["lastTransitionTime"])


def record_of(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record that the sharing pass wrote in the annotation."""
    text = (job["metadata"].get("annotations") or {}).get(constants.SHARING_ANNOTATION)
    found: Mapping[str, Any] = json.loads(text) if text else {}
    return found


def has_ended(job: Mapping[str, Any]) -> bool:
    """Whether its status reports Succeeded or Failed."""
    return any(condition(job, kind).get("status") == "True" for kind in (constants.SUCCEEDED, constants.FAILED))


def condition(job: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """One condition of its status; empty when there is none."""
    status = (job.get("status") or {}).get("conditions") or ()
    return next((each for each in status if each["type"] == kind), {})


def permanently_failed(job: Mapping[str, Any]) -> int:
    """The number of trainers that failed permanently."""
    text = ((job.get("status") or {}).get("trainer") or {}).get("failedIndexes") or ""
    bounds = [part.split("-") for part in text.split(",") if part]
    return sum(int(part[-1]) - int(part[0]) + 1 for part in bounds)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
