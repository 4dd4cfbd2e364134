"""A cluster whose pods do what a test says, and the real operator beside it.

The sandbox's API over HTTP in the test's own loop, its controllers, a kubelet that is nothing but a few lines here; and
`raytide operator`, kopf and all, as a process. Every wait has a deadline and says what it waited for.
"""

import asyncio
import itertools
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import yaml
from aiohttp import web

from raytide.sandbox.apiserver.http import application
from raytide.sandbox.apiserver.messages import Request, Response
from raytide.sandbox.apiserver.routes import Api
from raytide.sandbox.apiserver.status import ApiStatus
from raytide.sandbox.apiserver.store import Change, Store
from raytide.sandbox.controllers import Controllers

CRD = Path(__file__).parents[2] / "crds" / "ray.io_rayclusters.yaml"
RAYCLUSTERS = "rayclusters.ray.io"
READY = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")]
PATIENCE_S = 20.0

Json = dict[str, Any]
Veto = Callable[[str, str, Json], tuple[int, Json] | None]
"""(namespace, plural, object) of a create -> an answer instead, or None."""


class Cluster:
    """One API server and what lives behind it."""

    def __init__(self) -> None:
        uids, suffixes = itertools.count(1), itertools.count(1)
        self.store = Store(now=lambda: datetime.now(UTC), new_uid=lambda: f"uid-{next(uids)}")
        self.api = Api(self.store, new_suffix=lambda: f"{next(suffixes):05d}")
        self.controllers = Controllers(self.store, has_scheduler=False)
        self.holds: set[str] = set()
        """Names of pods that do not end when told to."""
        self.veto: Veto = lambda _namespace, _plural, _obj: None
        self.writes: Counter[str] = Counter()
        """Writes of the operator, by method and kind."""
        self.port = 0
        self._changed = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._work: asyncio.Task[None] | None = None
        self.store.subscribe(self._see, "pods")
        self.store.subscribe(lambda _change: self._changed.set())

    async def start(self, *, has_crd: bool = True, port: int = 0) -> None:
        """Listen on loopback."""
        for name in ("default", "kube-system"):
            with suppress(ApiStatus):
                self.store.create("namespaces", {"metadata": {"name": name}})
        if has_crd:
            self.install_crd()
        app = application(Front(self))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        listener = socket.create_server(("127.0.0.1", port))
        self.port = listener.getsockname()[1]
        await web.SockSite(self._runner, listener).start()
        self._work = asyncio.create_task(self._run_controllers())

    async def stop(self) -> None:
        """Hang up."""
        if self._work:
            self._work.cancel()
        if self._runner:
            await self._runner.cleanup()

    def install_crd(self) -> None:
        """As `kubectl apply -f crds/`."""
        body = msgspec.json.encode(yaml.safe_load(CRD.read_text()))
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        answer = self.api.handle(Request("POST", path, {}, {}, body))
        assert answer.status == 201, answer.body

    def write_kubeconfig(self, path: Path) -> Path:
        """A kubeconfig for this server."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "u", "user": {}}],
        }
        path.write_text(yaml.safe_dump(config))
        return path

    # --- people --------------------------------------------------------------------------------------------------
    def apply(self, obj: Json) -> Json:
        """Create a RayCluster, through admission; returns it as stored."""
        metadata = {k: v for k, v in obj["metadata"].items() if k not in ("uid", "generation")}
        namespace = metadata["namespace"]
        self.ensure_namespace(namespace)
        body = msgspec.json.encode({**obj, "metadata": metadata})
        answer = self.api.handle(Request("POST", f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters", {}, {}, body))
        assert answer.status == 201, answer.body
        return msgspec.json.decode(answer.body)

    def ensure_namespace(self, namespace: str) -> None:
        """As `kubectl create namespace`, unless it is there."""
        if self.store.find("namespaces", "", namespace) is None:
            self.store.create("namespaces", {"metadata": {"name": namespace}})

    def store_past_admission(self, obj: Json) -> None:
        """As an object that an older CRD let in."""
        self.ensure_namespace(obj["metadata"]["namespace"])
        self.store.create(RAYCLUSTERS, obj)

    def edit(self, namespace: str, name: str, change: Callable[[Json], Any], kind: str = RAYCLUSTERS) -> None:
        """Change one object in place."""
        obj = self.store.get(kind, namespace, name)
        change(obj)
        self.store.update(kind, obj)

    def scale(self, namespace: str, name: str, replicas: int, *, group: int = 0, victims: tuple[str, ...] = ()) -> None:
        """Change `replicas`, and name victims."""

        def change(obj: Json) -> None:
            spec = obj["spec"]["workerGroupSpecs"][group]
            spec["replicas"] = replicas
            spec["scaleStrategy"] = {"workersToDelete": list(victims)}

        self.edit(namespace, name, change)

    def delete(self, namespace: str, name: str) -> None:
        """As `kubectl delete raycluster`."""
        self.store.delete(RAYCLUSTERS, namespace, name)

    # --- kubelets ------------------------------------------------------------------------------------------------
    def set_pod_status(self, namespace: str, name: str, **status: Any) -> None:
        """Whatever a kubelet might report."""
        pod = self.store.get("pods", namespace, name)
        pod["status"] = {**pod.get("status", {}), **status}
        self.store.update("pods", pod, subresource="status")

    def make_ready(self, namespace: str) -> None:
        """Every pod of the namespace that is pending becomes Ready."""
        for pod in self.pods(namespace):
            if (
                pod.get("status", {}).get("phase", "Pending") == "Pending"
                and "deletionTimestamp" not in pod["metadata"]
            ):
                if not pod["spec"].get("nodeName"):
                    self.edit(namespace, pod["metadata"]["name"], lambda p: p["spec"].update(nodeName="n0"), "pods")
                self.set_pod_status(
                    namespace, pod["metadata"]["name"], phase="Running", podIP="10.0.0.9", conditions=READY
                )

    def end(self, namespace: str, name: str) -> None:
        """A dying pod is gone."""
        self.holds.discard(name)
        with suppress(ApiStatus):
            self.store.delete("pods", namespace, name, grace_s=0)

    def _see(self, change: Change) -> None:
        namespace, name = change.key.namespace, change.key.name
        if change.type == "MODIFIED" and change.entry.is_terminating and name not in self.holds:
            asyncio.get_running_loop().call_later(0.02, self.end, namespace, name)

    # --- looking -------------------------------------------------------------------------------------------------
    def all(self, kind: str, namespace: str) -> list[Json]:
        """Every object of a kind in a namespace."""
        plural, _, group = kind.partition(".")
        prefix = f"/apis/{group}/v1" if group else "/api/v1"
        answer = self.api.handle(Request("GET", f"{prefix}/namespaces/{namespace}/{plural}", {}, {}, b""))
        assert answer.status == 200, answer.body
        return msgspec.json.decode(answer.body)["items"]

    def pods(self, namespace: str, group: str | None = None) -> list[Json]:
        """Pods, or those of one group."""
        found = self.all("pods", namespace)
        return [p for p in found if group is None or p["metadata"].get("labels", {}).get("ray.io/group") == group]

    def names(self, namespace: str, group: str | None = None) -> set[str]:
        """Names of pods that are not dying."""
        return {p["metadata"]["name"] for p in self.pods(namespace, group) if "deletionTimestamp" not in p["metadata"]}

    def status(self, namespace: str, name: str) -> Json:
        """The RayCluster's status."""
        return self.store.get(RAYCLUSTERS, namespace, name).get("status", {})

    def condition(self, namespace: str, name: str, kind: str) -> Json:
        """One of its conditions, empty if it is not there."""
        conditions = self.status(namespace, name).get("conditions", [])
        return next((c for c in conditions if c["type"] == kind), {})

    def events(self, namespace: str) -> set[str]:
        """Reasons of the events told so far."""
        return {event["reason"] for event in self.all("events.events.k8s.io", namespace)}

    # --- inside ----------------------------------------------------------------------------------------------------
    async def _run_controllers(self) -> None:
        while True:
            self._changed.clear()
            self.controllers.step(datetime.now(UTC))
            await self._changed.wait()
            await asyncio.sleep(0.01)


