"""Short builders of objects as `kubectl get -o yaml` prints them, for tests of `raytide plan`."""

from typing import Any

import yaml

Json = dict[str, Any]

NOW = "2026-02-01T12:00:00Z"


def node(name: str = "node-1", *, cpu: float = 0, gpu: int = 0, memory: str = "64Gi", **spec: Any) -> Json:
    """A node that is ready."""
    gpus = {"nvidia.com/gpu": str(gpu)} if gpu else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": str(cpu), "memory": memory, "pods": "110", **gpus},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def job(
    name: str,
    floor: int,
    ceiling: int,
    size: int | None = None,
    *,
    cpu: str | int = 1,
    gpu: int = 0,
    namespace: str = "default",
    **spec: Any,
) -> Json:
    """A TrainingJob; `size` is what was ordered, None: nothing yet."""
    gpus = {"nvidia.com/gpu": gpu} if gpu else {}
    trainer = {"min-instance": floor, "max-instance": ceiling}
    trainer["resources"] = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu, **gpus}}  # type: ignore[assignment]
    if size is not None:
        trainer["replicas"] = size
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"trainer": trainer, **spec},
    }


def pod(name: str, *, on: str = "", cpu: str | int = 1, namespace: str = "default", **metadata: Any) -> Json:
    """A pod of any owner."""
    where = {"nodeName": on} if on else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"containers": [{"name": "c", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}], **where},
        "status": {"phase": "Running" if on else "Pending"},
    }


def trainer_pod(job_name: str, index: int, *, on: str = "", cpu: str | int = 1) -> Json:
    """A trainer, as the operator labels it."""
    labels = {
        "raytide.io/training-job": job_name,
        "raytide.io/training-role": "trainer",
        "raytide.io/training-index": str(index),
    }
    owner = {"kind": "TrainingJob", "name": job_name, "uid": f"uid-{job_name}", "controller": True}
    return pod(f"{job_name}-trainer-{index}", on=on, cpu=cpu, labels=labels, ownerReferences=[owner])


def namespace(name: str, tenant: str = "") -> Json:
    """A Namespace, with the label of its tenant."""
    labels = {"raytide.io/tenant": tenant} if tenant else {}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def quota(namespace: str = "default", *, used: Json | None = None, **hard: Any) -> Json:
    """A ResourceQuota."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "quota", "namespace": namespace},
        "spec": {"hard": hard},
        "status": {"hard": hard, "used": used or {}},
    }


def priority_class(name: str, value: int, **more: Any) -> Json:
    """A PriorityClass."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        **more,
    }


def as_list(*objects: Json) -> str:
    """`kubectl get … -o yaml`."""
    return yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": list(objects)}, sort_keys=False)


def as_documents(*objects: Json) -> str:
    """Several documents in one file."""
    return yaml.safe_dump_all(objects, sort_keys=False)
