"""Clamping of a custom resource's numbers to the bounds of limits.py, for objects that an older CRD let in.

Pure; used by api/raycluster.py and api/trainingjob.py (FD:SEC-F1).
"""

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel

from raytide.api.violations import Violation

M = TypeVar("M", bound=BaseModel)


def clamp_numbers(
    value: M, maximum_by_field: Mapping[str, tuple[str, int]], path: str
) -> tuple[M, tuple[Violation, ...]]:
    """The value with its numbers clamped to their maximums, and one violation for each clamped field.

    `maximum_by_field` maps attributes to the field's name in YAML and its maximum; `path` is the value's path in the
    object. Attributes that are None are skipped.
    """
    exceeded = {
        name: (yaml_name, maximum)
        for name, (yaml_name, maximum) in maximum_by_field.items()
        if (getattr(value, name) or 0) > maximum
    }
    if not exceeded:
        return value, ()
    violations = tuple(
        Violation(
            "FD:SEC-F1",
            f"{path}.{yaml_name}",
            f"is {getattr(value, name)}, above the limit of {maximum}, and is treated as {maximum}; set {maximum} or less",
        )
        for name, (yaml_name, maximum) in exceeded.items()
    )
    return value.model_copy(update={name: maximum for name, (_, maximum) in exceeded.items()}), violations
