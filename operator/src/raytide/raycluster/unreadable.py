"""Status of a RayCluster that cannot be parsed.

Takes the raw object and its violations (api/base_model.py), and returns the status patch that names them. The rest of
the status is kept, because the spec is unknown; a stored suspension continues. Called by the reconciler when parsing
failed; such objects exist where an older CRD admitted them.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from raytide.api.conditions import without_unreached
from raytide.api.meta import Manifest
from raytide.api.raycluster import RayCluster
from raytide.api.raycluster_schema import readable_status
from raytide.api.status_patch import patch_of_unparsed
from raytide.raycluster.conditions import invalid_conditions
from raytide.raycluster.spec_queries import is_managed_by_us
from raytide.raycluster.suspension import suspension_of
from raytide.raycluster.validation import Violation


def is_ours_to_judge(obj: Mapping[str, Any]) -> bool:
    """Whether no other controller manages it, as far as `managedBy` can be read."""
    spec = obj.get("spec")
    return is_managed_by_us(spec.get("managedBy") if isinstance(spec, Mapping) else None)


def as_suspended(obj: Manifest) -> RayCluster | None:
    """The cluster without its spec, while a suspension that deletes its pods is stored; None in every other case.

    A suspension that has begun is completed whatever the spec is: the user or queue controller waits (RC §5.4).
    """
    try:
        cluster = RayCluster.parse({**obj, "spec": {"headGroupSpec": {}}})
    except ValidationError:
        return None
    return cluster.model_copy(update={"raw": obj}) if suspension_of(cluster).ends_pods else None


def unreadable_patch(obj: Mapping[str, Any], violations: tuple[Violation, ...], now: datetime) -> dict[str, Any] | None:
    """The status patch that names the violations; None when the status has them already."""
    old = readable_status(obj.get("status"))
    kept = without_unreached(old, obj["metadata"].get("generation"))
    new = {**kept, "conditions": invalid_conditions(old.get("conditions") or (), violations, now)}
    return patch_of_unparsed(obj, old, new, now)
