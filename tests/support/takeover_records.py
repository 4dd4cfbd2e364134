"""The objects with which a takeover from KubeRay starts.

Reads what KubeRay had stored for the golden RayClusters (`tests/golden/takeover`), completes what the recording left out
(a namespace, nodes, container statuses, secret values), and derives further starts from the recorded ones: a service that
lost its owner or belongs to an earlier cluster, stamps of an older KubeRay. Everything is a function of values; who loads
the objects into an API is integration/takeover_loading.py.
"""

import copy
import json
import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]

RECORDS: Final = Path(__file__).parents[1] / "golden" / "takeover"
STARTED_AT: Final = "2026-11-22T12:50:39Z"
GONE_UID: Final = "00000000-0000-4000-8000-000000000000"
"""Of a RayCluster of the same name that was deleted without its children."""
STORAGE_NAMESPACE: Final = "ray.io/external-storage-namespace"
OLD_VERSION: Final = "v1.2.2"
OLD_HASH: Final = "0" * 32
GIVEN_BY_THE_API: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
ASSIGNED_TO_SERVICES: Final = ("clusterIP", "clusterIPs")
JOB_CONTROLLER_LABELS: Final = re.compile(r"(batch\.kubernetes\.io/)?(controller-uid|job-name)")


# --- starts that are derived from recorded ones ------------------------------------------------------------------------
def _services(objects: Sequence[Json]) -> list[Json]:
    return [obj for obj in objects if obj["kind"] == "Service"]


def _pods(objects: Sequence[Json]) -> list[Json]:
    return [obj for obj in objects if obj["kind"] == "Pod"]


def _without_owner(objects: Sequence[Json]) -> None:
    """As a restored backup has it."""
    for service in _services(objects):
        del service["metadata"]["ownerReferences"]


def _of_earlier_cluster(objects: Sequence[Json]) -> None:
    for service in _services(objects):
        service["metadata"]["ownerReferences"][0]["uid"] = GONE_UID


def _with_old_stamps(objects: Sequence[Json]) -> None:
    for pod in _pods(objects):
        annotations = pod["metadata"].get("annotations", {})
        if "ray.io/kuberay-version" in annotations:
            annotations |= {"ray.io/kuberay-version": OLD_VERSION, "ray.io/upgrade-strategy-recreate-hash": OLD_HASH}


def _without_storage_namespace(objects: Sequence[Json]) -> None:
    """KubeRay's default: the cluster's uid."""
    cluster = next(obj for obj in objects if obj["kind"] == "RayCluster")
    chosen = cluster["metadata"]["annotations"].pop(STORAGE_NAMESPACE)
    for pod in _pods(objects):
        pod["metadata"].get("annotations", {}).pop(STORAGE_NAMESPACE, None)
        for container in pod["spec"]["containers"]:
            for variable in container["env"]:
                if variable.get("value") == chosen:
                    variable["value"] = cluster["metadata"]["uid"]


def _without_stamps(objects: Sequence[Json]) -> None:
    """As a KubeRay made them that had neither these annotations nor indices of replicas."""
    for pod in _pods(objects):
        annotations, labels = pod["metadata"].get("annotations", {}), pod["metadata"]["labels"]
        for name in ("ray.io/kuberay-version", "ray.io/upgrade-strategy-recreate-hash"):
            annotations.pop(name, None)
        labels.pop("ray.io/worker-group-replica-index", None)


DERIVED: Final[dict[str, tuple[str, Callable[[Sequence[Json]], None]]]] = {
    "01-minimal~service-without-owner": ("01-minimal", _without_owner),
    "07-multi-host~services-without-owner": ("07-multi-host", _without_owner),
    "01-minimal~service-of-an-earlier-cluster": ("01-minimal", _of_earlier_cluster),
    "07-multi-host~services-of-an-earlier-cluster": ("07-multi-host", _of_earlier_cluster),
    "01-minimal~old-stamps": ("01-minimal", _with_old_stamps),
    "07-multi-host~old-stamps": ("07-multi-host", _with_old_stamps),
    "30-recreate~old-stamps": ("30-recreate", _with_old_stamps),
    "01-minimal~without-stamps": ("01-minimal", _without_stamps),
    "10-ft-annotation~without-storage-namespace": ("10-ft-annotation", _without_storage_namespace),
    "30-recreate~without-stamps": ("30-recreate", _without_stamps),
}
"""Name of the start -> the recording it is made of, and what is changed in it."""


