"""Field managers: who wrote a field last, by `metadata.managedFields`.

Input: the raw object and the path of the field. Output: the entries that own fields, bounded, and the manager of the last one.
Pure; called by raycluster/conditions_scaling.py and by fairshare (SC:S6, TJ:3.21).
"""

from collections.abc import Iterator, Mapping
from heapq import nlargest
from typing import Any

from raytide.api.constants import OPERATOR
from raytide.api.limits import MAX_MANAGERS
from raytide.api.meta import Manifest


def latest_entries(obj: Manifest) -> Iterator[Mapping[str, Any]]:
    """The latest MAX_MANAGERS entries: tenants may apply with thousands of managers, and each is looked at."""
    entries = (obj.get("metadata") or {}).get("managedFields")
    found = (entry for entry in entries if isinstance(entry, Mapping)) if isinstance(entries, list) else ()
    yield from nlargest(MAX_MANAGERS, found, key=lambda entry: str(entry.get("time")))


def inner(fields: Any, *keys: str) -> Mapping[str, Any]:
    """The part of `fieldsV1` at that path; empty if there is none."""
    for key in keys:
        fields = fields.get(key) if isinstance(fields, Mapping) else None
    return fields if isinstance(fields, Mapping) else {}


def last_entry(obj: Manifest, *path: str) -> Mapping[str, Any] | None:
    """The latest entry of another client than the operator that owns the field."""
    *parents, field = (f"f:{name}" for name in path)
    for entry in latest_entries(obj):
        if entry.get("manager") != OPERATOR and field in inner(entry.get("fieldsV1"), *parents):
            return entry
    return None
