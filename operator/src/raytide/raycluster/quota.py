"""ResourceQuota check for all hosts of a replica.

Takes the API server's message about a pod that a quota rejected, and later the quota itself; returns which quota it
was, what one pod requests from it, and whether several pods fit at once. Creating the hosts one by one would only show
that some of them fit. An amount that cannot be parsed counts as no capacity. Called by the reconciler for groups whose
incomplete replica was released (SC:S4).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raytide.api.quantity import Quantity, QuantityError
from raytide.diagnosis.kubernetes_messages import exceeded_quota, quota_requests


@dataclass(frozen=True, slots=True)
class Shortage:
    """The quota that is exhausted, and what one pod requests from it."""

    quota: str
    requested: Mapping[str, Quantity]


def shortage_of(message: str) -> Shortage | None:
    """The quota named in a rejection; None when it was rejected for another reason."""
    requested = quota_requests(message)
    try:
        return (
            Shortage(exceeded_quota(message), {name: Quantity.parse(requested[name]) for name in requested})
            if requested
            else None
        )
    except QuantityError:
        return None


def has_capacity(shortage: Shortage, quota: Mapping[str, Any] | None, pods: int) -> bool:
    """Whether `pods` more pods fit into the quota; a deleted quota admits everything."""
    if quota is None:
        return True
    status = quota.get("status") or {}
    hard, used = status.get("hard") or {}, status.get("used") or {}
    try:
        return all(
            amount * pods + Quantity.parse(used.get(name, "0")) <= Quantity.parse(hard[name])
            for name, amount in shortage.requested.items()
            if name in hard
        )
    except QuantityError:
        return False
