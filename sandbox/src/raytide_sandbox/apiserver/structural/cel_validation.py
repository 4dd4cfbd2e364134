"""Evaluation of a schema's CEL rules on an object.

Takes a compiled schema, the object and, on an update, the old object; evaluates the rules of every place and returns a
violation for each rejection. A rejection is ignored when the value, or its nearest ancestor with a partner in the old
object, did not change, unless the rule uses `oldSelf` (then the rule itself must allow it). Called by `schema.py` when
the object has no violation that blocks rules.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from raytide_sandbox.apiserver.structural.cel import Rule, RuleViolation, Scope, escape_name
from raytide_sandbox.apiserver.structural.model import Json, Node, Violation, omit_value, violation
from raytide_sandbox.apiserver.structural.schema_validation import MISSING, is_unchanged, partner

_VISIBLE_METADATA: Final = ("name", "generateName")


def rule_violations(root: Node, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Violation]:
    """The violations of all rules in the object."""
    walk = _Walk()
    walk.visit(_Place(root, "", obj, MISSING if old is None else old, None))
    return walk.found


@dataclass(frozen=True, slots=True)
class _Place:
    """A schema, the value there, its old value (or MISSING), and the place above it."""

    node: Node
    path: str
    new: Json
    old: Json
    above: "_Place | None"

    def is_unchanged(self) -> bool:
        """True when the value, or without an old value its nearest ancestor that has one, did not change."""
        place: _Place | None = self
        while place is not None and place.old is MISSING:
            place = place.above
        return place is not None and is_unchanged(place.node, place.new, place.old)


@dataclass(slots=True)
class _Walk:
    """One walk through one object."""

    found: list[Violation] = field(default_factory=list)

    def visit(self, place: _Place) -> None:
        """Evaluate the rules here, then those below."""
        node, new = place.node, place.new
        if new is None or not node.is_ruled:
            return
        if node.rules:
            self._evaluate(place)
        if isinstance(new, dict):
            for key in new:
                self._visit_key(place, key)
        elif isinstance(new, list) and node.items is not None:
            for index, item in enumerate(new):
                self.visit(_Place(node.items, f"{place.path}[{index}]", item, partner(node, item, place.old), place))

    def _visit_key(self, place: _Place, key: str) -> None:
        below = place.node.at(key)
        if below is None or not below.is_ruled:
            return
        dot = f"{place.path}." if place.path else ""
        path = dot + key if key in place.node.properties else f"{place.path}[{key}]"
        before = place.old.get(key, MISSING) if isinstance(place.old, dict) else MISSING
        self.visit(_Place(below, path, place.new[key], before, place))

    def _evaluate(self, place: _Place) -> None:
        for rule, result in zip(place.node.rules, _evaluate_rules(place), strict=True):
            if result is None:
                continue
            if result.is_broken or rule.is_transition or not place.is_unchanged():
                self.found.append(_violation(rule, result, place))


def _evaluate_rules(place: _Place) -> tuple[RuleViolation | None, ...]:
    """The results of the place's rules; cached by value, because most writes change few places."""
    node, has_old = place.node, place.old is not MISSING and place.old is not None
    new, old = place.new, place.old if has_old else None
    if place.above is None:
        new, old = _visible(node, new), _visible(node, old)
    cache_key = (msgspec.json.encode(new), msgspec.json.encode(old) if has_old else None)
    answers = node.answers.get(cache_key)
    if answers is None:
        if any("__" in rule.text for rule in node.rules):
            new, old = _escape_names(node, new), _escape_names(node, old)
        scope = Scope(new, old, has_old=has_old)
        answers = node.answers[cache_key] = tuple(rule.violation_of(scope) for rule in node.rules)
    return answers


def _visible(node: Node, value: Json) -> Json:
    """What the rules at the root read of an object; of its metadata, rules see name and generateName only.

    A write changes the rest of the metadata and often the status; without those, the cached results hold for it.
    """
    if not isinstance(value, dict):
        return value
    read = node.fields_read
    visible = (
        value if read is None else {key: child for key, child in value.items() if (escape_name(key) or key) in read}
    )
    if isinstance(metadata := visible.get("metadata"), dict):
        return {**visible, "metadata": {key: metadata[key] for key in _VISIBLE_METADATA if key in metadata}}
    return visible


def _violation(rule: Rule, result: RuleViolation, place: _Place) -> Violation:
    if result.is_broken:
        return violation(place.path, "FieldValueInvalid", result.text, place.node.type)
    is_shown = place.node.type not in ("object", "array") and rule.reason in (
        "FieldValueInvalid",
        "FieldValueDuplicate",
    )
    where = (place.path + rule.field_path).removeprefix(".")
    detail = result.text if rule.reason != "FieldValueDuplicate" else ""
    return violation(where, rule.reason, detail, place.new if is_shown else omit_value())


def _escape_names(node: Node | None, value: Json) -> Json:
    """The value with declared names escaped for rules; keys of maps stay as they are."""
    if isinstance(value, dict) and node is not None:
        return {
            (escape_name(key) or key) if key in node.properties else key: _escape_names(node.at(key), child)
            for key, child in value.items()
        }
    if isinstance(value, list) and node is not None:
        return [_escape_names(node.items, child) for child in value]
    return value
