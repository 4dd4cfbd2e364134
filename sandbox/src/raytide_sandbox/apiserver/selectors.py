"""Label and field selectors.

Parses the selectors of the query and returns predicates over labels or over a stored entry; an unparsable selector is a
400 as in a real server, and so is a field that the kind does not support. Pure. Called by the handlers of list, watch
and deletecollection.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from raytide_sandbox.apiserver.api_status import bad_request
from raytide_sandbox.apiserver.builtin_resources import Resource
from raytide_sandbox.apiserver.store import Entry
from raytide_sandbox.apiserver.watch_cursor import Matcher

Labels = Mapping[str, str]
LabelTest = Callable[[Labels], bool]

_PART: Final = re.compile(r"(?:[^,(]|\([^)]*\))+")
_SET: Final = re.compile(r"^(\S+)\s+(in|notin)\s*\(([^)]*)\)$")
_EQUAL: Final = re.compile(r"^([^\s=!<>,]+)\s*(==|=|!=)\s*([^\s=!<>,]*)$")
_EXISTS: Final = re.compile(r"^(!?)\s*([A-Za-z0-9][-A-Za-z0-9_./]*)$")

_FIELDS: Final[dict[str, frozenset[str]]] = {
    "pods": frozenset(
        {
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        }
    ),
    "events": frozenset(
        {
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        }
    ),
    "namespaces": frozenset({"status.phase"}),
    "secrets": frozenset({"type"}),
    "nodes": frozenset({"spec.unschedulable"}),
    "services": frozenset({"spec.clusterIP", "spec.type"}),
    "jobs.batch": frozenset({"status.successful"}),
    "replicasets.apps": frozenset({"status.replicas"}),
}


def label_test(text: str) -> LabelTest | None:
    """The predicate of a labelSelector; None when it selects everything."""
    if not text.strip():
        return None
    tests = [_label_requirement(part.strip()) for part in _PART.findall(text)]
    if len(tests) == 1:
        return tests[0]
    return lambda given: all(test(given) for test in tests)


def _label_requirement(text: str) -> LabelTest:
    if found := _SET.match(text):
        key, operator, values = found.groups()
        wanted = {value.strip() for value in values.split(",")}
        if operator == "in":
            return lambda labels: labels.get(key) in wanted
        return lambda labels: labels.get(key) not in wanted
    if found := _EQUAL.match(text):
        key, operator, value = found.groups()
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if found := _EXISTS.match(text):
        negation, key = found.groups()
        if negation:
            return lambda labels: key not in labels
        return lambda labels: key in labels
    raise bad_request(f"unable to parse requirement: found '{text}', expected: label selector")


def matches_labels(selector: Mapping[str, Any], labels: Labels) -> bool:
    """True when a LabelSelector object (matchLabels, matchExpressions) selects these labels."""
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(_expression(rule, labels) for rule in selector.get("matchExpressions") or ())


def _expression(rule: Mapping[str, Any], labels: Labels) -> bool:
    key, operator, values = rule["key"], rule["operator"], rule.get("values") or ()
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    is_listed = labels.get(key) in values
    return is_listed if operator == "In" else not is_listed


def field_requirements(text: str, resource: Resource, selectable: frozenset[str]) -> list[tuple[str, str, bool]]:
    """(field, value, is_equal) of a fieldSelector; 400 for a field that this kind does not support.

    `selectable` are the fields that a custom kind declares; those of built-in kinds are in a table.
    """
    requirements = []
    for part in text.split(",") if text else ():
        found = re.match(r"^([^=!]+)(==|=|!=)(.*)$", part)
        if found is None:
            raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        field, operator, value = found.groups()
        field = field.replace("regarding.", "involvedObject.") if resource.key == "events" else field
        known = field in {"metadata.name", "metadata.namespace"} or field in _FIELDS.get(resource.key, selectable)
        if not known:
            raise bad_request(f"field label not supported: {field}")
        if resource.key == "events" and field == "source":
            field = "source.component"
        requirements.append((field, value, operator != "!="))
    return requirements


def entry_matcher(labels: LabelTest | None, fields: list[tuple[str, str, bool]]) -> Matcher | None:
    """One predicate over stored entries; None when everything is selected."""
    if not fields:
        return None if labels is None else lambda entry: labels(entry.labels)
    wanted = [(field.split("."), value, is_equal) for field, value, is_equal in fields]

    def matches(entry: Entry) -> bool:
        if labels is not None and not labels(entry.labels):
            return False
        obj = entry.shared()
        return all((_field_value(obj, path) == value) == is_equal for path, value, is_equal in wanted)

    return matches


def _field_value(obj: Any, path: list[str]) -> str:
    """The field at that path as text, as field selectors compare it; empty if it is absent."""
    value = obj
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if path == ["spec", "unschedulable"] or isinstance(value, bool):
        return "true" if value else "false"
    if path == ["source"] and isinstance(value, dict):
        return str(value.get("component") or "")
    return "" if value is None else str(value)
