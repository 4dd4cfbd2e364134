"""Kubelet: registers its nodes and runs the pods that are bound to them.

Takes API access, a runtime and node names; registers the nodes, watches pods and runs one task per pod that is bound to
one of the nodes. An unexpected exception in one pod does not affect the others: its worker is rebuilt from the API
object, as after a kubelet restart. One process serves any number of nodes; started by `raytide_sandbox/cluster.py`, which also
starts and stops the runtime.
"""

import asyncio
import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from raytide_sandbox.container_runtime.interface import Runtime
from raytide_sandbox.kubelet.apiclient import ApiAccess, ApiClient, Manifest
from raytide_sandbox.kubelet.env import NodeFigures
from raytide_sandbox.kubelet.events import EventRecorder
from raytide_sandbox.kubelet.kubelet_context import Host
from raytide_sandbox.kubelet.node_lease import Heartbeat
from raytide_sandbox.kubelet.node_status import NodeFacts, build_capacity
from raytide_sandbox.kubelet.podspec import PodSpecError, read_pod
from raytide_sandbox.kubelet.podworker import PodWorker
from raytide_sandbox.kubelet.rejected_pods import InvalidPodWorker
from raytide_sandbox.kubelet.server import KubeletServer, RequestAuthenticator

_AFTER_BUG_S: Final = 5.0
_LOG_PERIOD_S: Final = 1.0

_log = logging.getLogger(__name__)


class NodeLostError(Exception):
    """The first process of the runtime has ended, and every pod with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletConfig:
    """Configuration of a kubelet."""

    access: ApiAccess
    directory: Path
    """Logs and volumes of pods, emptied at start. Keep it short: a unix socket path has at most 107 characters."""
    node_names: tuple[str, ...]
    service_port: int
    """Port of the API server for pods, on the runtime's `node_address` unless `service_host` is set."""
    service_host: str | None = None
    cpu: str = "8"
    memory: str = "32Gi"
    pods: int = 110
    serving_host: str = "127.0.0.1"
    serving_port: int = 0
    authenticator: RequestAuthenticator = field(default_factory=RequestAuthenticator)
    """TLS and client authentication of the kubelet's server."""
    labels: dict[str, str] = field(default_factory=dict)
    on_pods: Callable[[], None] | None = None
    """Called after each change of a pod of these nodes in the API."""


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
    """Kubelet of one or more nodes."""

    def __init__(self, config: KubeletConfig, runtime: Runtime, now: Callable[[], datetime]) -> None:
        self._config = config
        self._runtime = runtime
        self._now = now
        self._ours: dict[str, _Pod] = {}
        self._server: KubeletServer | None = None

    @property
    def port(self) -> int:
        """Port that serves logs, exec and port-forward; valid once `run` has set `ready`."""
        return self._server.port if self._server else 0

    async def run(self, ready: asyncio.Event | None = None) -> None:
        """Run until cancelled; raises NodeLostError in an ExceptionGroup. `ready` is set after registration."""
        config = self._config
        shutil.rmtree(config.directory, ignore_errors=True)
        config.directory.mkdir(parents=True, mode=0o755)
        api = ApiClient(config.access)
        try:
            host = self._build_host(api)
            self._server = KubeletServer(self._runtime, self.find_worker, self._now, config.authenticator)
            await self._server.start(config.serving_host, config.serving_port)
            heartbeat = Heartbeat(api, self._node_facts(), self._now)
            await heartbeat.register()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(heartbeat.beat())
                tasks.create_task(host.events.run())
                tasks.create_task(self._watch_node())
                tasks.create_task(self._record_log_growth())
                tasks.create_task(self._watch_pods(api, host, tasks))
                if ready:
                    ready.set()
        finally:
            if self._server:
                await self._server.close()
            await api.close()

    def find_worker(self, namespace: str, name: str) -> PodWorker | None:
        """The worker of the pod of that name; None when there is none or its spec is invalid."""
        for pod in self._ours.values():
            metadata = pod.raw["metadata"]
            is_it = metadata["namespace"] == namespace and metadata["name"] == name
            if is_it and isinstance(pod.worker, PodWorker):
                return pod.worker
        return None

    def pods(self) -> list[Manifest]:
        """The latest API object of every pod of these nodes."""
        return [pod.raw for pod in self._ours.values() if not pod.is_vanished]

    # --- node ----------------------------------------------------------------------------------------------------
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
        raise NodeLostError(await self._runtime.wait_failed())

    # --- pods ----------------------------------------------------------------------------------------------------
    async def _watch_pods(self, api: ApiClient, host: Host, tasks: asyncio.TaskGroup) -> None:
        def on_list(items: list[Manifest]) -> None:
            seen = {item["metadata"]["uid"] for item in items}
            for uid in [uid for uid in self._ours if uid not in seen]:
                self._vanish(uid)
            for item in items:
                self._on_pod(item, host, tasks)

        async for event in api.list_and_watch("/api/v1/pods", on_list, field_selector=self._own_pods()):
            if event.type == "DELETED":
                self._vanish(event.object["metadata"]["uid"])
            else:
                self._on_pod(event.object, host, tasks)

    def _own_pods(self) -> str:
        """Field selector for pods: a kubelet of one node may list only that node's pods on a real API server."""
        names = self._config.node_names
        return f"spec.nodeName={names[0]}" if len(names) == 1 else ""

    def _on_pod(self, raw: Manifest, host: Host, tasks: asyncio.TaskGroup) -> None:
        uid = raw["metadata"]["uid"]
        if (raw.get("spec") or {}).get("nodeName") not in self._config.node_names:
            return
        known = self._ours.get(uid)
        if known is None:
            known = self._ours[uid] = _Pod(raw)
            tasks.create_task(self._run_pod(known, host))
            self._report_status()
            return
        known.raw = raw
        if known.worker:
            known.worker.update(raw)
        self._report_status()

    def _vanish(self, uid: str) -> None:
        pod = self._ours.get(uid)
        if pod:
            pod.is_vanished = True
            if pod.worker:
                pod.worker.vanish()
            self._report_status()

    def _report_status(self) -> None:
        if self._config.on_pods:
            self._config.on_pods()

    async def _run_pod(self, pod: _Pod, host: Host) -> None:
        """Run the worker of one pod until the pod is gone; an unexpected exception rebuilds the worker."""
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

    async def _record_log_growth(self) -> None:
        while True:
            await asyncio.sleep(_LOG_PERIOD_S)
            for pod in self._ours.values():
                if isinstance(pod.worker, PodWorker):
                    pod.worker.record_log_growth()


def _build_worker(host: Host, raw: Manifest) -> _Worker:
    try:
        return PodWorker(host, read_pod(raw))
    except PodSpecError as error:
        return InvalidPodWorker(host, raw, str(error))
