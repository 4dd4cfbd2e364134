"""What do ResourceQuotas still allow?

Takes the quotas of all namespaces and what their jobs have ordered and not yet created, gives the planner's `Quota`s: what
is free by the names of requests (`requests.cpu` is `cpu`, `count/pods` is `pods`), limits apart. A quota for other pods
than a job's (by scope) is left out. Pure; called by pools.py (TJ §3 row 14).
"""

from collections.abc import Iterable, Mapping
from typing import Final

from raytide.api.capacity import CapacityQuota
from raytide.elastic.model import PODS, Amounts, Quota

_OF_JOBS: Final = frozenset({"NotTerminating", "NotBestEffort", "PriorityClass"})
"""Scopes that pods of jobs are in: they have no deadline of their own, and ask for something."""


def quotas_left(
    quotas: Iterable[CapacityQuota],
    *,
    uncreated: Mapping[str, Amounts],
    classes: Mapping[str, frozenset[str]],
) -> tuple[Quota, ...]:
    """Every quota that pods of jobs count against, by namespace and name.

    `uncreated` is, per namespace, what was ordered and has no pod yet, by requests and `limits.*`; `classes` are the
    PriorityClasses of the jobs there.
    """
    found = (
        Quota(quota.namespace, quota.name, _free(quota, uncreated.get(quota.namespace, {})))
        for quota in quotas
        if _counts(quota, classes.get(quota.namespace, frozenset()))
    )
    return tuple(sorted(found, key=lambda each: (each.namespace, each.name)))


def _counts(quota: CapacityQuota, classes: frozenset[str]) -> bool:
    """A quota for some PriorityClasses counts where all jobs are of those: others must not be held back by it."""
    if not set(quota.scopes) <= _OF_JOBS:
        return False
    if "PriorityClass" not in quota.scopes:
        return True
    return quota.priority_classes is not None and bool(classes) and classes <= quota.priority_classes


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
