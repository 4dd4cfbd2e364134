"""Validation of values against a structural schema.

Takes a compiled schema and a value, with the old value on an update, and returns violations worded as kube-openapi
words them. Ratcheting: violations of a place whose value did not change are ignored; a list of type map is compared
item by item through its keys, other lists as a whole. `duplicates` checks lists of type map and set. Called by
`schema.py`; `is_unchanged` and `partner` by `cel_validation.py` too.
"""

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from raytide_sandbox.apiserver.structural.model import Json, Node, Violation, violation
from raytide_sandbox.apiserver.structural.value_validation import limit_faults

MISSING: Final[Any] = object()
"""No old value: a create, or a place without a partner in the old object."""

_DNS_1035: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?\Z")
_NO_KIND: Final = (
    "may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric "
    "characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  "
    "or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def type_name(value: Json) -> str:
    """The JSON type as the API server names it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer" if -(2**63) <= value < 2**63 else "number"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array"


def faults(node: Node, path: str, new: Json, old: Json = MISSING) -> list[Violation]:
    """All violations of the value and below; those of unchanged places are ignored."""
    found = _own_faults(node, path, new)
    if isinstance(new, dict):
        found += _faults_of_properties(node, path, new, old)
    elif isinstance(new, list) and node.items is not None:
        for index, item in enumerate(new):
            found += faults(node.items, f"{path}[{index}]", item, partner(node, item, old))
    if found and old is not MISSING and is_unchanged(node, new, old):
        return []
    return found


def _faults_of_properties(node: Node, path: str, new: dict[str, Json], old: Json) -> list[Violation]:
    found = [
        violation(f"{path}.{name}" if path else name, "FieldValueRequired") for name in node.required if name not in new
    ]
    before = old if isinstance(old, dict) else {}
    dot = f"{path}." if path else ""
    for key, value in new.items():
        below = node.at(key)
        if below is not None:
            found += faults(below, dot + key, value, before.get(key, MISSING))
    return found


def _own_faults(node: Node, path: str, value: Json) -> list[Violation]:
    if value is None and node.is_nullable:
        return []
    found = [] if _has_type(node, value) else [_wrong_type(node, path, value)]
    if node.enum is not None and not any(value == v and type(value) is type(v) for v in node.enum):
        listed = ", ".join(json.dumps(v if isinstance(v, str) else json.dumps(v)) for v in node.enum)
        found.append(violation(path, "FieldValueNotSupported", f"supported values: {listed}", value))
    if node.limits is not None and not found:
        found += islice(limit_faults(node.limits, path, value), 1)
    if node.is_embedded and isinstance(value, dict):
        found += _embedded_faults(path, value)
    if node.all_of or node.any_of or node.one_of or node.negated is not None:
        found += _branch_faults(node, path, value)
    return found


def _has_type(node: Node, value: Json) -> bool:
    kind = type_name(value)
    if node.is_int_or_string:
        return kind in ("integer", "string")
    if not node.type or kind == node.type:
        return True
    if node.type == "number":
        return kind == "integer"
    return node.type == "integer" and isinstance(value, float) and value.is_integer()


def _wrong_type(node: Node, path: str, value: Json) -> Violation:
    wanted, got = "integer,string" if node.is_int_or_string else node.type, type_name(value)
    if node.limits is not None and node.limits.format == "date-time":
        wanted, got = "date-time", {"integer": "int64", "number": "float64"}.get(got, "")
    place = f"{path} in body" if path else "in body"
    return violation(path, "FieldValueTypeInvalid", f'{place} must be of type {wanted}: "{got}"', got)


def _embedded_faults(path: str, value: dict[str, Json]) -> Iterator[Violation]:
    for key in ("apiVersion", "kind"):
        if key not in value:
            yield violation(f"{path}.{key}", "FieldValueRequired")
        elif not isinstance(value[key], str):
            yield violation(f"{path}.{key}", "FieldValueInvalid", "must be a string", value[key])
        elif not value[key]:
            yield violation(f"{path}.{key}", "FieldValueInvalid", "must not be empty", "")
    kind = value.get("kind")
    if isinstance(kind, str) and kind and not _DNS_1035.match(kind.lower()):
        yield violation(f"{path}.kind", "FieldValueInvalid", _NO_KIND, kind)


def _branch_faults(node: Node, path: str, value: Json) -> Iterator[Violation]:
    """Violations of allOf, anyOf, oneOf and not; as in kube-openapi, the path is empty and stands in the text."""
    below = [fault for branch in node.all_of for fault in faults(branch, path, value)]
    if below:
        yield from below
        yield violation("", "FieldValueInvalid", f'"{path}" must validate all the schemas (allOf)', "")
    if node.any_of:
        tried = [faults(branch, path, value) for branch in node.any_of]
        if all(tried):
            yield violation("", "FieldValueInvalid", f'"{path}" must validate at least one schema (anyOf)', "")
            yield from tried[0]
    if node.one_of:
        tried = [faults(branch, path, value) for branch in node.one_of]
        fitting = sum(not found for found in tried)
        if fitting != 1:
            count = f"Found {fitting} valid alternatives" if fitting else "Found none valid"
            text = f'"{path}" must validate one and only one schema (oneOf). {count}'
            yield violation("", "FieldValueInvalid", text, "")
            yield from () if fitting else tried[0]
    if node.negated is not None and not faults(node.negated, path, value):
        yield violation("", "FieldValueInvalid", f'"{path}" must not validate the schema (not)', "")


# --- matching of old and new values ---------------------------------------------------------------------------------
def _key(node: Node, item: Json) -> tuple[str, ...] | None:
    """An item's key values, None if one is missing or not a scalar."""
    if not isinstance(item, dict):
        return None
    if any(isinstance(item.get(key), (dict, list, type(None))) for key in node.list_keys):
        return None
    return tuple(json.dumps(item[key], sort_keys=True) for key in node.list_keys)


def partner(node: Node, item: Json, old: Json) -> Json:
    """The old list's item with the same keys, MISSING without one; only lists of type map have partners."""
    if node.list_type != "map" or not isinstance(old, list):
        return MISSING
    key = _key(node, item)
    if key is None:
        return MISSING
    return next((before for before in old if _key(node, before) == key), MISSING)


def is_unchanged(node: Node | None, new: Json, old: Json) -> bool:
    """True when the value equals the old one; items of a list of type map may be reordered."""
    if node is None or type(new) is not type(old):
        return new is old or (node is None and bool(new == old))
    if isinstance(new, dict):
        return new.keys() == old.keys() and all(
            is_unchanged(node.at(key), value, old[key]) if node.at(key) is not None else value == old[key]
            for key, value in new.items()
        )
    if isinstance(new, list):
        if node.list_type != "map":
            return bool(new == old)
        return len(new) == len(old) and all(_is_item_unchanged(node, item, old) for item in new)
    return bool(new == old)


def _is_item_unchanged(node: Node, item: Json, old: list[Json]) -> bool:
    before = partner(node, item, old)
    return before is not MISSING and is_unchanged(node.items, item, before)


# --- lists of type map and set -------------------------------------------------------------------------------------
def duplicates(node: Node, path: str, value: Json) -> list[Violation]:
    """Items of lists of type map or set that repeat an earlier one."""
    if not node.is_keyed:
        return []
    found: list[Violation] = []
    if isinstance(value, list):
        if node.list_type in ("map", "set"):
            found += _repeated(node, path, value)
        if node.items is not None:
            for index, item in enumerate(value):
                found += duplicates(node.items, f"{path}[{index}]", item)
    elif isinstance(value, dict):
        dot = f"{path}." if path else ""
        for key, child in value.items():
            below = node.at(key)
            if below is not None:
                found += duplicates(below, dot + key if key in node.properties else f"{path}[{key}]", child)
    return found


def _repeated(node: Node, path: str, value: list[Json]) -> Iterator[Violation]:
    odd = next((i for i, item in enumerate(value) if item is not None and not isinstance(item, dict)), None)
    if node.list_type == "map" and odd is not None:
        detail = "must be an object for an array of list-type map"
        yield violation(f"{path}[{odd}]", "FieldValueInvalid", detail, value[odd])
        return
    times: dict[str, int] = {}
    for index, item in enumerate(value):
        shown = item
        if node.list_type == "map":
            shown = {k: item[k] for k in node.list_keys if k in item} if isinstance(item, dict) else {}
        key = json.dumps(shown, sort_keys=True)
        times[key] = times.get(key, 0) + 1
        if times[key] == 2:
            yield violation(f"{path}[{index}]", "FieldValueDuplicate", "", shown)
