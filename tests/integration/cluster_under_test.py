"""Operations of integration tests on a cluster, independent of its API server.

`ClusterUnderTest` speaks for people, kubelets and onlookers in requests to the API; an implementation says how a request gets there
(`request`), how a pod gets a node, and how an object comes in that the CRD of today would reject. `rig.Cluster` is the
embedded API, `kube_cluster.KubeCluster` a real control plane.
"""

import secrets
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

CRD = Path(__file__).parents[2] / "crds" / "ray.io_rayclusters.yaml"
JOB_CRD = CRD.with_name("paddlepaddle.org_trainingjobs.yaml")
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEFINITION = f"{DEFINITIONS}/rayclusters.ray.io"
RAYCLUSTERS = "rayclusters.ray.io"
TRAININGJOBS = "trainingjobs.paddlepaddle.org"
READY = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")]
MERGE = "application/merge-patch+json"
ATTEMPTS = 10
"""Of an edit that meets another."""

Json = dict[str, Any]


def path_of(kind: str, namespace: str, name: str = "", subresource: str = "") -> str:
    """`pods` or `rayclusters.ray.io` in a namespace, or one of them; "" for kinds that are in none."""
    plural, _, group = kind.partition(".")
    parts = [f"/apis/{group}/v1" if group else "/api/v1"]
    parts += [f"namespaces/{namespace}"] if namespace else []
    return "/".join(part for part in (*parts, plural, name, subresource) if part)


