"""What do ResourceQuotas still allow?

Takes the quotas of all namespaces and what their jobs have ordered and not yet created, gives the planner's `Quota`s: what
is free by the names of requests (`requests.cpu` is `cpu`, `count/pods` is `pods`), limits apart, and to whom. A quota for
other pods than a job's (by scope) is left out; one for some PriorityClasses is for the jobs of those. Pure; called by pools.py (TJ §3 row 14).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from raytide.api.capacity import CapacityQuota
from raytide.elastic.model import PODS, Amounts, ParticipantId, Quota
from raytide.sharing.rooms import added

_OF_JOBS: Final = frozenset({"NotTerminating", "NotBestEffort", "PriorityClass"})
"""Scopes that pods of jobs are in: they have no deadline of their own, and ask for something."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """What one job has to do with quotas."""

    id: ParticipantId
    priority_class: str
    """Of its trainers."""
    uncreated: Amounts
    """What was ordered and has no pod yet, by requests and `limits.*`."""


def quotas_left(quotas: Iterable[CapacityQuota], jobs: Iterable[Ordered]) -> tuple[Quota, ...]:
    """Every quota that pods of jobs count against, by namespace and name."""
    in_namespace: dict[str, list[Ordered]] = {}
    for job in jobs:
        in_namespace.setdefault(job.id.namespace, []).append(job)
    found = (_left(quota, in_namespace.get(quota.namespace, [])) for quota in quotas if _counts(quota))
    return tuple(sorted((each for each in found if each), key=lambda each: (each.namespace, each.name)))


def _counts(quota: CapacityQuota) -> bool:
    return set(quota.scopes) <= _OF_JOBS


def _left(quota: CapacityQuota, jobs: list[Ordered]) -> Quota | None:
    """What it still allows, to the jobs whose PriorityClass is in its scope; None where there are none of them (FD:SH-B7)."""
    own = [job for job in jobs if quota.admits_class(job.priority_class)]
    if quota.class_rules and not own:
        return None
    free = _free(quota, added(*(job.uncreated for job in own)))
    return Quota(quota.namespace, quota.name, free, frozenset(job.id for job in own) if quota.class_rules else None)


def _free(quota: CapacityQuota, uncreated: Amounts) -> dict[str, int]:
    free: dict[str, int] = {}
    for written, hard in quota.hard.items():
        name = _counted(written)
        if name is None:
            continue
        left = hard - quota.used.get(written, 0) - uncreated.get(name, 0)
        free[name] = min(left, free.get(name, left))
    return free


def _counted(written: str) -> str | None:
    """The planner's name for what a quota calls so; None for what pods do not use up."""
    if written in {PODS, "count/pods"}:
        return PODS
    if written.startswith("limits."):
        return written
    name = written.removeprefix("requests.")
    is_of_pods = name in {"cpu", "memory", "ephemeral-storage"} or (
        name not in {written, "storage"} and not name.startswith("count/")
    )
    return name if is_of_pods else None
