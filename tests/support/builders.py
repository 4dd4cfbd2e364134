"""Small objects for tests: RayClusters as a user writes them, pods and services as an API server shows them.

Every function takes only what its test is about and fills in the rest; nothing here knows what the operator does.
"""

from typing import Any

from raytide.api import constants
from raytide.api.pod import NO_CONDITION, ContainerView, PodCondition, PodView
from raytide.api.raycluster import RayCluster, ScaleStrategy, WorkerGroupSpec
from raytide.api.service import ServicePort, ServiceView

CLUSTER_UID = "uid-demo"
IMAGE = "rayproject/ray:2.52.0"
READY = PodCondition("True")
NOT_READY = PodCondition("False", "ContainersNotReady", "containers with unready status: [ray]")
HEAD_LABELS = (
    (constants.APP_NAME_LABEL, constants.APP_NAME),
    (constants.CREATED_BY_LABEL, constants.CREATED_BY),
    (constants.CLUSTER_LABEL, "demo"),
    (constants.IDENTIFIER_LABEL, "demo-head"),
    (constants.NODE_TYPE_LABEL, constants.HEAD),
)
"""By which the head service selects the head of the cluster demo."""


def template(container: str = "ray", *, cpu: str = "1", memory: str = "2Gi", **extra: Any) -> dict[str, Any]:
    """A pod template with one container."""
    resources = {"limits": {"cpu": cpu, "memory": memory}, "requests": {"cpu": cpu, "memory": memory}}
    return {"spec": {"containers": [{"name": container, "image": IMAGE, "resources": resources}], **extra}}


def group(name: str = "cpu", replicas: int = 2, low: int = 0, high: int = 10, **extra: Any) -> dict[str, Any]:
    """One worker group."""
    return {
        "groupName": name,
        "replicas": replicas,
        "minReplicas": low,
        "maxReplicas": high,
        "rayStartParams": {},
        "template": template("ray-worker"),
        **extra,
    }


def raycluster(
    *groups: dict[str, Any], name: str = "demo", namespace: str = "default", uid: str = CLUSTER_UID, **spec: Any
) -> dict[str, Any]:
    """A RayCluster; without groups it has one of two workers."""
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": namespace, "uid": uid, "generation": 1},
        "spec": {
            "rayVersion": "2.52.0",
            "headGroupSpec": {"rayStartParams": {"dashboard-host": "0.0.0.0"}, "template": template("ray-head")},
            "workerGroupSpecs": list(groups) or [group()],
            **spec,
        },
    }


def parsed(*groups: dict[str, Any], status: dict[str, Any] | None = None, **extra: Any) -> RayCluster:
    """The same, as decisions see it."""
    return RayCluster.parse({**raycluster(*groups, **extra), "status": status or {}})


def worker_group(
    name: str = "cpu", replicas: int | None = 2, low: int = 0, high: int | None = 10, *, to_delete: tuple[str, ...] = ()
) -> WorkerGroupSpec:
    """A worker group as decisions see it."""
    return WorkerGroupSpec(
        group_name=name,
        replicas=replicas,
        min_replicas=low,
        max_replicas=high,
        scale_strategy=ScaleStrategy(workers_to_delete=to_delete),
    )


def pod(name: str = "demo-cpu-worker-aaaaa", **fields: Any) -> PodView:
    """A worker that runs and is ready by default."""
    defaults: dict[str, Any] = {
        "namespace": "default",
        "uid": f"uid-{name}",
        "owner_uid": CLUSTER_UID,
        "cluster": "demo",
        "group": "cpu",
        "node_type": constants.WORKER,
        "phase": "Running",
        "ready": READY,
        "creation_timestamp": "2026-01-01T00:00:00Z",
        "node_name": "node-0",
        "ray_container": "ray-worker",
        "restart_policy": "Always",
    }
    return PodView(name=name, **{**defaults, **fields})


def head(name: str = "demo-head-aaaaa", **fields: Any) -> PodView:
    """A head pod that runs and is ready."""
    defaults = {
        "group": constants.HEAD_GROUP,
        "node_type": constants.HEAD,
        "ray_container": "ray-head",
        "pod_ip": "10.0.0.1",
        "head_labels": HEAD_LABELS,
    }
    return pod(name, **{**defaults, **fields})


def pending(name: str, **fields: Any) -> PodView:
    """A pod that waits for a node or for its image."""
    return pod(name, **{"phase": "Pending", "ready": NO_CONDITION, "node_name": "", **fields})


def dying(name: str, **fields: Any) -> PodView:
    """A running pod that is terminating."""
    return pod(name, **{"deletion_timestamp": "2026-01-01T01:00:00Z", **fields})


def waiting(container: str, reason: str, message: str = "") -> ContainerView:
    """A container that does not start, or not any more."""
    return ContainerView(container, "waiting", reason, message)


def head_service(**fields: Any) -> ServiceView:
    """The head service as the API server completes it."""
    defaults: dict[str, Any] = {
        "namespace": "default",
        "name": "demo-head-svc",
        "uid": "uid-svc",
        "owner_uid": CLUSTER_UID,
        "cluster": "demo",
        "node_type": constants.HEAD,
        "identifier": "demo-head",
        "cluster_ip": "None",
        "ports": (ServicePort("client", "10001"), ServicePort("dashboard", "8265")),
        "selector": HEAD_LABELS,
    }
    return ServiceView(**{**defaults, **fields})
