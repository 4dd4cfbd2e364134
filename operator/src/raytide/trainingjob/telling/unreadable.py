"""What is said about a TrainingJob that cannot even be read?

Takes the raw object and the faults found in it (api/value.py), gives the status that names them, in the words and the
condition of any other invalid spec. The rest of the status stays as it was, because nothing about the spec is known.
Called by the controller when parsing failed; such objects exist where an older CRD let them in.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from raytide.api import training_names as names
from raytide.api.conditions import ConditionJson, timestamp
from raytide.api.faults import Violation
from raytide.api.merge_patch import merge_difference
from raytide.trainingjob.telling.conditions import invalid_conditions


def unreadable_patch(obj: Mapping[str, Any], faults: Sequence[Violation], now: datetime) -> dict[str, Any] | None:
    """The status patch that names the faults; None when they stand there already."""
    written = obj.get("status")
    old: Mapping[str, Any] = written if isinstance(written, Mapping) else {}
    new = {
        **old,
        "conditions": invalid_conditions(_readable(old.get("conditions")), faults, now),
        "phase": old.get("phase") or names.PHASE_PENDING,
        "waiting": names.INVALID_SPEC,
    }
    if not merge_difference(old, new):
        return None
    difference = merge_difference(old, {**new, "lastUpdateTime": timestamp(now)})
    return {"metadata": {"resourceVersion": obj["metadata"].get("resourceVersion", "")}, "status": difference}


def _readable(conditions: Any) -> Sequence[ConditionJson]:
    found = conditions if isinstance(conditions, list) else []
    return [condition for condition in found if isinstance(condition, Mapping)]
