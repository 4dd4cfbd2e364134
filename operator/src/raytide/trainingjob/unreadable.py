"""Status of a TrainingJob that cannot be parsed, and its suspension.

Takes the raw object and its violations (api/base_model.py), and returns the status patch that names them, with the
condition of any other invalid spec. The rest of the status is kept, because nothing about the spec is known but
`suspend`. Called by the reconciler when parsing failed; such objects exist where an older CRD admitted them.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from raytide.api import trainingjob_constants as constants
from raytide.api.conditions import ConditionJson, without_unreached
from raytide.api.meta import Manifest
from raytide.api.status_patch import patch_of_unparsed
from raytide.api.trainingjob import TrainingJob
from raytide.api.violations import Violation
from raytide.trainingjob.conditions import invalid_conditions
from raytide.trainingjob.lifecycle import is_over


def as_suspended(obj: Manifest) -> TrainingJob | None:
    """The job without the rest of its spec, if that suspends it; None in every other case, and after its end.

    The pods of a suspended job are deleted whatever else is in the spec: the user or queue controller waits (TJ §5.2).
    """
    spec = obj.get("spec")
    if not isinstance(spec, Mapping) or spec.get("suspend") is not True:
        return None
    try:
        job = TrainingJob.parse({**obj, "spec": {"suspend": True, "trainer": {}}})
    except ValidationError:
        return None
    return None if is_over(job.status) else job.model_copy(update={"raw": obj})


def unreadable_patch(obj: Mapping[str, Any], violations: Sequence[Violation], now: datetime) -> dict[str, Any] | None:
    """The status patch that names the violations; None when the status has them already."""
    written = obj.get("status")
    old: Mapping[str, Any] = written if isinstance(written, Mapping) else {}
    new = {
        **without_unreached(old, obj["metadata"].get("generation")),
        "conditions": invalid_conditions(_readable(old.get("conditions")), violations, now),
        "phase": old.get("phase") or constants.PHASE_PENDING,
        "waiting": constants.INVALID_SPEC,
    }
    return patch_of_unparsed(obj, old, new, now)


def _readable(conditions: Any) -> Sequence[ConditionJson]:
    found = conditions if isinstance(conditions, list) else []
    return [condition for condition in found if isinstance(condition, Mapping)]
