"""A cluster on the embedded API server whose pods are controlled by the test, with the real operator.

The sandbox's API over HTTP in the test's own loop, its controllers, a kubelet that is nothing but a few lines here; and
`raytide operator`, kopf and all, as a process. Every wait has a deadline and says what it waited for.
"""

import asyncio
import itertools
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import yaml
from aiohttp import web

from integration.cluster_under_test import (
    CRD,
    DEFINITION,
    DEFINITIONS,
    MERGE,
    RAYCLUSTERS,
    ClusterUnderTest,
    Json,
    path_of,
)
from raytide_sandbox.apiserver.api_status import ApiStatusError
from raytide_sandbox.apiserver.http import application
from raytide_sandbox.apiserver.request_response import Request, Response
from raytide_sandbox.apiserver.routes import Api
from raytide_sandbox.apiserver.store import Change, Store
from raytide_sandbox.controllers.manager import Controllers
from support.deadlines import PATIENCE
from support.fork_server import ForkedProcess, ForkServer
from support.manifest_files import body_of

CRDS = "customresourcedefinitions.apiextensions.k8s.io"
PATIENCE_S = 60.0 * PATIENCE
"""Nothing here waits for time to pass. A scenario's own bar is shorter."""
STARTED = "starting raytide"
"""In the operator's log once its signal handlers are installed."""
POLL_S = 0.04
TOUCHED_AGAIN_AFTER_S = 5.0
STABLE_POLLS = 15
"""So many looks in a row without a read mean that no pass follows by itself: it would within 0.2 s."""

Veto = Callable[[str, str, Json], tuple[int, Json] | None]
"""(namespace, plural, object) of a create -> an answer instead, or None."""


class Cluster(ClusterUnderTest):
    """The embedded API server and its controllers."""

    def __init__(self) -> None:
        super().__init__()
        uids, suffixes = itertools.count(1), itertools.count(1)
        self.store = Store(now=lambda: datetime.now(UTC), new_uid=lambda: f"uid-{next(uids)}")
        self.api = Api(self.store, new_suffix=lambda: f"{next(suffixes):05d}")
        self.controllers = Controllers(self.store, has_scheduler=False)
        self.veto: Veto = lambda _namespace, _plural, _obj: None
        self.port = 0
        self._changed = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._work: asyncio.Task[None] | None = None
        self.store.subscribe(self._see, "pods")
        self.store.subscribe(lambda _change: self._changed.set())

    async def start(self, *, port: int = 0, has_crd: bool = True) -> None:
        """Listen on loopback."""
        for name in ("default", "kube-system"):
            with suppress(ApiStatusError):
                self.store.create("namespaces", {"metadata": {"name": name}})
        self.add_node("n0")
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

    def install_crd(self, crd: Path = CRD) -> None:
        """As `kubectl apply -f`."""
        answer = self.api.handle(Request("POST", DEFINITIONS, {}, {}, body_of(crd)))
        assert answer.status == 201, answer.body

    def remove_crd(self, crd: Path = CRD) -> None:
        """As `kubectl delete -f`."""
        self.done("DELETE", f"{DEFINITIONS}/{msgspec.json.decode(body_of(crd))['metadata']['name']}")

    def add_node(self, name: str, **allocatable: str) -> str:
        """The embedded API server has no nodes that could become unready."""
        capacity = {"pods": "110", **allocatable}
        status = {"conditions": [{"type": "Ready", "status": "True"}], "capacity": capacity, "allocatable": capacity}
        self.create("nodes", {"metadata": {"name": name}})
        self.done("PATCH", path_of("nodes", "", name, "status"), {"status": status}, content_type=MERGE)
        return name

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

    def request(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", **query: str
    ) -> tuple[int, Json]:
        """Into the API without a socket."""
        sent = b"" if body is None else msgspec.json.encode(body)
        answer = self.api.handle(Request(method, path, query, {"content-type": content_type}, sent))
        return answer.status, msgspec.json.decode(answer.body) if answer.body else {}

    def ensure_namespace(self, namespace: str) -> None:
        """As `kubectl create namespace`, unless it is there."""
        if self.store.find("namespaces", "", namespace) is None:
            self.store.create("namespaces", {"metadata": {"name": namespace}})

    def without_quota(self, namespace: str) -> str:
        """The emulator counts no quota: its rejections are simulated here."""

        def reject(where: str, plural: str, obj: Json) -> tuple[int, Json] | None:
            if (where, plural) != (namespace, "pods") or obj["spec"].get("priorityClassName") != low_priority:
                return None
            name = obj["metadata"]["name"]
            words = "exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0"
            message = f'pods "{name}" is forbidden: {words}'
            return 403, {"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": message}

        low_priority = self.add_priority_class(namespace)
        self.veto = reject
        return low_priority

    def give_quota(self, namespace: str) -> None:  # noqa: ARG002 - only one test at a time sets a quota
        """No request is rejected any more."""
        self.veto = lambda _namespace, _plural, _obj: None

    def past_admission(self, write: Callable[[], Any]) -> None:
        """Under a CRD that lets everything in."""
        ours = self.done("GET", DEFINITION)
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        versions = [{**v, "schema": {"openAPIV3Schema": anything}} for v in ours["spec"]["versions"]]
        self.done("PUT", DEFINITION, {**ours, "spec": {**ours["spec"], "versions": versions}})
        try:
            write()
        finally:
            self.edit("", "rayclusters.ray.io", lambda obj: obj.update(spec=ours["spec"]), CRDS)

    def _see(self, change: Change) -> None:
        namespace, name = change.key.namespace, change.key.name
        if change.type == "MODIFIED" and change.entry.is_terminating and name not in self.holds:
            asyncio.get_running_loop().call_later(0.02, self.end, namespace, name)

    # --- inside ----------------------------------------------------------------------------------------------------
    async def _run_controllers(self) -> None:
        while True:
            self._changed.clear()
            self.controllers.step(datetime.now(UTC))
            await self._changed.wait()
            await asyncio.sleep(0.01)


