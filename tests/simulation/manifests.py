"""Manifests that the users of the simulation create.

Minimal RayClusters, worker groups and pods as plain dicts, a new one for each call, because scenarios edit them. Used by
histories and scenarios.
"""

from typing import Any

from simulation.simulated_kube import NAMESPACE

NAME = "cluster"
OTHER_NAME = "cluster-a"
"""A second cluster; the name of the first one and of its pods is a prefix of its name."""
EXTERNAL_POD = "other"
"""A pod of another owner."""


def template(name: str, image: str = "rayproject/ray:2.60.0") -> dict[str, Any]:
    """A minimal pod template."""
    return {"spec": {"containers": [{"name": name, "image": image}]}}


def group(name: str, replicas: int, most: int = 8) -> dict[str, Any]:
    """A minimal worker group."""
    return {
        "groupName": name,
        "replicas": replicas,
        "minReplicas": 0,
        "maxReplicas": most,
        "template": template("worker"),
    }


def new_cluster(groups: list[dict[str, Any]], name: str = NAME) -> dict[str, Any]:
    """A minimal RayCluster."""
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"rayVersion": "2.60.0", "headGroupSpec": {"template": template("head")}, "workerGroupSpecs": groups},
    }


def find(spec: dict[str, Any], name: str) -> dict[str, Any]:
    """The worker group of that name."""
    found: dict[str, Any] = next(g for g in spec["workerGroupSpecs"] if g["groupName"] == name)
    return found


def unowned_pod() -> dict[str, Any]:
    """A pod with the labels of a worker and without an owner."""
    labels = {"ray.io/cluster": NAME, "ray.io/node-type": "worker", "ray.io/group": "a", "ray.io/is-ray-node": "yes"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": EXTERNAL_POD, "namespace": NAMESPACE, "labels": labels},
        "spec": template(EXTERNAL_POD)["spec"],
    }
