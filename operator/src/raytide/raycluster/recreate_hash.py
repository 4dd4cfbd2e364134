"""Has the spec changed so much that pods must be made anew?

Takes the RayCluster as it came, gives a fingerprint of its spec that ignores what can change without touching pods:
counts, workers to delete, tolerations, scheduling gates and the upgrade strategy itself (RC:UP-1). Two spellings of the
same amount count as equal. The value means something only to the operator version that wrote it (RC:UP-4). Stamped on
head pods; compared when `upgradeStrategy` is `Recreate`.
"""

import hashlib
import json
from base64 import b32hexencode
from typing import Any, Final

from raytide.api.meta import Manifest
from raytide.api.quantity import Quantity, QuantityError
from raytide.api.raycluster import RayCluster

_IGNORED_IN_SPEC: Final = frozenset({"upgradeStrategy"})
_IGNORED_IN_GROUP: Final = frozenset({"replicas", "minReplicas", "maxReplicas", "scaleStrategy"})
_IGNORED_IN_POD_SPEC: Final = frozenset({"tolerations", "schedulingGates"})
_DIGEST_BYTES: Final = 20


def recreate_hash(cluster: RayCluster) -> str:
    """32 characters, the same for specs that need the same pods and services."""
    spec: Manifest = cluster.raw["spec"]
    relevant = _without(spec, _IGNORED_IN_SPEC)
    relevant["headGroupSpec"] = _relevant_group(spec["headGroupSpec"])
    relevant["workerGroupSpecs"] = [_relevant_group(group) for group in spec.get("workerGroupSpecs") or ()]
    text = json.dumps(_without_nulls(relevant), sort_keys=True, separators=(",", ":"))
    return b32hexencode(hashlib.sha256(text.encode()).digest()[:_DIGEST_BYTES]).decode()


def _relevant_group(group: Manifest) -> Manifest:
    relevant = _without(group, _IGNORED_IN_GROUP)
    # An absent rayStartParams becomes an empty one when somebody writes the whole object back (RC §1.2).
    relevant["rayStartParams"] = group.get("rayStartParams") or {}
    template = dict(group.get("template") or {})
    template["spec"] = _without(template.get("spec") or {}, _IGNORED_IN_POD_SPEC)
    for key in ("containers", "initContainers"):
        if template["spec"].get(key):
            template["spec"][key] = [_with_canonical_resources(container) for container in template["spec"][key]]
    return {**relevant, "template": template}


def _with_canonical_resources(container: Manifest) -> Manifest:
    resources = container.get("resources") or {}
    amounts = {key: {n: _canonical(a) for n, a in (resources.get(key) or {}).items()} for key in ("limits", "requests")}
    return {**container, "resources": {**resources, **amounts}}


def _canonical(amount: Any) -> str:
    try:
        quantity = Quantity.parse(amount)
    except QuantityError:
        return str(amount)
    return f"{quantity.nanos}n"


def _without(mapping: Manifest, keys: frozenset[str]) -> Manifest:
    return {key: value for key, value in mapping.items() if key not in keys}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value