class ClusterUnderTest(ABC):
    """One cluster, as tests meet it."""

    def __init__(self) -> None:
        self.port = 0
        """Where the operator finds it; may be chosen before it listens."""
        self.holds: set[str] = set()
        """Names of pods that stay terminating."""
        self.writes: Counter[str] = Counter()
        """Writes of the operator, by method and kind."""
        self.reads: Counter[str] = Counter()
        """GETs of the operator, by path."""

    # --- what an implementation says -------------------------------------------------------------------------------------
    @abstractmethod
    def request(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", **query: str
    ) -> tuple[int, Json]:
        """Status and answer, as the administrator."""

    @abstractmethod
    def past_admission(self, write: Callable[[], Any]) -> None:
        """Do something that the CRD of today would reject and an older one let in."""

    @abstractmethod
    def without_quota(self, namespace: str) -> str:
        """A priority class whose pods the namespace has no quota for."""

    @abstractmethod
    def give_quota(self, namespace: str) -> None:
        """Now it has."""

    @abstractmethod
    def ensure_namespace(self, namespace: str) -> None:
        """As `kubectl create namespace`, unless it is there."""

    @abstractmethod
    def write_kubeconfig(self, path: Path) -> Path:
        """A kubeconfig for the operator."""

    @abstractmethod
    async def start(self, *, port: int = 0, has_crd: bool = True) -> None:
        """Serve the operator, on that port if one is named."""

    @abstractmethod
    def install_crd(self, crd: Path = CRD) -> None:
        """As `kubectl apply --server-side -f`; returns when the kind is served."""

    @abstractmethod
    def remove_crd(self, crd: Path = CRD) -> None:
        """As `kubectl delete -f`, objects and all; returns when the kind is not served any more."""

    @abstractmethod
    def add_node(self, name: str, **allocatable: str) -> str:
        """A node that stays Ready, with that capacity; returns its name."""

    @abstractmethod
    async def stop(self) -> None:
        """Hang up."""

    # --- people ----------------------------------------------------------------------------------------------------------
    def done(self, method: str, path: str, body: Any = None, **rest: str) -> Json:
        """A request that has to succeed."""
        status, answer = self.request(method, path, body, **rest)
        assert 200 <= status < 300, answer
        return answer

    def apply(self, obj: Json) -> Json:
        """Create a RayCluster; returns it as stored."""
        metadata = {k: v for k, v in obj["metadata"].items() if k not in ("uid", "generation")}
        self.ensure_namespace(metadata["namespace"])
        return self.create(RAYCLUSTERS, {**obj, "metadata": metadata})

    def create(self, kind: str, obj: Json) -> Json:
        """Create anything; returns it as stored."""
        return self.done("POST", path_of(kind, obj["metadata"].get("namespace", "")), obj)

    def store_past_admission(self, obj: Json) -> None:
        """As an object that an older CRD let in."""
        self.ensure_namespace(obj["metadata"]["namespace"])
        self.past_admission(lambda: self.apply(obj))

    def edit(self, namespace: str, name: str, change: Callable[[Json], Any], kind: str = RAYCLUSTERS) -> None:
        """Change one object, as `kubectl edit`."""
        path = path_of(kind, namespace, name)
        for _ in range(ATTEMPTS):
            obj = self.done("GET", path)
            change(obj)
            status, answer = self.request("PUT", path, obj)
            if status != 409:
                break
        assert status == 200, answer

    def touch(self, namespace: str, name: str, kind: str = RAYCLUSTERS) -> None:
        """Change an annotation that means nothing; an object that is rejected by now is let through."""
        path, stamp = path_of(kind, namespace, name), secrets.token_hex(4)
        body = {"metadata": {"annotations": {"example.com/touched": stamp}}}
        if self.request("PATCH", path, body, MERGE)[0] == 422:
            self.past_admission(lambda: self.done("PATCH", path, body, content_type=MERGE))

    def scale(self, namespace: str, name: str, replicas: int, *, group: int = 0, victims: tuple[str, ...] = ()) -> None:
        """Change `replicas`, and name victims."""

        def change(obj: Json) -> None:
            spec = obj["spec"]["workerGroupSpecs"][group]
            spec["replicas"] = replicas
            spec["scaleStrategy"] = {"workersToDelete": list(victims)}

        self.edit(namespace, name, change)

    def delete(self, namespace: str, name: str, kind: str = RAYCLUSTERS) -> None:
        """As `kubectl delete --wait=false`."""
        self.done("DELETE", path_of(kind, namespace, name))

    # --- kubelets --------------------------------------------------------------------------------------------------------
    def set_pod_status(self, namespace: str, name: str, **status: Any) -> None:
        """Whatever a kubelet might report."""
        self.done("PATCH", path_of("pods", namespace, name, "status"), {"status": status}, content_type=MERGE)

    def add_priority_class(self, namespace: str) -> str:
        """A class for the pods of one test."""
        name = f"class-{namespace}"
        self.create("priorityclasses.scheduling.k8s.io", {"metadata": {"name": name}, "value": 1})
        return name

    def set_node_ready(self, name: str, status: str) -> None:
        """The Ready condition as the kubelet writes it, or the node controller for an unresponsive kubelet."""
        conditions = [{"type": "Ready", "status": status}]
        body = {"status": {"conditions": conditions}}
        self.done("PATCH", path_of("nodes", "", name, "status"), body, content_type=MERGE)

    def bind(self, namespace: str, name: str, node: str) -> None:
        """What a scheduler does."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        status, answer = self.request("POST", path_of("pods", namespace, name, "binding"), binding)
        assert status in (201, 409), answer  # a real scheduler may have been faster

    def make_ready(self, namespace: str, node: str = "n0") -> None:
        """Every pod of the namespace that is pending becomes Ready."""
        for pod in self.pods(namespace):
            metadata, phase = pod["metadata"], pod.get("status", {}).get("phase", "Pending")
            if phase == "Pending" and "deletionTimestamp" not in metadata:
                if not pod["spec"].get("nodeName"):
                    self.bind(namespace, metadata["name"], node)
                address = {"podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}]}
                self.set_pod_status(namespace, metadata["name"], phase="Running", conditions=READY, **address)

    def end(self, namespace: str, name: str) -> None:
        """A dying pod is gone."""
        self.holds.discard(name)
        status, answer = self.request("DELETE", path_of("pods", namespace, name), {"gracePeriodSeconds": 0})
        assert status in (200, 404, 409), answer

    # --- looking ---------------------------------------------------------------------------------------------------------
    def get(self, kind: str, namespace: str, name: str) -> Json:
        """One object."""
        return self.done("GET", path_of(kind, namespace, name))

    def all(self, kind: str, namespace: str) -> list[Json]:
        """Every object of a kind in a namespace."""
        return self.done("GET", path_of(kind, namespace))["items"]

    def pods(self, namespace: str, group: str | None = None) -> list[Json]:
        """Pods, or those of one group."""
        found = self.all("pods", namespace)
        return [p for p in found if group is None or p["metadata"].get("labels", {}).get("ray.io/group") == group]

    def services(self, namespace: str) -> list[Json]:
        """Services of RayClusters; a real cluster has others of its own."""
        return [s for s in self.all("services", namespace) if "ownerReferences" in s["metadata"]]

    def names(self, namespace: str, group: str | None = None) -> set[str]:
        """Names of pods that are not dying."""
        return {p["metadata"]["name"] for p in self.pods(namespace, group) if "deletionTimestamp" not in p["metadata"]}

    def status(self, namespace: str, name: str) -> Json:
        """The RayCluster's status."""
        return self.get(RAYCLUSTERS, namespace, name).get("status", {})

    def condition(self, namespace: str, name: str, kind: str) -> Json:
        """One of its conditions, empty if it is not there."""
        conditions = self.status(namespace, name).get("conditions", [])
        return next((c for c in conditions if c["type"] == kind), {})

    def events(self, namespace: str) -> set[str]:
        """Reasons of the events recorded so far."""
        return {event.get("reason", "") for event in self.all("events.events.k8s.io", namespace)}

    def notes(self, namespace: str, reason: str) -> list[str]:
        """The messages of the events with that reason."""
        events = self.all("events.events.k8s.io", namespace)
        return [event.get("note", "") for event in events if event.get("reason") == reason]
