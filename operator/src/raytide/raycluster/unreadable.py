"""What is said about a RayCluster that cannot even be read?

Takes the raw object and pydantic's complaints, gives the faults with their field paths and the status that names them.
The rest of the status stays as it was, because nothing about the spec is known. Called by the controller when parsing
failed; such objects exist where an older CRD let them in.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from raytide.api import names
from raytide.api.conditions import timestamp
from raytide.api.merge_patch import merge_difference
from raytide.api.raycluster_shape import readable_status
from raytide.raycluster.status_conditions import invalid_conditions
from raytide.raycluster.validation import Violation

_WORDS: Final = {
    "missing": "is missing",
    "string_type": "must be a text",
    "tuple_type": "must be a list",
    "dict_type": "must be an object",
    "mapping_type": "must be an object",
    "model_type": "must be an object",
}
"""pydantic's complaints in words of YAML."""


def faults_of(error: ValidationError) -> tuple[Violation, ...]:
    """One fault per field that has the wrong type or is missing."""
    return tuple(
        Violation("type", path_of(one["loc"]), _WORDS.get(one["type"]) or _lower(one["msg"]))
        for one in error.errors(include_url=False)
    )


def path_of(location: tuple[int | str, ...]) -> str:
    """`spec.workerGroupSpecs[0].replicas`, as kubectl would spell it."""
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path.removeprefix(".")


def is_ours_to_judge(obj: Mapping[str, Any]) -> bool:
    """Whether it is neither being deleted nor managed by somebody else, as far as can be read."""
    spec = obj.get("spec")
    managed_by = spec.get("managedBy") if isinstance(spec, Mapping) else None
    is_ours = not isinstance(managed_by, str) or managed_by in ("", names.MANAGED_BY_US)
    return is_ours and not obj["metadata"].get("deletionTimestamp")


def unreadable_patch(obj: Mapping[str, Any], faults: tuple[Violation, ...], now: datetime) -> dict[str, Any] | None:
    """The status patch that names the faults; None when they stand there already."""
    old = readable_status(obj.get("status"))
    new = {**old, "conditions": invalid_conditions(old.get("conditions") or (), faults, now)}
    if not merge_difference(old, new):
        return None
    difference = merge_difference(old, {**new, "lastUpdateTime": timestamp(now)})
    return {"metadata": {"resourceVersion": obj["metadata"].get("resourceVersion", "")}, "status": difference}


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
