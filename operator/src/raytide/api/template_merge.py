"""What does a pod look like when a user's template is laid over it?

Takes a manifest we built and the user's partial PodTemplateSpec, gives the two merged, as `kubectl patch` would: objects
key by key (RFC 7386, null removes), containers by their name, and entries of the lists whose entries have an identity
(variables, volumes, mounts, ports, pull secrets) replaced one by one; every other list is replaced as a whole. Nothing
given is changed. Called by job_shape.py for `template` of a TrainingJob's roles (TJ §8).
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
"""Lists whose entries are replaced: half of one variable and half of another would be neither."""


def merged_template(pod: Manifest, template: Mapping[str, Any]) -> Manifest:
    """The pod with the template's labels, annotations and spec over it; parts of a wrong type are left out."""
    metadata, spec = _mapping(template.get("metadata")), dict(_mapping(template.get("spec")))
    if not isinstance(spec.get("containers", []), list):
        del spec["containers"]  # a pod has some
    added = {key: _mapping(metadata.get(key)) for key in ("labels", "annotations") if _mapping(metadata.get(key))}
    return {
        **pod,
        "metadata": _merged(pod.get("metadata") or {}, added),
        "spec": _merged(pod.get("spec") or {}, spec),
    }


def merged_entries(under: Iterable[Manifest], over: Iterable[Manifest], key: str) -> list[Manifest]:
    """Both lists, by identity: an entry of `over` takes the place of the one it names, new ones follow."""
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
    """What tells an entry from others; a list or an object is no name, and is left to the API server to refuse."""
    value = entry.get(key)
    return value if value is None or isinstance(value, str | int) else (key, repr(value))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: object) -> list[Manifest]:
    """The entries that are objects: what else is there is for validation to name."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