class Front:
    """In front of the API: counts the operator's writes and may reject them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def handle(self, request: Request) -> Any:
        """As `Api.handle`."""
        words = request.path.strip("/").split("/")
        if request.method == "GET":
            self._cluster.reads[request.path] += 1
        elif not words[-1].endswith("reviews"):  # a review is a question
            last = words[-1] if words[-1] in ("status", "pods", "services", "events") else words[-2]
            self._cluster.writes[f"{request.method} {last}"] += 1
        if request.method == "POST" and "namespaces" in words:
            obj = msgspec.json.decode(request.body)
            answer = self._cluster.veto(words[words.index("namespaces") + 1], words[-1], obj)
            if answer is not None:
                return Response(answer[0], msgspec.json.encode(answer[1]), {"Content-Type": "application/json"})
        return self._cluster.api.handle(request)


class Operator:
    """`raytide operator` as a process; forked where a test is not about how it starts."""

    def __init__(self, *flags: str, metrics: str = "0", is_forked: bool = True) -> None:
        self._flags = ("--metrics-addr", metrics, *flags)
        self._is_forked = is_forked
        self.process: asyncio.subprocess.Process | ForkedProcess | None = None
        self.lines: list[str] = []
        self._reading: asyncio.Task[None] | None = None

    async def start(self, kubeconfig: Path | None, **environ: str) -> "Operator":
        """Start it; it is not ready yet."""
        flags = [*self._flags, *(("--kubeconfig", str(kubeconfig)) if kubeconfig else ())]
        if "--health-probe-bind-address" not in flags:
            flags += ["--health-probe-bind-address", "0"]
        if self._is_forked and not any(name.startswith("PYTHON") for name in environ):  # what Python reads at its start
            self.process = await ForkServer.operator(*flags, environ={**os.environ, **environ})
        else:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "raytide", "operator", *flags),
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, **environ},
            )
        self._reading = asyncio.create_task(self._read())
        return self

    async def stop(self) -> int:
        """As a kubelet does: SIGTERM, and SIGKILL if that does not help."""
        process = self.process
        assert process
        # Until its signal handlers are installed, SIGTERM ends it as it ends any process: by the signal, not with code 0.
        await until("the operator starts", lambda: STARTED in self.log or process.returncode is not None)
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), 15 * PATIENCE)
        except TimeoutError:
            process.kill()
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
        """The log so far."""
        return "\n".join(self.lines)

    async def _read(self) -> None:
        assert self.process
        assert self.process.stderr
        async for line in self.process.stderr:
            self.lines.append(line.decode().rstrip())


async def until(what: str, is_so: Callable[[], Any], *, within_s: float = 60.0) -> Any:
    """Wait for a state; returns what made it true."""
    within_s *= PATIENCE
    ends_at = asyncio.get_running_loop().time() + within_s
    while not (found := is_so()):
        if asyncio.get_running_loop().time() >= ends_at:
            raise AssertionError(f"not within {within_s:g} s: {what}")
        await asyncio.sleep(POLL_S)
    return found


async def has_reconciled(
    cluster: ClusterUnderTest, namespace: str, name: str = "demo", kind: str = RAYCLUSTERS
) -> None:
    """Return when a pass over that object has ended which began after this call.

    A change of an annotation brings a pass about, which begins by reading the object; passes over one object follow one
    another, so that the read of the next one is the end of the first. Returns when those it brought about are over, too:
    what a test does next must be noticed by itself.
    """
    path = path_of(kind, namespace, name)
    for _ in range(2):
        await _touch_until_read(cluster, namespace, name, kind)
    counts = deque([-1], maxlen=STABLE_POLLS)

    def is_calm() -> bool:
        counts.append(cluster.reads[path])
        return len(counts) == STABLE_POLLS and len(set(counts)) == 1

    await until(f"the operator looks at {name} no more", is_calm)


async def _touch_until_read(cluster: ClusterUnderTest, namespace: str, name: str, kind: str) -> None:
    """A read that is under way may return the change, which brings no other pass about then: it is changed again."""
    path = path_of(kind, namespace, name)
    before, loop = cluster.reads[path], asyncio.get_running_loop()
    ends_at = loop.time() + PATIENCE_S
    while cluster.reads[path] == before:
        assert loop.time() < ends_at, f"not within {PATIENCE_S} s: the operator looks at {name}"
        cluster.touch(namespace, name, kind)
        with suppress(AssertionError):
            await until("it is read", lambda: cluster.reads[path] > before, within_s=TOUCHED_AGAIN_AFTER_S)


async def holds_while(what: str, is_so: Callable[[], Any], reconciling: Coroutine[Any, Any, None]) -> None:
    """A state that must not change until it is seen that the operator has looked."""
    reconciled = asyncio.get_running_loop().create_task(reconciling)
    while not reconciled.done():
        assert is_so(), what
        await asyncio.sleep(POLL_S)
    await reconciled
    assert is_so(), what


async def holds_for(what: str, is_so: Callable[[], Any], *, seconds: float) -> None:
    """A state that must not change for a time that the test is about; elsewhere `holds_while` knows when to stop."""
    ends_at = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < ends_at:
        assert is_so(), what
        await asyncio.sleep(POLL_S)
