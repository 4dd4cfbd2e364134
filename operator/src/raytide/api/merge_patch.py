"""Minimal JSON merge patch (RFC 7386) between two objects.

Takes the object as read and as desired and returns a patch with only the differences: null for removed keys, lists as a
whole. Applied to the first it yields the second, provided that the second contains no nulls, as holds for a status.
Used to write status and the membership ConfigMap (D8).
"""

from collections.abc import Mapping
from typing import Any


def merge_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The patch from `old` to `new`; empty when they are equal."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := merge_difference(before, value):
                patch[key] = inner
        elif key not in old or before != value:
            patch[key] = value
    return patch
