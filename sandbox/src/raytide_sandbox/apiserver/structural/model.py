"""Compiled structural schemas: a tree of `Node`s, one per place.

Compiles the `openAPIV3Schema` of a custom resource definition, with patterns and rules compiled once. A schema that a
real API server rejects raises `SchemaError`. Contains no objects and no requests; `schema.py` is the public interface,
the other modules of this package read the tree.
"""

import json
import re
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from cachetools import LRUCache

from raytide_sandbox.apiserver.structural.cel import Rule, RuleError, RuleViolation, compile_rule, fields_read

Json: TypeAlias = Any
Question: TypeAlias = tuple[bytes, bytes | None]
"""A value and, on an update, its old value, both as JSON."""

KINDS: Final = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueTypeInvalid": "Invalid value",
    "FieldValueRequired": "Required value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueTooLong": "Too long",
    "FieldValueTooMany": "Too many",
    "FieldValueForbidden": "Forbidden",
}
REMEMBERED_ANSWERS: Final = 256
TYPES: Final = frozenset({"object", "array", "string", "integer", "number", "boolean"})


class SchemaError(Exception):
    """A definition that a real API server rejects, or a rule that this one cannot evaluate."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One error: `path` is the field, `reason` the cause's reason, `message` its text as in `Status.details`."""

    path: str
    reason: str
    message: str

    @property
    def kind(self) -> str:
        """The reason as a text: `Invalid value`, `Required value`, `Duplicate value`, …."""
        return KINDS[self.reason]

    def __str__(self) -> str:
        return f"{self.path or '<nil>'}: {self.message}"


_NO_VALUE: Final = object()


def violation(path: str, reason: str, detail: str = "", value: Json = _NO_VALUE) -> Violation:
    """Word a violation as the API server does: kind, the value as JSON if given, detail."""
    parts = [KINDS[reason]]
    if value is not _NO_VALUE:
        parts.append(json.dumps(value, separators=(",", ":"), ensure_ascii=False))
    if detail:
        parts.append(detail)
    return Violation(path, reason, ": ".join(parts))


def omit_value() -> Json:
    """The stand-in for a value that the message leaves out (objects and lists rejected by a rule)."""
    return _NO_VALUE


@dataclass(slots=True)
class Limits:
    """The value checks of one place; None means no limit."""

    minimum: float | None = None
    maximum: float | None = None
    is_minimum_exclusive: bool = False
    is_maximum_exclusive: bool = False
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    min_properties: int | None = None
    max_properties: int | None = None
    pattern: re.Pattern[str] | None = None
    pattern_text: str = ""
    format: str = ""
    is_unique: bool = False


@dataclass(slots=True)
class Node:
    """One place of a schema."""

    type: str = ""
    is_int_or_string: bool = False
    is_nullable: bool = False
    is_unknown_kept: bool = False
    is_embedded: bool = False
    is_any_key_allowed: bool = False
    properties: dict[str, "Node"] = field(default_factory=dict)
    additional: "Node | None" = None
    items: "Node | None" = None
    has_default: bool = False
    default: Json = None
    required: tuple[str, ...] = ()
    enum: tuple[Json, ...] | None = None
    limits: Limits | None = None
    list_type: str = ""
    list_keys: tuple[str, ...] = ()
    all_of: tuple["Node", ...] = ()
    any_of: tuple["Node", ...] = ()
    one_of: tuple["Node", ...] = ()
    negated: "Node | None" = None
    rules: tuple[Rule, ...] = ()
    fields_read: frozenset[str] | None = None
    """The fields of this object that its rules can read; None for all."""
    answers: MutableMapping[Question, tuple[RuleViolation | None, ...]] = field(default_factory=dict)
    """Cached results of the rules, by the values as JSON."""
    is_defaulting: bool = False
    """True when there is a default here or below."""
    is_ruled: bool = False
    """True when there is a rule here or below."""
    is_keyed: bool = False
    """True when there is a list of type map or set here or below."""

    def at(self, key: str) -> "Node | None":
        """The schema of a property, declared or additional."""
        return self.properties.get(key) or self.additional

    def below(self) -> Iterator["Node"]:
        """Yield the schemas one level down."""
        yield from self.properties.values()
        if self.additional is not None:
            yield self.additional
        if self.items is not None:
            yield self.items


_LIMITS: Final = {
    "minimum": "minimum",
    "maximum": "maximum",
    "exclusiveMinimum": "is_minimum_exclusive",
    "exclusiveMaximum": "is_maximum_exclusive",
    "multipleOf": "multiple_of",
    "minLength": "min_length",
    "maxLength": "max_length",
    "minItems": "min_items",
    "maxItems": "max_items",
    "minProperties": "min_properties",
    "maxProperties": "max_properties",
    "pattern": "pattern_text",
    "format": "format",
    "uniqueItems": "is_unique",
}


