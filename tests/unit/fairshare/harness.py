"""The sharing controller on the embedded API in virtual time, with simulated job controllers, scheduler and kubelets.

The stand-in makes the pods that a job's spec and record ask for and takes away those that are too many; the scheduler binds
a pod to the first node that has room for it by requests. Pods that terminate are gone after `grace_s`, or when the test says
so. Everything the room wrote is in `writes`.
"""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import msgspec

from raytide.api import trainingjob_constants as constants
from raytide.api.capacity import capacity_node_from_object, capacity_pod_from_object
from raytide.api.config import JobConfig, SharingConfig
from raytide.api.gang_admission import is_admitted
from raytide.api.pod_requirements import HOST_PORT
from raytide.api.sharing_record import SharingRecord, parse_record
from raytide.api.tenants import TENANT_LABEL
from raytide.api.training_resources import is_gang
from raytide.api.trainingjob import TrainingJob
from raytide.fairshare.controller import FairShareController, FairShareOptions
from raytide.fairshare.reconciler import run_at_once
from raytide.kube.client import Client
from raytide.runtime.clock import Clock
from raytide.trainingjob.manifests.objects import build_pod
from raytide_sandbox.apiserver.routes import Api, Request
from raytide_sandbox.apiserver.store import Store
from raytide_sandbox.controllers.manager import Controllers
from support.deadlines import PATIENCE
from support.definitions import define
from support.manifest_files import body_of
from support.training_builders import roles_of, size_for

from simulation.in_process_transport import InProcessTransport

CRD = Path(__file__).parents[3] / "crds" / "paddlepaddle.org_trainingjobs.yaml"
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
LOOK_S = 0.2
JOBS = "trainingjobs.paddlepaddle.org"
Json = dict[str, Any]


class WorldClock(Clock):
    """Wall time begins at EPOCH and moves with the loop."""

    def __init__(self) -> None:
        self._begun = asyncio.get_running_loop().time()

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.monotonic() - self._begun)


def job_manifest(
    name: str, floor: int, ceiling: int | None = None, *, cpu: str = "1", gpu: int = 0, **spec: Any
) -> Json:
    """A TrainingJob; without a ceiling it is fixed."""
    amounts = {"cpu": cpu, **({constants.GPU: gpu} if gpu else {})}
    trainer = {"entrypoint": "true", "min-instance": floor, "max-instance": ceiling or floor}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"trainer": {**trainer, "resources": {"requests": amounts, "limits": amounts}}, **spec},
    }


def _without(room: Mapping[str, int], requests: Mapping[str, int]) -> dict[str, int]:
    """What is left of a node beside a pod; each node has each port once."""
    taken = {name: room.get(name, int(name.startswith(HOST_PORT))) - amount for name, amount in requests.items()}
    return {**room, **taken}


