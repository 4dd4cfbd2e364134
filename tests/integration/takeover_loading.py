"""Loads objects of KubeRay into an API server and reads what is stored afterwards.

`load` puts one start (takeover_records.py) into a namespace of its own: new uids, owners mapped to them, statuses as
recorded, and what was being deleted is being deleted again. `Loaded.children` is what is compared before and after
operators were switched.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from integration.cluster_under_test import MERGE, RAYCLUSTERS, ClusterUnderTest, path_of
from support.takeover_records import as_created, cluster_status, pod_status, read_start, with_uid

Json = dict[str, Any]

PLURALS: Final = {
    "RayCluster": RAYCLUSTERS,
    "ServiceAccount": "serviceaccounts",
    "Role": "roles.rbac.authorization.k8s.io",
    "RoleBinding": "rolebindings.rbac.authorization.k8s.io",
    "Secret": "secrets",
    "Service": "services",
    "Ingress": "ingresses.networking.k8s.io",
    "Job": "jobs.batch",
    "Pod": "pods",
}
MADE_BY_THE_CONTROL_PLANE: Final = frozenset({("ServiceAccount", "default")})


@dataclass(frozen=True)
class Loaded:
    """One RayCluster and its children, as they were when the operator started."""

    api: ClusterUnderTest
    start: str
    namespace: str
    name: str
    recorded: Json
    """The RayCluster as KubeRay had stored it."""

    def cluster(self) -> Json:
        """The RayCluster as it is now."""
        return self.api.get(RAYCLUSTERS, self.namespace, self.name)

    def status(self) -> Json:
        """Its status as it is now."""
        status: Json = self.cluster().get("status", {})
        return status

    def is_gone(self) -> bool:
        """Whether the API knows it no more."""
        return self.api.request("GET", path_of(RAYCLUSTERS, self.namespace, self.name))[0] == 404

    def children(self) -> dict[tuple[str, str], Json]:
        """Everything of the kinds that KubeRay makes, by kind and name."""
        found = {}
        for kind, plural in PLURALS.items():
            for obj in self.api.all(plural, self.namespace) if kind != "RayCluster" else ():
                key = (kind, obj["metadata"]["name"])
                if key not in MADE_BY_THE_CONTROL_PLANE:
                    found[key] = obj
        return found

    def pods(self, group: str | None = None) -> dict[str, str]:
        """uid by name of the pods that are not being deleted."""
        pods = self.api.pods(self.namespace, group)
        return {p["metadata"]["name"]: p["metadata"]["uid"] for p in pods if "deletionTimestamp" not in p["metadata"]}


def load(api: ClusterUnderTest, start: str, run: str, node: str) -> Loaded:
    """Create everything of that start; its pods run on `node`."""
    namespace = f"{re.sub(r'[^a-z0-9]+', '-', start.lower())[:50]}-{run}"
    api.ensure_namespace(namespace)
    objects = read_start(start, namespace)
    cluster = objects[0]
    for position in range(len(objects)):
        obj = objects[position]
        objects = with_uid(objects, obj["metadata"]["uid"], _create(api, obj, node))
    for obj in objects:
        if "deletionTimestamp" in obj["metadata"]:
            api.delete(namespace, obj["metadata"]["name"], PLURALS[obj["kind"]])
    return Loaded(api, start, namespace, cluster["metadata"]["name"], cluster)


def _create(api: ClusterUnderTest, obj: Json, node: str) -> str:
    """Its uid."""
    plural, metadata = PLURALS[obj["kind"]], obj["metadata"]
    stored = api.create(plural, as_created(obj, node))["metadata"]
    if obj["kind"] == "Pod":
        api.set_pod_status(metadata["namespace"], metadata["name"], **pod_status(obj))
    elif obj["kind"] == "RayCluster" and obj.get("status"):
        body = {"status": cluster_status(obj, stored["generation"])}
        path = path_of(plural, metadata["namespace"], metadata["name"], "status")
        api.done("PATCH", path, body, content_type=MERGE)
    uid: str = stored["uid"]
    return uid


def stamps(children: Mapping[tuple[str, str], Json]) -> dict[tuple[str, str], str]:
    """What no operator may change when it takes over: which objects there are, and which version of each.

    A pod that has no node is looked at by the scheduler, which says so in its status.
    """
    return {
        (kind, name): f"{obj['metadata']['uid']} {'' if is_waiting(kind, obj) else obj['metadata']['resourceVersion']}"
        for (kind, name), obj in children.items()
    }


def is_waiting(kind: str, obj: Json) -> bool:
    """Whether it is a pod that no node was found for."""
    return kind == "Pod" and not obj["spec"].get("nodeName")
