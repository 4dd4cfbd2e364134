"""Hash of a RayCluster spec that changes when pods must be recreated.

Takes the RayCluster as received and hashes its spec without the fields that can change while pods stay: counts, workers
to delete, tolerations, scheduling gates and the upgrade strategy itself (RC:UP-1). The spec is normalised first:
explicit defaults, which an API server may add whenever the CRD changes, the order of keys and groups, and the spelling
of quantities have no effect (FD:RC-B8). Stored as an annotation on head pods; compared when `upgradeStrategy` is
`Recreate`, and only with a hash of the same version, which is its prefix (RC:UP-4).
"""

import hashlib
import json
from base64 import b32hexencode
from collections.abc import Mapping
from typing import Any, Final

from raytide.api.meta import Manifest
from raytide.api.quantity import Quantity, QuantityError
from raytide.api.raycluster import RayCluster

VERSION: Final = "v2"
"""Version of the rules in this file; increment it with every change that alters the hash of an unchanged spec. Hashes
of different versions are not compared, so no pod is recreated. The first, without a version, hashed the JSON as
written."""

_IGNORED_IN_SPEC: Final = frozenset({"upgradeStrategy"})
_IGNORED_IN_GROUP: Final = frozenset({"replicas", "minReplicas", "maxReplicas", "scaleStrategy"})
_IGNORED_IN_POD_SPEC: Final = frozenset({"tolerations", "schedulingGates"})
_DIGEST_BYTES: Final = 20

_MAPS: Final = frozenset(
    {"labels", "annotations", "nodeSelector", "matchLabels", "rayStartParams", "headServiceAnnotations"}
    | {"volumeAttributes", "options"}
)
"""Keys whose value is a map with user-defined keys: empty values inside it are significant."""
_GROUPS: Final = frozenset({"headGroupSpec", "workerGroupSpecs"})
_AMOUNTS: Final = frozenset({"limits", "requests"})
_AMOUNT: Final = frozenset({"sizeLimit", "divisor"})

_EMPTY_IS_INSIGNIFICANT: Final = (
    _MAPS | _AMOUNTS | {"resources", "securityContext", "metadata", "affinity", "lifecycle"}
)
"""Keys where `{}` equals absence; elsewhere it may be significant, such as `emptyDir: {}`."""
_FALSE_IS_SIGNIFICANT: Final = frozenset(
    {"suspend", "allowPrivilegeEscalation", "automountServiceAccountToken", "enableServiceLinks", "hostUsers"}
    | {"allocateLoadBalancerNodePorts"}
)
"""Keys where `false` differs from absence."""
_EMPTY_TEXT_IS_SIGNIFICANT: Final = frozenset({"storageClassName"})

_PROBE: Final = {
    "initialDelaySeconds": 0,
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_CONTAINER: Final = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
_VOLUME: Final = {"defaultMode": 0o644}
_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "workerGroupSpecs": {"numOfHosts": 1, "priority": 0},
    "networkPolicy": {"mode": "DenyAll"},
    "ports": {"protocol": "TCP"},
    "spec": {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
        "enableServiceLinks": True,
    },
    "containers": _CONTAINER,
    "initContainers": _CONTAINER,
    "livenessProbe": _PROBE,
    "readinessProbe": _PROBE,
    "startupProbe": _PROBE,
    "httpGet": {"scheme": "HTTP"},
    "fieldRef": {"apiVersion": "v1"},
    "resourceFieldRef": {"divisor": "0n"},
    "secret": _VOLUME,
    "configMap": _VOLUME,
    "downwardAPI": _VOLUME,
    "projected": _VOLUME,
    "serviceAccountToken": {"expirationSeconds": 3600},
    "azureDisk": {"cachingMode": "ReadWrite", "fsType": "ext4", "kind": "Shared"},
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"keyring": "/etc/ceph/keyring", "pool": "rbd", "user": "admin"},
    "scaleIO": {"fsType": "xfs", "storageMode": "ThinProvisioned"},
}
"""Default values by the object's key and the field: the CRD's, and Kubernetes' for pods."""


def recreate_hash(cluster: RayCluster) -> str:
    """The version and 32 characters of the hash; equal for specs that need the same pods and services."""
    spec: Manifest = cluster.raw["spec"]
    relevant = _without(spec, _IGNORED_IN_SPEC)
    relevant["headGroupSpec"] = _relevant_group(spec["headGroupSpec"])
    groups = [_relevant_group(group) for group in spec.get("workerGroupSpecs") or ()]
    relevant["workerGroupSpecs"] = sorted(groups, key=lambda group: str(group.get("groupName")))
    text = json.dumps(_normalized(relevant, "", ""), sort_keys=True, separators=(",", ":"))
    return f"{VERSION}:{b32hexencode(hashlib.sha256(text.encode()).digest()[:_DIGEST_BYTES]).decode()}"


def _relevant_group(group: Manifest) -> Manifest:
    template = dict(group.get("template") or {})
    template["spec"] = _without(template.get("spec") or {}, _IGNORED_IN_POD_SPEC)
    return {**_without(group, _IGNORED_IN_GROUP), "template": template}


def _normalized(value: Any, key: str, parent: str) -> Any:
    """The value in normal form; `key` is the key it is stored under, `parent` that of the enclosing object."""
    if isinstance(value, list):
        return [_normalized(inner, key, parent) for inner in value]
    if not isinstance(value, dict):
        return _canonical(value) if key in _AMOUNT else value
    if key in _AMOUNTS:
        return {name: _canonical(amount) for name, amount in value.items() if amount is not None}
    if key in _MAPS or (key == "resources" and parent in _GROUPS):
        return {name: inner for name, inner in value.items() if inner is not None}
    found = {name: _normalized(inner, name, key) for name, inner in value.items()}
    if key == "resources" and "limits" in found:
        found["requests"] = {**found["limits"], **(found.get("requests") or {})}  # as Kubernetes defaults it
    if key in ("containers", "initContainers") and found.get("imagePullPolicy") == _pull_policy(found.get("image")):
        del found["imagePullPolicy"]
    defaults = _DEFAULTS.get(key, {})
    return {name: inner for name, inner in found.items() if not _is_insignificant(name, inner, defaults)}


def _is_insignificant(name: str, value: Any, defaults: Mapping[str, Any]) -> bool:
    if value is None or value == []:
        return True
    if value == {}:
        return name in _EMPTY_IS_INSIGNIFICANT
    if value is False:
        return name not in _FALSE_IS_SIGNIFICANT
    if value == "":
        return name not in _EMPTY_TEXT_IS_SIGNIFICANT
    return name in defaults and value == defaults[name]


def _pull_policy(image: Any) -> str:
    """Kubernetes' default for a container without a pull policy (RC:AS-1 sets its own)."""
    name = str(image or "").rpartition("/")[2]
    is_latest = "@" not in name and name.partition(":")[2] in ("", "latest")
    return "Always" if is_latest else "IfNotPresent"


def _canonical(amount: Any) -> str:
    try:
        quantity = Quantity.parse(amount)
    except QuantityError:
        return str(amount)
    return f"{quantity.nanos}n"


def _without(mapping: Manifest, keys: frozenset[str]) -> Manifest:
    return {key: value for key, value in mapping.items() if key not in keys}
