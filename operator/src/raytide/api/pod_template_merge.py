"""Merge of a user's partial pod template into a pod built by the operator.

Merges as `kubectl patch` does: objects key by key (RFC 7386, null removes), containers by name; entries of lists with a
merge key (variables, volumes, mounts, ports, pull secrets) are replaced one by one, every other list as a whole. The
arguments are not changed. Used by trainingjob_pods.py for `template` of a TrainingJob's roles (TJ §8).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from raytide.api.meta import Manifest

_MERGED_BY: Final = {"containers": "name", "initContainers": "name"}
"""Lists whose entries are merged."""
_REPLACED_BY: Final = {
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
}
"""Lists whose entries are replaced whole: merging the fields of two variables or volumes would give invalid entries."""


def merged_template(pod: Manifest, template: Mapping[str, Any]) -> Manifest:
    """The pod with the template's labels, annotations and spec merged over it; parts of a wrong type are ignored."""
    metadata, spec = _mapping(template.get("metadata")), dict(_mapping(template.get("spec")))
    if not isinstance(spec.get("containers", []), list):
        del spec["containers"]  # null or a wrong type: keep the built containers
    added = {key: _mapping(metadata.get(key)) for key in ("labels", "annotations") if _mapping(metadata.get(key))}
    return {
        **pod,
        "metadata": _merged(pod.get("metadata") or {}, added),
        "spec": _merged(pod.get("spec") or {}, spec),
    }


def merged_entries(under: Iterable[Manifest], over: Iterable[Manifest], key: str) -> list[Manifest]:
    """Both lists, by `key`: an entry of `over` replaces the one with the same key, new ones follow."""
    return list({_identity(entry, key): entry for entry in (*under, *over)}.values())


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> Manifest:
    merged = dict(under)
    for key, value in over.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            merged[key] = _merged(_mapping(merged.get(key)), value)
        elif key in _MERGED_BY:
            merged[key] = _merged_list(merged.get(key) or (), _mappings(value), _MERGED_BY[key])
        elif key in _REPLACED_BY:
            merged[key] = merged_entries(merged.get(key) or (), _mappings(value), _REPLACED_BY[key])
        else:
            merged[key] = value
    return merged


def _merged_list(under: Iterable[Manifest], over: Iterable[Manifest], key: str) -> list[Manifest]:
    before = {_identity(entry, key): entry for entry in under}
    return merged_entries(
        before.values(), [_merged(before.get(_identity(entry, key), {}), entry) for entry in over], key
    )


def _identity(entry: Manifest, key: str) -> object:
    """The entry's merge key; a list or an object is not a valid key and is left to the API server to reject."""
    value = entry.get(key)
    return value if value is None or isinstance(value, str | int) else (key, repr(value))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: object) -> list[Manifest]:
    """The entries that are objects; validation reports the others."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
