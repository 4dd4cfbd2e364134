"""What does the real operator room make of the golden RayClusters?

Every file of `tests/golden/specs` is given to the sandbox's API as kubectl would, beside the room, its informers and its
executor, in virtual time; nodes make every pod Ready that asks for no accelerator. Gives, per file, what the recorder
wrote down of KubeRay: answers, children, status and events (tests/golden/README.md). Two ways in: server-side
apply and create.
"""

import asyncio
import functools
import json
import random
import re
from dataclasses import dataclass, field
from typing import Any

import looptime
import msgspec
import yaml

from golden_records import GOLDEN, NODE_TROUBLE_TOLERATIONS, as_recorded, spec_files
from raytide.api.config import PodConfig
from raytide.sandbox.apiserver.routes import Request

from simulation.operator_under_test import OperatorUnderTest, WorldClock
from simulation.wire import InProcess
from simulation.world import World

NAMESPACE = "golden-ns"
OPERATOR_VERSION = PodConfig().operator_version
"""KubeRay's was `nightly`."""
SETTLED_AFTER_S = 90.0
FIELDS_OF_THE_SERVER = {"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "generateName"}
ADDRESSES = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
RESOURCES = {
    "RayCluster": "/apis/ray.io/v1/namespaces/{}/rayclusters",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
}
CHILDREN = (
    *("pods", "services", "serviceaccounts", "secrets", "persistentvolumeclaims", "jobs.batch"),
    *("ingresses.networking.k8s.io", "networkpolicies.networking.k8s.io"),
    *("roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io"),
)

Json = dict[str, Any]


@dataclass
class Seen:
    """One file's fate, in the shape of a recording."""

    refused: str = ""
    """The API server's words, empty when the RayCluster was taken."""
    objects: dict[str, Json] = field(default_factory=dict)
    status: Json = field(default_factory=dict)
    raw_status: Json = field(default_factory=dict)
    finalizers: list[str] = field(default_factory=list)
    events: set[tuple[str, str]] = field(default_factory=set)
    notes: str = ""
    """What the events say, for what a user must be able to read there."""

    def condition(self, kind: str) -> Json:
        """One condition with its message; empty when it is not there."""
        return next((c for c in self.raw_status.get("conditions", ()) if c["type"] == kind), {})


class Fleet(World):
    """Nodes without labels and accelerators, as the recordings were made on."""

    def _on_pod(self, change: Any) -> None:
        if change.type != "ADDED" or fits(change.entry.obj()["spec"]):
            super()._on_pod(change)


def fits(spec: Json) -> bool:
    """Whether the pod asks for no special node, and for nothing but cores and memory."""
    limits = [container.get("resources", {}).get("limits", {}) for container in spec["containers"]]
    return not spec.get("nodeSelector") and not any("/" in name for limit in limits for name in limit)


@functools.cache
def seen_of_all(way: str) -> dict[str, Seen]:
    """All files at once; `way` is apply or create."""
    with asyncio.Runner(loop_factory=lambda: looptime.new_event_loop(noop_cycles=1)) as runner:
        return runner.run(_live(way))


async def _live(way: str) -> dict[str, Seen]:
    world = Fleet(random.Random(0), NAMESPACE)
    answer = world.api.handle(
        Request("POST", "/api/v1/namespaces", {}, {}, msgspec.json.encode({"metadata": {"name": NAMESPACE}}))
    )
    assert answer.status == 201, answer.body
    crashes: list[str] = []
    operator = OperatorUnderTest(InProcess(world.api), WorldClock(world.now), random.Random(0), crashes.append)
    controllers = asyncio.create_task(world.run_controllers())
    operator.start()
    await asyncio.sleep(1.0)
    refused = {file: _submit(world, file, way) for file in spec_files()}
    await asyncio.sleep(SETTLED_AFTER_S)
    everything = [obj for plural in CHILDREN for obj in _listed(world, plural)]
    events = _listed(world, "events.events.k8s.io")
    found = {file: _seen(world, file, words, everything, events) for file, words in refused.items()}
    await operator.stop()
    controllers.cancel()
    assert not crashes, crashes
    return found


def documents_of(file: str) -> list[Json]:
    """All objects of that file, as written."""
    return [document for document in yaml.safe_load_all((GOLDEN / "specs" / f"{file}.yaml").read_text()) if document]


def cluster_name(file: str) -> str:
    """The RayCluster's name."""
    return next(d["metadata"]["name"] for d in documents_of(file) if d["kind"] == "RayCluster")


def _submit(world: World, file: str, way: str) -> str:
    """Send every object as kubectl does; the refusal of the RayCluster in words, or nothing."""
    refusal = ""
    for document in documents_of(file):
        path, body = RESOURCES[document["kind"]].format(NAMESPACE), msgspec.json.encode(document)
        if way == "apply":
            query = {"fieldManager": "kubectl", "fieldValidation": "Strict"}
            name = document["metadata"]["name"]
            kind = {"content-type": "application/apply-patch+yaml"}
            answer = world.api.handle(Request("PATCH", f"{path}/{name}", query, kind, body))
        else:
            answer = world.api.handle(Request("POST", path, {"fieldValidation": "Strict"}, {}, body))
        if answer.status != 201:
            assert document["kind"] == "RayCluster", answer.body
            refusal = msgspec.json.decode(answer.body)["message"]
    return refusal


def _seen(world: World, file: str, refusal: str, everything: list[Json], all_events: list[Json]) -> Seen:
    cluster = world.cluster(cluster_name(file))
    if cluster is None:
        return Seen(refused=refusal)
    metadata, status = cluster["metadata"], cluster.get("status", {})
    events = [
        event
        for event in all_events
        if (event["regarding"]["kind"], event["regarding"]["name"]) == ("RayCluster", metadata["name"])
    ]
    return Seen(
        refused=refusal,
        objects=_children(everything, metadata["uid"], metadata["name"]),
        status=_status_as_recorded(status),
        raw_status=status,
        finalizers=metadata.get("finalizers", []),
        events={(event["type"], event["reason"]) for event in events},
        notes="\n".join(event.get("note", "") for event in events),
    )


def _children(everything: list[Json], owner_uid: str, owner: str) -> dict[str, Json]:
    children = [
        obj
        for obj in everything
        if owner_uid in {reference["uid"] for reference in obj["metadata"].get("ownerReferences", ())}
    ]
    numbers: dict[str, int] = {}
    found = {}
    for obj in sorted(children, key=_order):
        labels, key = obj["metadata"].get("labels", {}), f"{obj['kind']} {obj['metadata']['name']}"
        if obj["kind"] == "Pod":
            place = f"{labels['ray.io/node-type']}/{labels['ray.io/group']}"
            numbers[place] = numbers.get(place, -1) + 1
            key = f"Pod {place}/{numbers[place]}"
        found[key] = _as_recorded(obj, owner_uid, owner)
    return found


def _order(obj: Json) -> tuple[str, str, int, str]:
    labels = obj["metadata"].get("labels", {})
    index = int(labels.get("ray.io/worker-group-replica-index", 0))
    return obj["kind"], labels.get("ray.io/group", ""), index, obj["metadata"]["name"]


def _as_recorded(stored: Json, owner_uid: str, owner: str) -> Json:
    """Without what the API server alone decides, then as the recorder wrote it."""
    obj = {key: value for key, value in stored.items() if key != "status"}
    obj["metadata"] = {k: v for k, v in obj["metadata"].items() if k not in FIELDS_OF_THE_SERVER}
    spec = obj["spec"]
    if obj["kind"] == "Pod":
        spec.pop("nodeName", None)
        spec["volumes"] = _without_token(spec.get("volumes", []))
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            container["volumeMounts"] = _without_token(container.get("volumeMounts", []))
        spec["tolerations"] = [t for t in spec.get("tolerations", []) if t not in NODE_TROUBLE_TOLERATIONS]
    if obj["kind"] == "Service":
        for key in ADDRESSES:
            if spec.get(key) not in ("None", ["None"]):
                spec.pop(key, None)
        for port in spec.get("ports", ()):
            port.pop("nodePort", None)
    text = json.dumps(as_recorded(obj)).replace(NAMESPACE, "NS").replace(OPERATOR_VERSION, "nightly")
    return json.loads(text.replace(f'"uid": "{owner_uid}"', f'"uid": "{owner}"'))


def _without_token(entries: list[Json]) -> list[Json]:
    return [entry for entry in entries if not entry["name"].startswith("kube-api-access-")]


def _status_as_recorded(status: Json) -> Json:
    shown = {k: v for k, v in status.items() if k not in ("lastUpdateTime", "stateTransitionTimes")}
    if "head" in shown:
        shown["head"] = {k: v for k, v in shown["head"].items() if k not in ("podIP", "serviceIP", "podName")}
    if "conditions" in shown:
        dropped = ("lastTransitionTime", "message")
        shown["conditions"] = [{k: v for k, v in c.items() if k not in dropped} for c in shown["conditions"]]
    return json.loads(re.sub(NAMESPACE, "NS", json.dumps(shown)))


def _listed(world: World, kind: str) -> list[Json]:
    plural, _, group = kind.partition(".")
    prefix = f"/apis/{group}/v1" if group else "/api/v1"
    answer = world.api.handle(Request("GET", f"{prefix}/namespaces/{NAMESPACE}/{plural}", {}, {}, b""))
    if answer.status in (404, 501):  # a kind the sandbox does not have holds no children either
        return []
    assert answer.status == 200, answer.body
    listed = msgspec.json.decode(answer.body)
    shared = {"kind": listed["kind"].removesuffix("List"), "apiVersion": listed["apiVersion"]}
    return [{**shared, **item} for item in listed["items"]]
