"""What is the smallest merge patch that turns one JSON object into another?

Takes the object as read and as wanted, gives an RFC 7386 patch: only what differs, null for what has to go, lists as a
whole. Applying it to the first gives the second, as long as the second holds no nulls, which a status never does. Called
by whoever writes a status (D8).
"""

from collections.abc import Mapping
from typing import Any


def merge_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The patch; empty when there is nothing to do."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := merge_difference(before, value):
                patch[key] = inner
        elif key not in old or before != value:
            patch[key] = value
    return patch
