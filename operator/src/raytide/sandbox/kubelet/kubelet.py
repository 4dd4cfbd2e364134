"""Which pods run on the nodes of this machine?

Takes access to an API server, a runtime and the names of the nodes it stands for; registers the nodes, watches pods and
gives each that is bound to one of them a task of its own. Trouble of one pod stays with that pod: its task begins anew
from what the API says, as after a restart of the kubelet. One process serves any number of nodes; started by
`sandbox/cluster.py`, which also starts and stops the runtime.
"""

import asyncio
import logging
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from raytide.sandbox.kubelet.apiclient import ApiAccess, ApiClient, Manifest
from raytide.sandbox.kubelet.env import NodeFigures
from raytide.sandbox.kubelet.events import EventRecorder
from raytide.sandbox.kubelet.heartbeat import Heartbeat
from raytide.sandbox.kubelet.host import Host
from raytide.sandbox.kubelet.names import API_SERVER, build_names
from raytide.sandbox.kubelet.nodeobjects import NodeFacts, build_capacity
from raytide.sandbox.kubelet.podspec import BadSpec, read_pod
from raytide.sandbox.kubelet.podworker import PodWorker
from raytide.sandbox.kubelet.refused import RefusedPod
from raytide.sandbox.node.runtime import Runtime
from raytide.sandbox.serving.nodeports import NodePorts, PodPort
from raytide.sandbox.serving.server import KubeletServer

_AFTER_BUG_S: Final = 5.0
_NAMES_PAUSE_S: Final = 0.02
_LOG_PERIOD_S: Final = 1.0
_CONNECT_S: Final = 10.0

_log = logging.getLogger(__name__)


class NodeLost(Exception):  # noqa: N818 - the sandbox reports it
    """The runtime's own first process has ended, and every pod with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletConfig:
    """Everything a kubelet is told."""

    access: ApiAccess
    directory: Path
    """Logs and volumes of pods; emptied at the start. Keep it short: sockets in volumes have at most 107 characters."""
    node_names: tuple[str, ...]
    service_port: int
    """Where pods reach the API server, on the runtime's `node_address` unless `service_host` says otherwise."""
    service_host: str | None = None
    cpu: str = "8"
    memory: str = "32Gi"
    pods: int = 110
    serving_host: str = "127.0.0.1"
    serving_port: int = 0
    serving_token: str | None = None
    """What the API server has to show; None trusts whoever can connect."""
    labels: dict[str, str] = field(default_factory=dict)
    feeds_names: bool = True
    """Whether this kubelet tells the runtime which names pods can resolve; one of several does."""


class _Worker(Protocol):
    def update(self, raw: Manifest) -> None: ...

    def vanish(self) -> None: ...

    async def run(self) -> None: ...


@dataclass(slots=True)
class _Pod:
    raw: Manifest
    worker: _Worker | None = None
    is_vanished: bool = False