class Stage:
    """One cluster with the sharing controller."""

    def __init__(self, *, grace_s: float = 0.2, config: SharingConfig | None = None, **options: Any) -> None:
        self.clock = WorldClock()
        self.grace_s = grace_s
        self.holds: set[str] = set()
        """Names of pods that stay although they terminate."""
        self.writes: list[tuple[float, str, Json]] = []
        """When, which job, and the body of each patch of the controller."""
        self.counted: dict[str, int] = {}
        """GETs by path."""
        uids, suffixes = itertools.count(1), itertools.count(1)
        self.store = Store(now=self.clock.now, new_uid=lambda: f"uid-{next(uids)}")
        self.api = Api(self.store, new_suffix=lambda: f"{next(suffixes):05d}")
        self.controllers = Controllers(self.store, has_scheduler=False)
        self.controllers.step(self.clock.now())
        define(self.api, self.store, body_of(CRD))
        self.wire = InProcessTransport(self.api)
        self.wire.on_request = self._see
        client = Client(self.wire, clock=self.clock)
        self.controller = FairShareController(
            client,
            clock=self.clock,
            config=config or SharingConfig(),
            options=FairShareOptions(run=run_at_once, **options),
        )
        self._work: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._changed.set()
        self.store.subscribe(lambda _change: self._changed.set())

    # --- lifecycle -------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._work = [asyncio.create_task(self.controller.run()), asyncio.create_task(self._live())]
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.controller.stop()
        await asyncio.wait_for(self._work[0], 60 * PATIENCE)
        self._work[1].cancel()
        await asyncio.gather(self._work[1], return_exceptions=True)

    async def until(self, what: str, is_so: Callable[[], bool], within_s: float = 120.0) -> None:
        """Wait for a state of the world."""
        ends_at = self.clock.monotonic() + within_s
        while not is_so():
            assert not self._work or not self._work[0].done(), "the room ended"
            assert self.clock.monotonic() < ends_at, f"{what}: {self.sizes()}, {self.waiting()}"
            await asyncio.sleep(LOOK_S)

    # --- people ----------------------------------------------------------------------------------------------------------

    def handle(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", **query: str
    ) -> Json:
        sent = b"" if body is None else msgspec.json.encode(body)
        answer = self.api.handle(Request(method, path, query, {"content-type": content_type}, sent))
        assert answer.status < 300, answer.body
        return msgspec.json.decode(answer.body)

    def add_node(self, name: str, cpu: str = "8", *, gpu: int = 0, **spec: Any) -> None:
        amounts = {"cpu": cpu, "memory": "64Gi", "pods": "110", **({constants.GPU: str(gpu)} if gpu else {})}
        status = {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
        self.store.create("nodes", {"metadata": {"name": name}, "spec": spec, "status": status})

    def add_job(self, name: str, *sizes: int, namespace: str = "default", **more: Any) -> Json:
        obj = job_manifest(name, *sizes, **more)
        obj["metadata"]["namespace"] = namespace
        return self.handle("POST", f"/apis/paddlepaddle.org/v1/namespaces/{namespace}/trainingjobs", obj)

    def add_pod(self, name: str, cpu: str, *, namespace: str = "default", **spec: Any) -> None:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
        obj = {"metadata": {"name": name, "namespace": namespace}, "spec": {"containers": [container], **spec}}
        self.handle("POST", f"/api/v1/namespaces/{namespace}/pods", obj)

    def label_namespace(self, name: str, tenant: str | None) -> None:
        """As `kubectl label namespace`; None removes the label."""
        if self.store.find("namespaces", "", name) is None:
            self.store.create("namespaces", {"metadata": {"name": name}})
        body = {"metadata": {"labels": {TENANT_LABEL: tenant}}}
        self.handle("PATCH", f"/api/v1/namespaces/{name}", body, "application/merge-patch+json")

    def edit(self, name: str, *, subresource: str = "", manager: str = "kubectl", **body: Any) -> None:
        """A merge patch of a job."""
        path = f"/apis/paddlepaddle.org/v1/namespaces/default/trainingjobs/{name}" + subresource
        self.handle("PATCH", path, body, "application/merge-patch+json", fieldManager=manager)

    def scale(self, name: str, replicas: int, manager: str = "kubectl") -> None:
        """As `kubectl scale`."""
        self.edit(name, subresource="/scale", manager=manager, spec={"replicas": replicas})

    def delete_pod(self, name: str) -> None:
        self.store.delete("pods", "default", name)

    # --- looking ---------------------------------------------------------------------------------------------------------

    def jobs(self) -> dict[str, TrainingJob]:
        parsed = [TrainingJob.parse(entry.obj()) for _, entry in self.store.entries(JOBS)]
        return {job.metadata.name: job for job in parsed}

    def record(self, name: str) -> SharingRecord | None:
        return parse_record(self.jobs()[name].metadata.annotations.get(constants.SHARING_ANNOTATION))

    def sizes(self) -> dict[str, int | None]:
        return {name: job.spec.trainer.replicas for name, job in self.jobs().items()}

    def waiting(self) -> dict[str, str]:
        notes = {name: record.waiting for name in self.jobs() if (record := self.record(name)) is not None}
        return {name: note.reason for name, note in notes.items() if note is not None}

    def pods(self, job: str) -> list[str]:
        return sorted(
            p["metadata"]["name"] for p in self._pods() if p["metadata"]["labels"].get(constants.JOB_LABEL) == job
        )

    def placed(self, job: str) -> list[str]:
        return sorted(
            p["metadata"]["name"]
            for p in self._pods()
            if p["metadata"]["labels"].get(constants.JOB_LABEL) == job and p["spec"].get("nodeName")
        )

    def orders(self, name: str) -> list[int]:
        """The sizes that the controller wrote, in order."""
        found = (body.get("spec", {}).get("trainer", {}).get("replicas") for _, job, body in self.writes if job == name)
        return [size for size in found if size is not None]

    def _pods(self) -> list[Json]:
        found = [entry.obj() for _, entry in self.store.entries("pods")]
        for pod in found:
            pod["metadata"].setdefault("labels", {})
        return found

    def _see(self, request: Request) -> None:
        if request.method == "PATCH":
            self.writes.append((self.clock.monotonic(), request.path.split("/")[-1], msgspec.json.decode(request.body)))
        elif request.method == "GET":
            self.counted[request.path] = self.counted.get(request.path, 0) + 1

    # --- the rest of the cluster -----------------------------------------------------------------------------------------

    async def _live(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(0.1)
            self._changed.clear()
            for job in self.jobs().values():
                self._control(job)
            self._schedule()

    def _control(self, job: TrainingJob) -> None:
        record = parse_record(job.metadata.annotations.get(constants.SHARING_ANNOTATION))
        may_begin = not is_gang(job, SharingConfig().gpus) or is_admitted(job, record)
        size = size_for(job, job.desired_replicas() if may_begin else 0)
        wanted = roles_of(job, size) if may_begin else {}
        there = set(self.pods(job.metadata.name))
        expected = set()
        for role, count in wanted.items():
            for index in range(count):
                pod = build_pod(job, role, index, size, JobConfig())
                expected.add(pod["metadata"]["name"])
                if pod["metadata"]["name"] not in there:
                    self.store.create("pods", pod)
        for name in there - expected:
            self._end(name, job.key.namespace)

    def _end(self, name: str, namespace: str) -> None:
        entry = self.store.find("pods", namespace, name)
        if entry is None:
            return
        if not entry.is_terminating:
            self.store.delete("pods", namespace, name, grace_s=30)
            asyncio.get_running_loop().call_later(self.grace_s, self.kill, name, namespace)

    def kill(self, name: str, namespace: str = "default") -> None:
        """The pod is gone, unless a test holds it."""
        if name in self.holds:
            asyncio.get_running_loop().call_later(self.grace_s, self.kill, name, namespace)
        elif self.store.find("pods", namespace, name) is not None:
            self.store.delete("pods", namespace, name, grace_s=0)

    def _schedule(self) -> None:
        nodes = [capacity_node_from_object(entry.obj()) for _, entry in self.store.entries("nodes")]
        free = {node.name: dict(node.allocatable) for node in nodes if not node.is_cordoned}
        pods = [(obj, capacity_pod_from_object(obj)) for obj in self._pods()]
        for _obj, view in pods:
            if view.node in free and not view.is_finished:
                free[view.node] = _without(free[view.node], view.requests)
        for obj, view in pods:
            if view.node or view.is_terminating or view.is_finished:
                continue
            for name, room in free.items():
                left = _without(room, view.requests)
                if all(left[resource] >= 0 for resource in view.requests):
                    self._bind(obj, name)
                    free[name] = left
                    break

    def _bind(self, obj: Json, node: str) -> None:
        path = f"/api/v1/namespaces/{obj['metadata']['namespace']}/pods/{obj['metadata']['name']}"
        self.handle("POST", f"{path}/binding", {"target": {"kind": "Node", "name": node}})
        self.handle("PATCH", f"{path}/status", {"status": {"phase": "Running"}}, "application/merge-patch+json")
