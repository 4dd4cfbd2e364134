"""Null dropping, defaulting and pruning of custom resources.

Takes a compiled schema and an object, which is changed in place: nulls of fields that are not nullable are dropped,
defaults are filled in, unknown fields are pruned and their paths returned. `apiVersion`, `kind` and `metadata` of a
whole resource are never pruned, but unknown fields inside that metadata are. Called by `schema.py`; on a write, pruning
comes before defaulting.
"""

import copy
from typing import Any, Final

from raytide_sandbox.apiserver.structural.model import Json, Node

TYPE_AND_METADATA: Final = frozenset({"apiVersion", "kind", "metadata"})
_METADATA_NAMES: Final = """
name generateName namespace selfLink uid resourceVersion generation creationTimestamp deletionTimestamp
deletionGracePeriodSeconds labels annotations ownerReferences finalizers managedFields
"""
OBJECT_METADATA: Final = frozenset(_METADATA_NAMES.split())


def _is_null(value: Json, node: Node | None) -> bool:
    return value is None and node is not None and not node.is_nullable


def drop_nulls(value: Json, node: Node | None) -> None:
    """Remove nulls of fields that are neither nullable nor defaulted; `fill_defaults` replaces the others."""
    if isinstance(value, dict):
        nulls = []
        for key, child in value.items():
            below = node.at(key) if node is not None else None
            if child is None:
                if below is not None and _is_null(child, below) and not below.has_default:
                    nulls.append(key)
            elif below is not None:
                drop_nulls(child, below)
        for key in nulls:
            del value[key]
    elif isinstance(value, list) and node is not None:
        for child in value:
            drop_nulls(child, node.items)


def fill_defaults(value: Json, node: Node | None) -> None:
    """Add every default whose parent exists; a default object gets the defaults below it too."""
    if node is None or not node.is_defaulting:
        return
    if isinstance(value, dict):
        for key, below in node.properties.items():
            if below.has_default and (key not in value or _is_null(value[key], below)):
                value[key] = copy.deepcopy(below.default)
        for key, child in value.items():
            below_key = node.at(key)
            if _is_null(child, below_key) and below_key is not None:
                value[key] = copy.deepcopy(below_key.default)
            fill_defaults(value[key], below_key)
    elif isinstance(value, list) and node.items is not None:
        for index, child in enumerate(value):
            if _is_null(child, node.items):
                value[index] = copy.deepcopy(node.items.default)
            fill_defaults(value[index], node.items)


def prune_unknown(obj: dict[str, Any], root: Node) -> list[str]:
    """Remove fields that are not in the schema from a whole resource; returns their paths, sorted."""
    unknown: list[str] = []
    _prune_metadata(obj, "", unknown)
    _prune(obj, root, "", unknown, is_resource=True)
    return sorted(unknown)


def _prune_metadata(obj: dict[str, Any], path: str, unknown: list[str]) -> None:
    metadata = obj.get("metadata")
    if isinstance(metadata, dict):
        for key in [key for key in metadata if key not in OBJECT_METADATA]:
            unknown.append(f"{path}metadata.{key}")
            del metadata[key]


def _prune(value: Json, node: Node | None, path: str, unknown: list[str], *, is_resource: bool = False) -> None:
    if isinstance(value, list):
        for index, child in enumerate(value):
            if isinstance(child, (dict, list)):
                _prune(child, node.items if node is not None else None, f"{path}[{index}]", unknown)
    elif isinstance(value, dict):
        _prune_object(value, node, path, unknown, is_resource=is_resource or (node is not None and node.is_embedded))


def _prune_object(
    value: dict[str, Any], node: Node | None, path: str, unknown: list[str], *, is_resource: bool
) -> None:
    dot = f"{path}." if path else ""
    if path and is_resource:
        _prune_metadata(value, dot, unknown)
    keeps = node is not None and (node.is_unknown_kept or node.is_any_key_allowed)
    for key in list(value):
        if is_resource and key in TYPE_AND_METADATA:
            continue
        child = value[key]
        below = node.at(key) if node is not None else None
        if below is not None:
            if isinstance(child, (dict, list)):
                _prune(child, below, dot + key, unknown)
        elif not keeps:
            unknown.append(dot + key)
            del value[key]
