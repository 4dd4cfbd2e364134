"""Status patches: the difference between the status read and the one computed, guarded by the version it was read from.

The guard is the resourceVersion, because the status subresource checks no uid: a new object of the same name, or a spec
that changed meanwhile, causes a Conflict. Sent by controller/status_writer.py (D8).
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from raytide.api.base_model import ObjectMeta
from raytide.api.conditions import timestamp
from raytide.api.merge_patch import merge_difference


class ObjectWithStatus(Protocol):
    """An object whose spec could be parsed."""

    @property
    def metadata(self) -> ObjectMeta:
        """Its metadata."""

    @property
    def status(self) -> Mapping[str, Any]:
        """Its status as read."""


def status_patch(obj: ObjectWithStatus, computed: Mapping[str, Any]) -> dict[str, Any] | None:
    """The body of the status patch; None when there is nothing to write."""
    difference = merge_difference(obj.status, computed)
    return _guarded(obj.metadata.resource_version, difference) if difference else None


def patch_of_unparsed(
    obj: Mapping[str, Any], old: Mapping[str, Any], new: Mapping[str, Any], now: datetime
) -> dict[str, Any] | None:
    """The same for an object that cannot be parsed, whose readable status is `old`; sets `lastUpdateTime`."""
    if not merge_difference(old, new):
        return None
    difference = merge_difference(old, {**new, "lastUpdateTime": timestamp(now)})
    return _guarded(obj["metadata"].get("resourceVersion", ""), difference)


def _guarded(resource_version: str, difference: Mapping[str, Any]) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": resource_version}, "status": difference}