class Front:
    """What the operator meets: counts its writes and may say no before the API does."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def handle(self, request: Request) -> Any:
        """As `Api.handle`."""
        words = request.path.strip("/").split("/")
        if request.method != "GET" and not words[-1].endswith("reviews"):  # a review is a question
            last = words[-1] if words[-1] in ("status", "pods", "services", "events") else words[-2]
            self._cluster.writes[f"{request.method} {last}"] += 1
        if request.method == "POST" and "namespaces" in words:
            obj = msgspec.json.decode(request.body)
            answer = self._cluster.veto(words[words.index("namespaces") + 1], words[-1], obj)
            if answer is not None:
                return Response(answer[0], msgspec.json.encode(answer[1]), {"Content-Type": "application/json"})
        return self._cluster.api.handle(request)


class Operator:
    """`raytide operator` as a process."""

    def __init__(self, *flags: str, metrics: str = "0") -> None:
        self._flags = ("--metrics-addr", metrics, *flags)
        self.process: asyncio.subprocess.Process | None = None
        self.lines: list[str] = []
        self._reading: asyncio.Task[None] | None = None

    async def start(self, kubeconfig: Path | None, **environ: str) -> "Operator":
        """Start it; it is not ready yet."""
        flags = [*self._flags, *(("--kubeconfig", str(kubeconfig)) if kubeconfig else ())]
        if "--health-probe-bind-address" not in flags:
            flags += ["--health-probe-bind-address", "0"]
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "raytide", "operator", *flags),
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **environ},
        )
        self._reading = asyncio.create_task(self._read())
        return self

    async def stop(self) -> int:
        """As a kubelet does: SIGTERM, and SIGKILL if that does not help."""
        assert self.process
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.process.wait(), 15)
        except TimeoutError:
            self.process.kill()
            raise AssertionError(f"the operator did not end:\n{self.log}") from None
        return await self.ended()

    async def kill(self) -> None:
        """SIGKILL."""
        assert self.process
        self.process.kill()
        await self.ended()

    async def ended(self) -> int:
        """Its exit code, once it ends."""
        assert self.process
        assert self._reading
        code = await asyncio.wait_for(self.process.wait(), PATIENCE_S)
        await self._reading
        return code

    @property
    def log(self) -> str:
        """What it said so far."""
        return "\n".join(self.lines)

    async def _read(self) -> None:
        assert self.process
        assert self.process.stderr
        async for line in self.process.stderr:
            self.lines.append(line.decode().rstrip())


async def until(what: str, is_so: Callable[[], Any], *, within_s: float = PATIENCE_S) -> Any:
    """Wait for a state; returns what made it true."""
    ends_at = asyncio.get_running_loop().time() + within_s
    while not (found := is_so()):
        if asyncio.get_running_loop().time() >= ends_at:
            raise AssertionError(f"not within {within_s} s: {what}")
        await asyncio.sleep(0.02)
    return found


async def holds_for(what: str, is_so: Callable[[], Any], *, seconds: float = 0.7) -> None:
    """A state that must not change for a while."""
    ends_at = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < ends_at:
        assert is_so(), what
        await asyncio.sleep(0.02)
