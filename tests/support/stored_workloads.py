"""An API server in memory with RayClusters, TrainingJobs and what belongs to them, for the commands that read a cluster."""

import itertools
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from raytide.api import constants
from raytide_sandbox.apiserver.routes import Api, Request
from raytide_sandbox.apiserver.store import Store
from support.builders import raycluster
from support.manifest_files import body_of
from support.training_builders import trainingjob

CRDS = Path(__file__).parents[2] / "crds"
PATHS = {
    "RayCluster": "/apis/ray.io/v1/namespaces/default/rayclusters",
    "TrainingJob": "/apis/paddlepaddle.org/v1/namespaces/default/trainingjobs",
    "Pod": "/api/v1/namespaces/default/pods",
    "Node": "/api/v1/nodes",
    "Event": "/api/v1/namespaces/default/events",
}
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes are available: 1 Insufficient cpu.",
}


def api_with(*objects: dict) -> Api:
    """An API server with both CRDs and these objects."""
    uids = itertools.count(1)
    store = Store(now=lambda: datetime(2026, 1, 1, tzinfo=UTC), new_uid=lambda: f"uid-{next(uids)}")
    store.create("namespaces", {"metadata": {"name": "default"}})
    api = Api(store, new_suffix=lambda: f"{next(uids):05d}")
    for file in sorted(CRDS.glob("*.yaml")):
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        assert api.handle(Request("POST", path, {}, {}, body_of(file))).status == 201
    for obj in objects:
        put(api, obj)
    return api


def put(api: Api, obj: dict) -> None:
    """Create the object, and then its status."""
    status = obj.pop("status", None)
    answered = api.handle(Request("POST", PATHS[obj["kind"]], {}, {}, msgspec.json.encode(obj)))
    assert answered.status == 201, answered.body
    if status is not None:
        path = f"{PATHS[obj['kind']]}/{obj['metadata']['name']}/status"
        body, merge = msgspec.json.encode({"status": status}), {"content-type": "application/merge-patch+json"}
        assert api.handle(Request("PATCH", path, {}, merge, body)).status == 200


def owner_reference(api: Api, name: str) -> dict:
    """What a pod that the RayCluster owns refers to."""
    found = msgspec.json.decode(api.handle(Request("GET", f"{PATHS['RayCluster']}/{name}", {}, {}, b"")).body)
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": name, "uid": found["metadata"]["uid"]}
    return {**owner, "controller": True, "blockOwnerDeletion": True}


def cluster_object(name: str = "demo") -> dict:
    made = raycluster(name=name)
    made["metadata"] = {"name": name, "namespace": "default"}
    return made


def job_object(name: str = "demo") -> dict:
    made = trainingjob(name=name)
    made["metadata"] = {"name": name, "namespace": "default"}
    made["spec"]["trainer"]["entrypoint"] = "true"
    return made


def pod_object(name: str, *, node: str = "", labels: dict | None = None, **status: object) -> dict:
    found = {constants.CLUSTER_LABEL: "demo", constants.GROUP_LABEL: "cpu", constants.NODE_TYPE_LABEL: "worker"}
    spec = {"containers": [{"name": "ray", "image": "ray"}], **({"nodeName": node} if node else {})}
    metadata = {"name": name, "namespace": "default", "labels": found if labels is None else labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def short_of_cpu(api: Api) -> None:
    """A worker of RayCluster demo that needs 4 CPUs; two of RayCluster rl have 6 of the 8 of node n0."""
    put(api, cluster_object("rl"))
    group = {constants.GROUP_LABEL: "cpu", constants.NODE_TYPE_LABEL: "worker"}
    for name, cluster, node, cpu in (("x", "demo", "", "4"), ("y", "rl", "n0", "3"), ("z", "rl", "n0", "3")):
        state = {"phase": "Running"} if node else {"phase": "Pending", "conditions": [UNSCHEDULABLE]}
        labels = {constants.CLUSTER_LABEL: cluster, **group}
        pod = pod_object(f"{cluster}-cpu-worker-{name}", node=node, labels=labels, **state)
        pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
        pod["metadata"]["ownerReferences"] = [owner_reference(api, cluster)]
        put(api, pod)


def warning(
    name: str, kind: str, about: str, message: str, *, reason: str = "FailedToCreateWorkerPod", minute: int = 0
) -> dict:
    involved = {"kind": kind, "name": about, "namespace": "default"}
    rest = {
        "reason": reason,
        "message": message,
        "type": "Warning",
        "lastTimestamp": f"2026-01-01T00:{minute:02d}:00Z",
    }
    return {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"}, "involvedObject": involved, **rest,
        "firstTimestamp": "2026-01-01T00:00:00Z", "count": 3, "source": {"component": "raycluster-controller"},
    }  # fmt: skip
