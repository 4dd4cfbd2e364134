"""Limits of values: lengths, ranges, patterns, formats.

Takes the limits of one place and a value of the right type; yields violations worded as kube-openapi words them,
without the ranges of int32 and int64. The caller reports only the first, as a real server does. No ratcheting. Called
by `schema_validation.py`.
"""

import re
from collections.abc import Iterator
from typing import Final

from raytide_sandbox.apiserver.structural.model import Json, Limits, Violation, violation

_DATE_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)\Z")


def limit_faults(limits: Limits, path: str, value: Json) -> Iterator[Violation]:
    """Yield the violations of a value of the right type."""
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
        yield violation(path, "FieldValueTypeInvalid", detail, value)


def _number_faults(limits: Limits, path: str, value: float) -> Iterator[Violation]:
    low, high = limits.minimum, limits.maximum
    if limits.multiple_of and value % limits.multiple_of:
        detail = f"{path} in body should be a multiple of {limits.multiple_of}"
        yield violation(path, "FieldValueInvalid", detail, value)
    if high is not None and (value > high or (limits.is_maximum_exclusive and value == high)):
        than = "less than" if limits.is_maximum_exclusive else "less than or equal to"
        yield violation(path, "FieldValueInvalid", f"{path} in body should be {than} {high}", value)
    if low is not None and (value < low or (limits.is_minimum_exclusive and value == low)):
        than = "greater than" if limits.is_minimum_exclusive else "greater than or equal to"
        yield violation(path, "FieldValueInvalid", f"{path} in body should be {than} {low}", value)


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
