"""Recordings of KubeRay's objects for golden RayClusters, and Raytide's objects in the same form.

Reads specs and recordings of `tests/golden`, and brings a manifest we would send into the shape of a recording: first
what an API server adds by itself (one table), then what the recorder takes out (golden_recorder.py). Nothing here knows
how manifests are built.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from support.golden_recorder import recorded_form

GOLDEN: Final = Path(__file__).parents[1] / "golden"
NAMESPACE: Final = "NS"
HASH_ANNOTATION: Final = "ray.io/upgrade-strategy-recreate-hash"

Json = dict[str, Any]


def spec_files() -> list[str]:
    """Names of all golden files, without suffix."""
    return sorted(path.stem for path in (GOLDEN / "specs").glob("*.yaml"))


def read_spec(file: str) -> Json:
    """The RayCluster of that file, as the API would give it: with a namespace, and with its name for a uid."""
    documents = yaml.load_all((GOLDEN / "specs" / f"{file}.yaml").read_text(), Loader=yaml.CSafeLoader)
    cluster = next(document for document in documents if document and document["kind"] == "RayCluster")
    cluster["metadata"] |= {"namespace": NAMESPACE, "uid": cluster["metadata"]["name"]}
    return cluster


def read_record(file: str) -> Json:
    """What KubeRay made of it."""
    return json.loads((GOLDEN / "kuberay" / f"{file}.json").read_text())


# --- what only the API server's defaulting adds ------------------------------------------------------------------------
def _pull_policy(container: Json) -> str:
    tag = container["image"].rpartition(":")[2] if ":" in container["image"] else "latest"
    return "Always" if tag == "latest" else "IfNotPresent"


def _only_for(key: str, *values: str, gives: Any) -> Callable[[Json], Any]:
    return lambda parent: gives if parent.get(key) in values else None


CONTAINERS: Final = ("spec", "containers|initContainers", "*")
PROBES: Final = (*CONTAINERS, "livenessProbe|readinessProbe")

SERVER_DEFAULTS: Final[tuple[tuple[str, tuple[str, ...], Json], ...]] = (
    (
        "Pod",
        ("spec",),
        {
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
            "priority": 0,
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "serviceAccountName": "default",
            "serviceAccount": lambda spec: spec["serviceAccountName"],
            "terminationGracePeriodSeconds": 30,
            "volumes": [],
        },
    ),
    (
        "Pod",
        CONTAINERS,
        {
            "env": [],
            "imagePullPolicy": _pull_policy,
            "resources": {},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "volumeMounts": [],
        },
    ),
    ("Pod", (*CONTAINERS, "ports", "*"), {"protocol": "TCP"}),
    ("Pod", (*CONTAINERS, "env", "*", "valueFrom", "fieldRef"), {"apiVersion": "v1"}),
    ("Pod", PROBES, {"failureThreshold": 3, "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1}),
    ("Pod", (*PROBES, "httpGet"), {"scheme": "HTTP"}),
    (
        "Service",
        ("spec",),
        {
            "internalTrafficPolicy": "Cluster",
            "sessionAffinity": "None",
            "type": "ClusterIP",
            "clusterIPs": _only_for("clusterIP", "None", gives=["None"]),
            "externalTrafficPolicy": _only_for("type", "LoadBalancer", "NodePort", gives="Cluster"),
            "allocateLoadBalancerNodePorts": _only_for("type", "LoadBalancer", gives=True),
            "sessionAffinityConfig": _only_for(
                "sessionAffinity", "ClientIP", gives={"clientIP": {"timeoutSeconds": 10800}}
            ),
        },
    ),
    ("Service", ("spec", "ports", "*"), {"protocol": "TCP", "targetPort": lambda port: port["port"]}),
)
"""Kind, place, and the default that is filled in there; a function of the object at that place gives None for no."""

NODE_TROUBLE_TOLERATIONS: Final = [
    {"key": f"node.kubernetes.io/{condition}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for condition in ("not-ready", "unreachable")
]


EMPTY_MEANS_ABSENT: Final = ("priorityClassName",)
"""Texts of a pod spec that are not stored when they are empty."""


def with_server_defaults(manifest: Json) -> Json:
    """The object as a Kubernetes API server would store it."""
    stored = json.loads(json.dumps(manifest))
    for key in EMPTY_MEANS_ABSENT:
        if stored.get("spec", {}).get(key) == "":
            del stored["spec"][key]
    for kind, path, defaults in SERVER_DEFAULTS:
        for place in _places(stored, path) if stored["kind"] == kind else ():
            for key, default in defaults.items():
                value = default(place) if callable(default) else default
                if key not in place and value is not None:
                    place[key] = value
    if stored["kind"] == "Pod":
        stored["spec"]["tolerations"] = stored["spec"].get("tolerations", []) + NODE_TROUBLE_TOLERATIONS
        for container in _places(stored, CONTAINERS):
            _request_what_is_limited(container["resources"])
    return stored


def _request_what_is_limited(resources: Json) -> None:
    if "limits" in resources:
        resources["requests"] = {**resources["limits"], **resources.get("requests", {})}


def _places(at: Any, path: tuple[str, ...]) -> Iterator[Json]:
    if not path:
        yield at
    elif path[0] == "*":
        for item in at:
            yield from _places(item, path[1:])
    else:
        for key in path[0].split("|"):
            if key in at:
                yield from _places(at[key], path[1:])


# --- as a recording ----------------------------------------------------------------------------------------------------
def as_recorded(manifest: Json) -> Json:
    """The object as it would be recorded once the API server took it; its owners' uids are their names (`read_spec`)."""
    stored = with_server_defaults(manifest)
    names_by_uid = {f"uid of {owner['name']}": owner["uid"] for owner in stored["metadata"].get("ownerReferences", ())}
    for owner in stored["metadata"].get("ownerReferences", ()):
        owner["uid"] = f"uid of {owner['name']}"
    return recorded_form(stored, stored["metadata"]["namespace"], names_by_uid)


def without_hash(recorded: Json) -> Json:
    """The recreate hash means something only to the operator that wrote it (RC:UP-4); that there is one stays."""
    annotations = recorded["metadata"].get("annotations", {})
    if HASH_ANNOTATION in annotations:
        annotations[HASH_ANNOTATION] = (
            "HASH" if re.fullmatch(r"(v2:)?[0-9A-V]{32}", annotations[HASH_ANNOTATION]) else "?"
        )
    return recorded


def without_version(recorded: Any) -> Any:
    """Versions name the operator that wrote them; only their presence is compared."""
    text = re.sub(r'("ray.io/kuberay-version": )"[^"]+"', r'\1"VERSION"', json.dumps(recorded))
    return json.loads(re.sub(r"(kuberay_version=)[^;\"]+", r"\1VERSION", text))


# --- comparing ---------------------------------------------------------------------------------------------------------
def differences(recorded: Any, ours: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    """Where two recordings differ; lists of named things are compared by name, as the recorder's comparison does."""
    if isinstance(recorded, dict) and isinstance(ours, dict):
        found: dict[str, tuple[Any, Any]] = {}
        for key in sorted(recorded.keys() | ours.keys()):
            found |= differences(recorded.get(key), ours.get(key), f"{path}.{key}" if path else key)
        return found
    if _are_named(recorded) and _are_named(ours):
        return differences({item["name"]: item for item in recorded}, {item["name"]: item for item in ours}, path)
    return {} if recorded == ours else {path: (recorded, ours)}


def _are_named(value: Any) -> bool:
    if not isinstance(value, list) or not all(isinstance(item, dict) and "name" in item for item in value):
        return False
    return len({item["name"] for item in value}) == len(value)
