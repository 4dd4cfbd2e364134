"""What do the users of the simulation write?

The smallest RayClusters, worker groups and pods that say what a story needs; plain dicts, made anew each time, because
stories edit them. Used by histories and scenarios.
"""

from typing import Any

from simulation.simulated_kube import NAMESPACE

NAME = "life"
OTHER_NAME = "life-a"
"""Another cluster whose name begins like the first one's, and like its pods."""


def template(name: str, image: str = "rayproject/ray:2.60.0") -> dict[str, Any]:
    """The smallest pod template that a user would write."""
    return {"spec": {"containers": [{"name": name, "image": image}]}}


def group(name: str, replicas: int, most: int = 8) -> dict[str, Any]:
    """A worker group as users write it."""
    return {
        "groupName": name,
        "replicas": replicas,
        "minReplicas": 0,
        "maxReplicas": most,
        "template": template("worker"),
    }


def new_cluster(groups: list[dict[str, Any]], name: str = NAME) -> dict[str, Any]:
    """A RayCluster as users write it."""
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
    """A pod that is not ours, although its labels say so."""
    labels = {"ray.io/cluster": NAME, "ray.io/node-type": "worker", "ray.io/group": "a", "ray.io/is-ray-node": "yes"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "stranger", "namespace": NAMESPACE, "labels": labels},
        "spec": template("stranger")["spec"],
    }