def _build_limits(schema: Mapping[str, Json], path: str) -> Limits | None:
    declared = {ours: schema[theirs] for theirs, ours in _LIMITS.items() if theirs in schema}
    if not declared:
        return None
    limits = Limits(**declared)
    if limits.pattern_text:
        limits.pattern = compile_pattern(limits.pattern_text, path)
    return limits


def compile_pattern(text: str, path: str) -> re.Pattern[str]:
    r"""Compile an RE2 pattern; a final `$` becomes Python's `\Z`, the end of the text."""
    is_anchored = text.endswith("$") and not text.endswith(r"\$")
    try:
        return re.compile(text[:-1] + r"\Z" if is_anchored else text)
    except re.error as error:
        raise SchemaError(f"{path}.pattern: not a regular expression: {error}") from None


def build_node(schema: Mapping[str, Json], path: str, *, is_branch: bool = False) -> Node:
    """Compile one schema and everything below it.

    `is_branch` is true inside allOf, anyOf, oneOf and not, where a type is not required.
    """
    if not isinstance(schema, Mapping):
        raise SchemaError(f"{path}: must be an object")
    node = Node(
        type=schema.get("type", ""),
        is_int_or_string=bool(schema.get("x-kubernetes-int-or-string")),
        is_nullable=bool(schema.get("nullable")),
        is_unknown_kept=bool(schema.get("x-kubernetes-preserve-unknown-fields")),
        is_embedded=bool(schema.get("x-kubernetes-embedded-resource")),
        has_default="default" in schema,
        default=schema.get("default"),
        required=tuple(schema.get("required") or ()),
        enum=tuple(schema["enum"]) if "enum" in schema else None,
        limits=_build_limits(schema, path),
        list_type=schema.get("x-kubernetes-list-type", ""),
        list_keys=tuple(schema.get("x-kubernetes-list-map-keys") or ()),
    )
    _check_type(node, path, is_branch=is_branch)
    _attach_children(node, schema, path, is_branch=is_branch)
    _attach_branches(node, schema, path)
    node.rules = _build_rules(schema, path)
    if node.rules:
        node.answers = LRUCache(REMEMBERED_ANSWERS)
        node.fields_read = fields_read(node.rules)
    node.is_defaulting = node.has_default or any(child.is_defaulting for child in node.below())
    node.is_ruled = bool(node.rules) or any(child.is_ruled for child in node.below())
    node.is_keyed = node.list_type in ("map", "set") or any(child.is_keyed for child in node.below())
    return node


def _check_type(node: Node, path: str, *, is_branch: bool) -> None:
    if node.type and node.type not in TYPES:
        raise SchemaError(f'{path}.type: Unsupported value: "{node.type}"')
    is_free = node.is_int_or_string or node.is_unknown_kept or is_branch
    if not node.type and not is_free:
        raise SchemaError(f"{path}.type: Required value: must not be empty for specified object fields")
    if node.list_type == "map" and not node.list_keys:
        raise SchemaError(f"{path}.x-kubernetes-list-map-keys: Required value: must not be empty if list type is map")


def _attach_children(node: Node, schema: Mapping[str, Json], path: str, *, is_branch: bool) -> None:
    node.properties = {
        name: build_node(child, f"{path}.properties[{name}]", is_branch=is_branch)
        for name, child in (schema.get("properties") or {}).items()
    }
    additional = schema.get("additionalProperties")
    if additional is True:
        node.is_any_key_allowed = True
    elif isinstance(additional, Mapping):
        node.additional = build_node(additional, f"{path}.additionalProperties", is_branch=is_branch)
    if node.properties and (node.additional or node.is_any_key_allowed):
        raise SchemaError(
            f"{path}.additionalProperties: Forbidden: additionalProperties and properties exclude each other"
        )
    if "items" in schema:
        node.items = build_node(schema["items"], f"{path}.items", is_branch=is_branch)
    elif node.type == "array" and not is_branch:
        raise SchemaError(f"{path}.items: Required value: must be specified")


def _attach_branches(node: Node, schema: Mapping[str, Json], path: str) -> None:
    def branches(word: str) -> tuple[Node, ...]:
        listed = enumerate(schema.get(word) or ())
        return tuple(build_node(branch, f"{path}.{word}[{i}]", is_branch=True) for i, branch in listed)

    node.all_of, node.any_of, node.one_of = branches("allOf"), branches("anyOf"), branches("oneOf")
    if "not" in schema:
        node.negated = build_node(schema["not"], f"{path}.not", is_branch=True)


def _build_rules(schema: Mapping[str, Json], path: str) -> tuple[Rule, ...]:
    rules = schema.get("x-kubernetes-validations") or ()
    try:
        return tuple(compile_rule(rule) for rule in rules)
    except RuleError as error:
        raise SchemaError(f"{path}.x-kubernetes-validations: {error}") from None
