"""A cluster in memory: a store, the controllers over it, and a clock that tests set."""

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from raytide_sandbox.apiserver.store import Store
from raytide_sandbox.controllers.manager import Controllers

Json = dict[str, Any]


class Cluster:
    """Operations of the tests; `settle` runs the controllers until nothing changes."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        uids = itertools.count(1)
        self.store = Store(now=lambda: self.now, new_uid=lambda: f"uid-{next(uids)}")
        self.controllers = Controllers(self.store, authority="PEM")
        self.settle()

    def settle(self) -> datetime | None:
        return self.controllers.step(self.now)

    def pass_time(self, **units: float) -> datetime | None:
        self.now += timedelta(**units)
        return self.settle()

    def create(
        self, resource: str, name: str, *, namespace: str = "default", settle: bool = True, **content: Any
    ) -> Json:
        metadata = {"name": name, "namespace": namespace, **content.pop("metadata", {})}
        entry = self.store.create(resource, {"metadata": metadata, **content})
        if settle:
            self.settle()
        return entry.obj()

    def node(self, name: str, *, cpu: str = "8", memory: str = "32Gi", pods: str = "110", **content: Any) -> Json:
        labels = content.pop("labels", {})
        extra = content.pop("extra", {})
        self.create("nodes", name, metadata={"labels": labels}, settle=False, **content)
        node = self.store.get("nodes", "", name)
        node["status"] = {"allocatable": {"cpu": cpu, "memory": memory, "pods": pods, **extra}}
        self.store.update("nodes", node, subresource="status")
        self.settle()
        return node

    def pod(
        self, name: str, *, cpu: str | None = None, settle: bool = True, labels: Json | None = None, **spec: Any
    ) -> Json:
        container: Json = {"name": "main", "image": "busybox"}
        if cpu:
            container["resources"] = {"requests": {"cpu": cpu}}
        content = {"containers": [container], **spec}
        return self.create("pods", name, spec=content, metadata={"labels": labels or {}}, settle=settle)

    def report(self, pod: str, *, settle: bool = True, **status: Any) -> None:
        """The status that a kubelet writes."""
        obj = self.store.get("pods", "default", pod)
        obj["status"] = {**obj.get("status", {}), **status}
        self.store.update("pods", obj, subresource="status")
        if settle:
            self.settle()

    def ready(self, pod: str, ip: str, *, is_ready: bool = True) -> None:
        conditions = [{"type": "Ready", "status": "True" if is_ready else "False"}]
        self.report(pod, phase="Running", podIP=ip, conditions=conditions)

    def delete(self, resource: str, name: str, *, namespace: str = "default", **options: Any) -> None:
        self.store.delete(resource, namespace, name, **options)
        self.settle()

    def get(self, resource: str, name: str, namespace: str = "default") -> Json:
        return self.store.get(resource, namespace, name)

    def names(self, resource: str, namespace: str | None = None) -> list[str]:
        return [obj["metadata"]["name"] for obj in self.store.list(resource, namespace)]

    def node_of(self, pod: str) -> str | None:
        return self.get("pods", pod)["spec"].get("nodeName")

    def scheduled(self, pod: str) -> Json:
        conditions = self.get("pods", pod).get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == "PodScheduled"), {})

    def events(self, reason: str) -> list[str]:
        return [event["message"] for event in self.store.list("events") if event["reason"] == reason]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()
