"""Which values of the object does the schema not allow?

Takes a compiled schema and a value, with the value before it on an update, and gives violations worded as kube-openapi
words them. Ratcheting: the faults of a place whose value did not change are forgiven; a list of type map is compared
item by item through its keys, other lists as a whole. `duplicates` judges lists of type map and set. Called by
`schema.py`; `is_unchanged` and `partner` by `schema_rules.py` too.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from raytide.sandbox.apiserver.schema_model import Json, Limits, Node, Violation, violation

MISSING: Final[Any] = object()
"""No value before: a create, or a place without a partner in the old object."""

_DATE_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)\Z")
_RANGES: Final = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


def type_name(value: Json) -> str:
    """The JSON type as the API server names it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array"


def faults(node: Node, path: str, new: Json, old: Json = MISSING) -> list[Violation]:
    """Every fault of the value and of what is below it; unchanged places are forgiven."""
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
    if node.enum is not None and not any(value == allowed for allowed in node.enum):
        names = ", ".join(json.dumps(v if isinstance(v, str) else json.dumps(v)) for v in node.enum)
        found.append(violation(path, "FieldValueNotSupported", f"supported values: {names}", value))
    if node.limits is not None and not found:
        found += _limit_faults(node.limits, path, value)
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
    return node.type == "integer" and kind == "number" and float(value).is_integer()


def _wrong_type(node: Node, path: str, value: Json) -> Violation:
    wanted, got = "integer,string" if node.is_int_or_string else node.type, type_name(value)
    place = f"{path} in body" if path else "in body"
    return violation(path, "FieldValueTypeInvalid", f'{place} must be of type {wanted}: "{got}"', got)


def _limit_faults(limits: Limits, path: str, value: Json) -> Iterator[Violation]:
    if isinstance(value, str):
        yield from _string_faults(limits, path, value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _number_faults(limits, path, value)
    elif isinstance(value, list):
        yield from _list_faults(limits, path, value)
    elif isinstance(value, dict):
        yield from _object_faults(limits, path, value)


def _string_faults(limits: Limits, path: str, value: str) -> Iterator[Violation]:
    if limits.max_length is not None and len(value) > limits.max_length:
        yield violation(path, "FieldValueTooLong", f"may not be more than {limits.max_length} bytes")
    if limits.min_length is not None and len(value) < limits.min_length:
        detail = f"{path} in body should be at least {limits.min_length} chars long"
        yield violation(path, "FieldValueInvalid", detail, value)
    if limits.pattern is not None and not limits.pattern.search(value):
        detail = f"{path} in body should match '{limits.pattern_text}'"
        yield violation(path, "FieldValueInvalid", detail, value)
    if limits.format in ("date-time", "datetime") and not _DATE_TIME.match(value):
        detail = f'{path} in body must be of type {limits.format}: "{value}"'
        yield violation(path, "FieldValueInvalid", detail, value)


def _number_faults(limits: Limits, path: str, value: float) -> Iterator[Violation]:
    low, high = limits.minimum, limits.maximum
    if low is not None and (value < low or (limits.is_minimum_exclusive and value == low)):
        than = "greater than" if limits.is_minimum_exclusive else "greater than or equal to"
        yield violation(path, "FieldValueInvalid", f"{path} in body should be {than} {low}", value)
    if high is not None and (value > high or (limits.is_maximum_exclusive and value == high)):
        than = "less than" if limits.is_maximum_exclusive else "less than or equal to"
        yield violation(path, "FieldValueInvalid", f"{path} in body should be {than} {high}", value)
    if limits.multiple_of and value % limits.multiple_of:
        detail = f"{path} in body should be a multiple of {limits.multiple_of}"
        yield violation(path, "FieldValueInvalid", detail, value)
    if limits.format in _RANGES and not _RANGES[limits.format][0] <= value <= _RANGES[limits.format][1]:
        detail = f"Checked value must be of type integer with format {limits.format} in {path}"
        yield violation(path, "FieldValueInvalid", detail, value)


def _list_faults(limits: Limits, path: str, value: list[Json]) -> Iterator[Violation]:
    if limits.max_items is not None and len(value) > limits.max_items:
        yield _too_many(path, len(value), limits.max_items)
    if limits.min_items is not None and len(value) < limits.min_items:
        detail = f"{path} in body should have at least {limits.min_items} items"
        yield violation(path, "FieldValueInvalid", detail, len(value))


def _object_faults(limits: Limits, path: str, value: dict[str, Json]) -> Iterator[Violation]:
    if limits.max_properties is not None and len(value) > limits.max_properties:
        yield _too_many(path, len(value), limits.max_properties)
    if limits.min_properties is not None and len(value) < limits.min_properties:
        detail = f"{path} in body should have at least {limits.min_properties} properties"
        yield violation(path, "FieldValueInvalid", detail, len(value))


def _too_many(path: str, actual: int, most: int) -> Violation:
    noun = "item" if most == 1 else "items"
    return violation(path, "FieldValueTooMany", f"must have at most {most} {noun}", actual)


def _branch_faults(node: Node, path: str, value: Json) -> Iterator[Violation]:
    for branch in node.all_of:
        yield from faults(branch, path, value)
    if node.any_of and all(faults(branch, path, value) for branch in node.any_of):
        yield violation(path, "FieldValueInvalid", f'"{path}" must validate at least one schema (anyOf)', "")
    if node.one_of and sum(not faults(branch, path, value) for branch in node.one_of) != 1:
        yield violation(path, "FieldValueInvalid", f'"{path}" must validate one and only one schema (oneOf)', "")
    if node.negated is not None and not faults(node.negated, path, value):
        yield violation(path, "FieldValueInvalid", f'"{path}" must not validate the schema (not)', "")


# --- who is who between the old object and the new -----------------------------------------------------------------
def _key(node: Node, item: Json) -> tuple[str, ...]:
    keys = node.list_keys
    below = node.items.properties if node.items is not None else {}
    return tuple(
        json.dumps(item[k] if k in item else (below[k].default if k in below else None), sort_keys=True) for k in keys
    )


def partner(node: Node, item: Json, old: Json) -> Json:
    """The old list's item with the same keys, MISSING without one; only lists of type map have partners."""
    if node.list_type != "map" or not isinstance(old, list) or not isinstance(item, dict):
        return MISSING
    key = _key(node, item)
    return next((before for before in old if isinstance(before, dict) and _key(node, before) == key), MISSING)


def is_unchanged(node: Node | None, new: Json, old: Json) -> bool:
    """Whether the value is the old one; items of a list of type map may have changed places."""
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
    times: dict[str, int] = {}
    for index, item in enumerate(value):
        shown = item
        if node.list_type == "map":
            shown = {k: item[k] for k in node.list_keys if k in item} if isinstance(item, dict) else {}
        key = json.dumps(shown, sort_keys=True)
        times[key] = times.get(key, 0) + 1
        if times[key] == 2:
            yield violation(f"{path}[{index}]", "FieldValueDuplicate", "", shown)