# --- reading -----------------------------------------------------------------------------------------------------------
def starts() -> list[str]:
    """Names of all starts, recorded and derived."""
    return sorted([path.stem for path in RECORDS.glob("*.json")] + list(DERIVED))


def read_start(name: str, namespace: str) -> list[Json]:
    """Its objects as KubeRay had stored them, in that namespace; the RayCluster comes first."""
    recording, change = DERIVED.get(name, (name, None))
    text = (RECORDS / f"{recording}.json").read_text()
    objects: list[Json] = json.loads(re.sub(r"\bNS\b", namespace, text))
    if change is not None:
        change(objects)
    return sorted(objects, key=lambda obj: KINDS.index(obj["kind"]))


KINDS: Final = (
    *("RayCluster", "ServiceAccount", "Role", "RoleBinding", "Secret"),
    *("Service", "Ingress", "Job", "Pod"),
)
"""In the order in which they can be loaded: what is referred to comes before what refers to it."""


# --- completing --------------------------------------------------------------------------------------------------------
def with_uid(objects: Sequence[Json], recorded: str, uid: str) -> list[Json]:
    """The same objects where another one has got this uid: in owner references, labels and environments."""
    renamed: list[Json] = json.loads(json.dumps(objects).replace(recorded, uid))
    return renamed


def as_created(obj: Json, node: str) -> Json:
    """The object as it can be sent to an API server, without what the server assigns.

    A pod that KubeRay saw scheduled is on `node`.
    """
    created = copy.deepcopy(obj)
    created.pop("status", None)
    for field in GIVEN_BY_THE_API:
        created["metadata"].pop(field, None)
    complete = COMPLETED.get(obj["kind"])
    if complete is not None:
        complete(created)
    if obj["kind"] == "Pod" and _condition(obj, "PodScheduled") == "True":
        created["spec"]["nodeName"] = node
    return created


def _complete_service(service: Json) -> None:
    spec = service["spec"]
    if spec.get("clusterIP") != "None":
        for field in ASSIGNED_TO_SERVICES:
            spec.pop(field, None)
    for port in spec.get("ports", ()):
        port.pop("nodePort", None)


def _complete_secret(secret: Json) -> None:
    secret["data"] = {key: b64encode(key.encode()).decode() for key in secret.get("data", {})}


def _complete_job(job: Json) -> None:
    """The Job controller chooses the selector and the labels that go with it."""
    job["spec"].pop("selector", None)
    template = job["spec"]["template"]["metadata"]
    template["labels"] = {
        key: value for key, value in template["labels"].items() if not JOB_CONTROLLER_LABELS.fullmatch(key)
    }


COMPLETED: Final = {"Service": _complete_service, "Secret": _complete_secret, "Job": _complete_job}


def pod_status(pod: Json) -> Json:
    """Status fields of a kubelet in addition to the recorded ones: its containers."""
    status: Json = copy.deepcopy(pod["status"])
    if status.get("podIP"):
        status["podIPs"] = [{"ip": status["podIP"]}]
    if status.get("phase") == "Running":
        status["startTime"] = STARTED_AT
        status["containerStatuses"] = [_container(each, {"running": {"startedAt": STARTED_AT}}) for each in _of(pod)]
        ended = {"exitCode": 0, "reason": "Completed", "startedAt": STARTED_AT, "finishedAt": STARTED_AT}
        status["initContainerStatuses"] = [
            _container(each, {"terminated": ended}) for each in _of(pod, "initContainers")
        ]
    return status


def _of(pod: Json, field: str = "containers") -> list[Json]:
    found: list[Json] = pod["spec"].get(field, [])
    return found


def _container(container: Json, state: Json) -> Json:
    named = {"name": container["name"], "image": container["image"], "imageID": ""}
    return {**named, "ready": True, "started": "running" in state, "restartCount": 0, "lastState": {}, "state": state}


def cluster_status(cluster: Json, generation: int) -> Json:
    """The recorded status, as seen at the generation that the API gave the loaded object."""
    status: Json = copy.deepcopy(cluster.get("status", {}))
    recorded = cluster["metadata"]["generation"]
    if "observedGeneration" in status:
        status["observedGeneration"] = max(1, generation - (recorded - status["observedGeneration"]))
    return status


def _condition(obj: Json, kind: str) -> str:
    conditions = obj.get("status", {}).get("conditions", ())
    return next((str(each["status"]) for each in conditions if each["type"] == kind), "")
