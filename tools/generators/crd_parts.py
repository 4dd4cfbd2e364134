"""Builders of `openAPIV3Schema` shared by both CRDs.

Types, objects, lists, maps, enums, conditions, rules in CEL with which stored objects stay editable, and the descriptions of `kubectl
explain`. Used by the schemas and rules of each kind, and by crds.py.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]
Rule = dict[str, Any]

MAX_INT32 = 2147483647
STRING: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
INT32: Schema = {"type": "integer", "format": "int32"}
COUNT: Schema = {**INT32, "minimum": 0, "maximum": MAX_INT32}  # the API server does not check the range of int32
DNS_1035_MESSAGE = (
    "must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an "
    "alphanumeric character"
)
"""The message of Kubernetes for DNS-1035 labels."""
ANYTHING: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def build_object(properties: Schema, *, required: tuple[str, ...] = (), **more: Any) -> Schema:
    """An object with these properties."""
    schema: Schema = {"type": "object", "properties": properties, **more}
    return {**schema, "required": list(required)} if required else schema


def build_list(items: Schema, **more: Any) -> Schema:
    """A list of items with this schema."""
    return {"type": "array", "items": items, **more}


def build_map(values: Schema, **more: Any) -> Schema:
    """A map of values with this schema."""
    return {"type": "object", "additionalProperties": values, **more}


def build_enum(*words: str) -> Schema:
    """A string that is one of these words."""
    return {"type": "string", "enum": list(words)}


CONDITION_TYPE: Schema = {
    **STRING,
    "maxLength": 316,
    "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
}


def build_conditions() -> Schema:
    """`status.conditions`, as a list map by type."""
    condition = build_object(
        {
            "lastTransitionTime": {**STRING, "format": "date-time"},
            "message": {**STRING, "maxLength": 32768},
            "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
            "reason": {
                **STRING,
                "maxLength": 1024,
                "minLength": 1,
                "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            },
            "status": build_enum("True", "False", "Unknown"),
            "type": CONDITION_TYPE,
        },
        required=("lastTransitionTime", "message", "reason", "status", "type"),
    )
    return build_list_map(condition, "type")


def build_diagnoses() -> Schema:
    """`status.diagnoses`: why something is missing (api/record_fields.py)."""
    texts = dict.fromkeys(("group", "message", "reason", "stage"), STRING)
    return build_list(build_object({**texts, "count": INT32, "parameters": build_map(STRING)}))


def build_list_map(items: Schema, key: str, **more: Any) -> Schema:
    """A list that server-side apply merges by this key, so that each writer owns its entries."""
    return build_list(items, **more, **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]})


def rule(expression: str, message: str, **more: Any) -> Rule:
    """A rule for a small value: Kubernetes does not validate unchanged values again."""
    return {"rule": expression, "message": message, **more}


def unless_before(expression: str, message: str, **more: Any) -> list[Rule]:
    """A rule for a large value: it rejects only writes before which it was not violated.

    Returns two rules, for creates and for updates, because the API server cannot bound the cost of `oldSelf.value()`.
    """
    before = re.sub(r"\bself\b", "oldSelf", expression)
    return [
        {"rule": f"oldSelf.hasValue() || ({expression})", "message": message, "optionalOldSelf": True, **more},
        {"rule": f"({expression}) || !({before})", "message": message, **more},
    ]


def described(schema: Schema, words: Mapping[str, str]) -> Schema:
    """A copy of the schema with a description at each path (`spec.items[].name`); raises KeyError for an unknown path."""
    schema = json.loads(json.dumps(schema))
    for path, sentence in words.items():
        node = schema
        for step in filter(None, path.replace("[]", ".[]").split(".")):
            node = node["items"] if step == "[]" else node["properties"][step]
        rest = dict(node)
        node.clear()
        node.update({"description": sentence, **rest})
    return schema
