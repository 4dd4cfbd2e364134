"""Remaining quota: what ResourceQuotas still allow.

Input: the quotas of all namespaces, and what their jobs have ordered and not yet created. Output: the planner's
`Quota`s: what is free by the names of requests (`requests.cpu` is `cpu`, `count/pods` is `pods`), limits apart, and the
participants it applies to. A quota whose scopes exclude a job's pods is left out; one for some PriorityClasses applies
to the jobs with those. Pure; called by snapshot.py (TJ §3 row 14).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from raytide.api.capacity import CapacityQuota
from raytide.api.pod_requirements import PODS, Amounts
from raytide.fairshare.algorithm.model import ParticipantId, Quota
from raytide.fairshare.node_usage import added

_OF_JOBS: Final = frozenset({"NotTerminating", "NotBestEffort", "PriorityClass"})
"""Scopes that match pods of jobs: these have no deadline and request something."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """One job as quotas see it."""

    id: ParticipantId
    priority_class: str
    """Of its trainers."""
    pods_to_create: Amounts
    """What is ordered and has no pod yet, by requests and `limits.*`."""


def quotas_left(quotas: Iterable[CapacityQuota], jobs: Iterable[Ordered]) -> tuple[Quota, ...]:
    """Every quota that pods of jobs count against, sorted by namespace and name."""
    in_namespace: dict[str, list[Ordered]] = {}
    for job in jobs:
        in_namespace.setdefault(job.id.namespace, []).append(job)
    found = (_left(quota, in_namespace.get(quota.namespace, [])) for quota in quotas if counts_job_pods(quota))
    return tuple(sorted((each for each in found if each), key=lambda each: (each.namespace, each.name)))


def counts_job_pods(quota: CapacityQuota) -> bool:
    """Whether its scopes include pods of jobs; `admits_class` decides about their PriorityClass."""
    return set(quota.scopes) <= _OF_JOBS


def _left(quota: CapacityQuota, jobs: list[Ordered]) -> Quota | None:
    """What it still allows the jobs with a PriorityClass in its scope; None if there are none (FD:SH-B7)."""
    own = [job for job in jobs if quota.admits_class(job.priority_class)]
    if quota.priority_class_rules and not own:
        return None
    free = _free(quota, added(*(job.pods_to_create for job in own)))
    return Quota(
        quota.namespace, quota.name, free, frozenset(job.id for job in own) if quota.priority_class_rules else None
    )


def _free(quota: CapacityQuota, pods_to_create: Amounts) -> dict[str, int]:
    free: dict[str, int] = {}
    for written, hard in quota.hard.items():
        name = resource_name(written)
        if name is None:
            continue
        left = hard - quota.used.get(written, 0) - pods_to_create.get(name, 0)
        free[name] = min(left, free.get(name, left))
    return free


def resource_name(written: str) -> str | None:
    """The planner's name for a resource of a quota; None for one that pods do not use up."""
    if written in {PODS, "count/pods"}:
        return PODS
    if written.startswith("limits."):
        return written
    name = written.removeprefix("requests.")
    is_of_pods = name in {"cpu", "memory", "ephemeral-storage"} or (
        name not in {written, "storage"} and not name.startswith("count/")
    )
    return name if is_of_pods else None