class Kubelet:
    """The pods of some nodes."""

    def __init__(self, config: KubeletConfig, runtime: Runtime, now: Callable[[], datetime]) -> None:
        self._config = config
        self._runtime = runtime
        self._now = now
        self._ours: dict[str, _Pod] = {}
        self._endpoints: dict[str, Manifest] = {}
        self._services: dict[str, Manifest] = {}
        self._node_ports = NodePorts(self._connect)
        self._names_changed = asyncio.Event()
        self._server: KubeletServer | None = None

    @property
    def port(self) -> int:
        """Where logs, exec and port-forward are served, once `run` has said it is ready."""
        return self._server.port if self._server else 0

    async def run(self, ready: asyncio.Event | None = None) -> None:
        """Until cancelled; raises NodeLost when the runtime's ground is gone. `ready` is set when nodes are registered."""
        config = self._config
        shutil.rmtree(config.directory, ignore_errors=True)
        config.directory.mkdir(parents=True, mode=0o755)
        api = ApiClient(config.access)
        try:
            host = self._build_host(api)
            self._server = KubeletServer(self._runtime, self.find_worker, self._now, token=config.serving_token)
            await self._server.start(config.serving_host, config.serving_port)
            heartbeat = Heartbeat(api, self._node_facts(), self._now)
            await heartbeat.register()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(heartbeat.beat())
                tasks.create_task(host.events.run())
                tasks.create_task(self._watch_node())
                if config.feeds_names:
                    tasks.create_task(self._watch_names(api, "/api/v1/endpoints", self._endpoints))
                    tasks.create_task(self._watch_names(api, "/api/v1/services", self._services))
                    tasks.create_task(self._keep_names())
                tasks.create_task(self._note_logs())
                tasks.create_task(self._watch_pods(api, host, tasks))
                if ready:
                    ready.set()
        finally:
            await self._node_ports.close()
            if self._server:
                await self._server.close()
            await api.close()

    def find_worker(self, namespace: str, name: str) -> PodWorker | None:
        """The running pod of that name."""
        for pod in self._ours.values():
            metadata = pod.raw["metadata"]
            is_it = metadata["namespace"] == namespace and metadata["name"] == name
            if is_it and isinstance(pod.worker, PodWorker):
                return pod.worker
        return None

    # --- what it says of itself ----------------------------------------------------------------------------------
    def _build_host(self, api: ApiClient) -> Host:
        config = self._config
        address = self._runtime.node_address
        return Host(
            api=api,
            runtime=self._runtime,
            events=EventRecorder(api, self._now),
            now=self._now,
            directory=config.directory,
            figures=NodeFigures(host_ip=address, allocatable=self._capacity()),
            service_host=config.service_host or address,
            service_port=config.service_port,
        )

    def _capacity(self) -> dict[str, str]:
        return build_capacity(self._config.cpu, self._config.memory, self._config.pods)

    def _node_facts(self) -> list[NodeFacts]:
        return [
            NodeFacts(
                name=name,
                address=self._config.serving_host,
                kubelet_port=self.port,
                capacity=self._capacity(),
                runtime_name=f"raytide-{self._runtime.mode}://0.1",
                labels=self._config.labels,
            )
            for name in self._config.node_names
        ]

    async def _watch_node(self) -> None:
        raise NodeLost(await self._runtime.wait_failed())

    # --- pods ----------------------------------------------------------------------------------------------------
    async def _watch_pods(self, api: ApiClient, host: Host, tasks: asyncio.TaskGroup) -> None:
        def on_list(items: list[Manifest]) -> None:
            seen = {item["metadata"]["uid"] for item in items}
            for uid in [uid for uid in self._ours if uid not in seen]:
                self._vanish(uid)
            for item in items:
                self._on_pod(item, host, tasks)

        async for event in api.list_and_watch("/api/v1/pods", on_list):
            if event.type == "DELETED":
                self._vanish(event.object["metadata"]["uid"])
            else:
                self._on_pod(event.object, host, tasks)

    def _on_pod(self, raw: Manifest, host: Host, tasks: asyncio.TaskGroup) -> None:
        uid = raw["metadata"]["uid"]
        if (raw.get("spec") or {}).get("nodeName") not in self._config.node_names:
            return
        known = self._ours.get(uid)
        if known is None:
            known = self._ours[uid] = _Pod(raw)
            tasks.create_task(self._look_after(known, host))
            return
        known.raw = raw
        if known.worker:
            known.worker.update(raw)

    def _vanish(self, uid: str) -> None:
        pod = self._ours.get(uid)
        if pod:
            pod.is_vanished = True
            if pod.worker:
                pod.worker.vanish()

    async def _look_after(self, pod: _Pod, host: Host) -> None:
        """One pod until it is gone; a defect of ours costs it a fresh start, never the kubelet."""
        metadata = pod.raw["metadata"]
        while not pod.is_vanished:
            try:
                pod.worker = _build_worker(host, pod.raw)
                await pod.worker.run()
                break
            except Exception:  # noqa: BLE001 - a defect that one pod brings out must not end the others
                _log.exception("pod starts anew pod=%s/%s", metadata["namespace"], metadata["name"])
                await asyncio.sleep(_AFTER_BUG_S)
        self._ours.pop(metadata["uid"], None)

    async def _note_logs(self) -> None:
        while True:
            await asyncio.sleep(_LOG_PERIOD_S)
            for pod in self._ours.values():
                if isinstance(pod.worker, PodWorker):
                    pod.worker.note_logs()

    # --- names ---------------------------------------------------------------------------------------------------
    async def _watch_names(self, api: ApiClient, path: str, known: dict[str, Manifest]) -> None:
        def on_list(items: list[Manifest]) -> None:
            known.clear()
            known.update((item["metadata"]["uid"], item) for item in items)
            self._names_changed.set()

        async for event in api.list_and_watch(path, on_list):
            uid = event.object["metadata"]["uid"]
            if event.type == "DELETED":
                known.pop(uid, None)
            else:
                known[uid] = event.object
            self._names_changed.set()

    async def _keep_names(self) -> None:
        """Tell the runtime after every change, several at once where they come together."""
        told: dict[str, tuple[str, ...]] = {}
        api_server = {API_SERVER: (self._config.service_host or self._runtime.node_address,)}
        while True:
            await self._names_changed.wait()
            self._names_changed.clear()
            names = build_names(self._endpoints.values()) | api_server
            if names != told:
                self._runtime.set_names(names)
                told = names
            await self._node_ports.update(self._services.values(), self._endpoints.values())
            await asyncio.sleep(_NAMES_PAUSE_S)

    async def _connect(self, to: PodPort) -> socket.socket:
        """For node ports: into a pod of ours that runs."""
        worker = self.find_worker(to.namespace, to.pod)
        if worker is None or worker.sandbox is None:
            raise ConnectionRefusedError(f"pod {to.namespace}/{to.pod} does not run here")
        return await self._runtime.connect(worker.sandbox, to.port, _CONNECT_S)


def _build_worker(host: Host, raw: Manifest) -> _Worker:
    try:
        return PodWorker(host, read_pod(raw))
    except BadSpec as trouble:
        return RefusedPod(host, raw, str(trouble))
