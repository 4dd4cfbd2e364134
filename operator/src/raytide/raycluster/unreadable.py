"""What is said about a RayCluster that cannot even be read?

Takes the raw object and the faults found in it (api/value.py), gives the status that names them. The rest of the status
stays as it was, because nothing about the spec is known; a suspension that is stored goes on. Called by the controller when parsing failed; such objects exist
where an older CRD let them in.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from raytide.api import names
from raytide.api.conditions import timestamp
from raytide.api.merge_patch import merge_difference
from raytide.api.meta import Manifest
from raytide.api.raycluster import RayCluster
from raytide.api.raycluster_shape import readable_status
from raytide.raycluster.status_conditions import invalid_conditions
from raytide.raycluster.suspension import suspension_of
from raytide.raycluster.validation import Violation


def is_ours_to_judge(obj: Mapping[str, Any]) -> bool:
    """Whether no other controller manages it, as far as can be read."""
    spec = obj.get("spec")
    managed_by = spec.get("managedBy") if isinstance(spec, Mapping) else None
    return not isinstance(managed_by, str) or managed_by in ("", names.MANAGED_BY_US)


def as_suspended(obj: Manifest) -> RayCluster | None:
    """The cluster without its spec, while a suspension is stored that ends its pods; None in every other case.

    What has begun is finished whatever the spec says by now: whoever asked for it waits for the room (RC §5.4).
    """
    try:
        cluster = RayCluster.parse({**obj, "spec": {"headGroupSpec": {}}})
    except ValidationError:
        return None
    return cluster.model_copy(update={"raw": obj}) if suspension_of(cluster).ends_pods else None


def unreadable_patch(obj: Mapping[str, Any], faults: tuple[Violation, ...], now: datetime) -> dict[str, Any] | None:
    """The status patch that names the faults; None when they stand there already."""
    old = readable_status(obj.get("status"))
    new = {**old, "conditions": invalid_conditions(old.get("conditions") or (), faults, now)}
    if not merge_difference(old, new):
        return None
    difference = merge_difference(old, {**new, "lastUpdateTime": timestamp(now)})
    return {"metadata": {"resourceVersion": obj["metadata"].get("resourceVersion", "")}, "status": difference}
