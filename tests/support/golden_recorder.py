"""Normalized form of the objects in an API server, for recordings.

Takes objects as they were read, of one namespace, and gives the record of one golden file: children, status, finalizers
and events in the normal form of the recordings in `tests/golden/kuberay` (README.md there), so that a recording of ours
stands beside one of KubeRay's. Pure; nothing here knows where objects were read, or what may differ. Used by
`golden_run.py` (the embedded API) and `golden_live.py` (a real control plane).
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

Json = dict[str, Any]

NOT_RECORDED: Final = frozenset(
    {
        *("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink", "generateName"),
        "namespace",
    }
)
"""Metadata that only the API server decides."""
ADDRESSES: Final = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
TOKEN_VOLUME: Final = "kube-api-access-"
APPLIED_BY_KUBECTL: Final = "kubectl.kubernetes.io/last-applied-configuration"


def build_record(
    file: str,
    namespace: str,
    *,
    applied: Sequence[Sequence[Any]],
    children: Iterable[Json],
    clusters: Sequence[Json],
    events: Iterable[Json],
) -> Json:
    """The record of one file. `applied` has kind, name, exit code and error per object of the file."""
    return {
        "file": file,
        "applied": [list(answer) for answer in applied],
        "objects": recorded_children(
            children, clusters, namespace, written_by_user={(kind, name) for kind, name, *_ in applied}
        ),
        "status": {cluster["metadata"]["name"]: recorded_status(cluster.get("status", {})) for cluster in clusters},
        "finalizers": {cluster["metadata"]["name"]: cluster["metadata"].get("finalizers", []) for cluster in clusters},
        "events": recorded_events(events),
    }


def recorded_children(
    candidates: Iterable[Json],
    clusters: Iterable[Json],
    namespace: str,
    written_by_user: frozenset[tuple[str, str]] | set[tuple[str, str]] = frozenset(),
) -> dict[str, Json]:
    """What the clusters own, by kind and name; pods by role, group and number."""
    names_by_uid = {cluster["metadata"]["uid"]: cluster["metadata"]["name"] for cluster in clusters}
    numbers: dict[str, int] = {}
    found: dict[str, Json] = {}
    for child in sorted(candidates, key=_order):
        name = child["metadata"]["name"]
        owners = {reference.get("uid") for reference in child["metadata"].get("ownerReferences", ())}
        if (child["kind"], name) in written_by_user or not owners & names_by_uid.keys():
            continue
        key = f"{child['kind']} {name}"
        if child["kind"] == "Pod":
            labels = child["metadata"].get("labels", {})
            place = f"{labels.get('ray.io/node-type')}/{labels.get('ray.io/group')}"
            numbers[place] = numbers.get(place, -1) + 1
            key = f"Pod {place}/{numbers[place]}"
        found[key] = recorded_form(child, namespace, names_by_uid)
    return found


def _order(child: Json) -> tuple[str, str, int, int, str]:
    labels = child["metadata"].get("labels", {})
    return (
        child["kind"],
        labels.get("ray.io/group", ""),
        int(labels.get("ray.io/worker-group-replica-index", 0)),
        int(labels.get("ray.io/replica-host-index", 0)),
        child["metadata"]["name"],
    )


def recorded_form(stored: Json, namespace: str, names_by_uid: Mapping[str, str]) -> Json:
    """One object without what cannot repeat; with a cluster's name for its uid."""
    recorded = json.loads(json.dumps({key: value for key, value in stored.items() if key != "status"}))
    metadata = {key: value for key, value in recorded["metadata"].items() if key not in NOT_RECORDED}
    recorded["metadata"] = metadata
    for reference in metadata.get("ownerReferences", ()):
        reference["uid"] = names_by_uid.get(reference.get("uid"), "?")
    metadata.get("annotations", {}).pop(APPLIED_BY_KUBECTL, None)
    if recorded["kind"] == "Pod":
        _normalise_pod(recorded["spec"])
    elif recorded["kind"] == "Service":
        _normalise_service(recorded["spec"])
    elif recorded["kind"] == "Secret":
        recorded["data"] = sorted(recorded.get("data", {}))
    text = json.dumps(recorded, sort_keys=True).replace(namespace, "NS")
    for uid, name in names_by_uid.items():
        text = text.replace(uid, f"UID({name})")
    return _named_as_recorded(text, stored) if stored["kind"] == "Pod" else json.loads(text)


def _named_as_recorded(text: str, pod: Json) -> Json:
    name, labels = pod["metadata"]["name"], pod["metadata"].get("labels", {})
    text = text.replace(name, "PODNAME")
    if replica := labels.get("ray.io/worker-group-replica-name"):
        text = text.replace(replica, "REPLICA")
    recorded = json.loads(text)
    recorded["metadata"]["name"] = re.sub(r"-[a-z0-9]{5}$", "-*", name)
    return recorded


def _normalise_pod(spec: Json) -> None:
    spec.pop("nodeName", None)
    spec["volumes"] = _without_token(spec.get("volumes", ()))
    for container in [*spec.get("initContainers", ()), *spec.get("containers", ())]:
        container["volumeMounts"] = _without_token(container.get("volumeMounts", ()))
        container["env"] = sorted(container.get("env", ()), key=lambda variable: variable["name"])
        _reword(container)


def _without_token(entries: Iterable[Json]) -> list[Json]:
    return [entry for entry in entries if not entry["name"].startswith(TOKEN_VOLUME)]


def _normalise_service(spec: Json) -> None:
    for key in ADDRESSES:
        if spec.get(key) not in ("None", ["None"]):
            spec.pop(key, None)
    for port in spec.get("ports", ()):
        port.pop("nodePort", None)


def _reword(container: Json) -> None:
    for kind in ("livenessProbe", "readinessProbe", "startupProbe"):
        question = container.get(kind, {}).get("exec")
        if question:
            question["command"] = [_what_it_asks(" ".join(question["command"]))]
    for key in ("command", "args"):
        if container.get(key):
            container[key] = [_what_it_asks(text) if "\n" in text else text for text in container[key]]


def _what_it_asks(text: str) -> str:
    asked = sorted(set(re.findall(r"https?://[^/\s:]+:(\d+)(/[^\s|\"']*)", text)))
    if asked:
        return "ASKS " + ", ".join(port + path for port, path in asked)
    commands = sorted(set(re.findall(r"ray (?:health-check|start|stop)[a-z -]*", text)))
    return "SCRIPT " + ", ".join(commands) if "\n" in text else text


def recorded_status(status: Json) -> Json:
    """Without times, addresses, drawn names and the wording of conditions."""
    shown = {key: value for key, value in status.items() if key not in ("lastUpdateTime", "stateTransitionTimes")}
    if "head" in shown:
        drawn = ("podIP", "serviceIP", "podName")
        shown["head"] = {key: value for key, value in shown["head"].items() if key not in drawn}
    if "conditions" in shown:
        dropped = ("lastTransitionTime", "message")
        shown["conditions"] = [
            {key: value for key, value in condition.items() if key not in dropped} for condition in shown["conditions"]
        ]
    return shown


def recorded_events(events: Iterable[Json]) -> list[list[str]]:
    """Type, reason and kind of the events of RayClusters, each once; `events` are of core `v1`."""
    kinds = {(event["type"], event["reason"], event["involvedObject"]["kind"]) for event in events}
    return [list(event) for event in sorted(kinds) if event[2] == "RayCluster"]
