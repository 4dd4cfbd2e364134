"""Service names and node ports of the sandbox.

Watches Services and Endpoints. After every burst of changes it passes the resolvable names to the runtime and keeps one
listener on this machine per NodePort, as cluster DNS and kube-proxy do. It writes nothing to the API server and needs
only the RBAC rights of a service proxy. One per sandbox, for all its kubelets; run by raytide_sandbox/cluster.py.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable
from typing import Final

from raytide_sandbox.container_runtime.interface import Runtime
from raytide_sandbox.kubelet.apiclient import ApiAccess, ApiClient, Manifest
from raytide_sandbox.kubelet.names import API_SERVER, build_names
from raytide_sandbox.kubelet.podworker import PodWorker
from raytide_sandbox.streaming.nodeports import NodePorts, PodPort

_PAUSE_S: Final = 0.02
_CONNECT_S: Final = 10.0

FindWorker = Callable[[str, str], PodWorker | None]
Complete = Callable[[Iterable[Manifest], Iterable[Manifest]], Iterable[Manifest]]
"""From Services and the API server's Endpoints to the Endpoints that are used."""


class ServiceRouter:
    """DNS names and node ports of one sandbox."""

    def __init__(
        self,
        access: ApiAccess,
        runtime: Runtime,
        find_worker: FindWorker,
        *,
        api_address: str,
        complete: Complete | None = None,
    ) -> None:
        """`api_address` is where pods reach the API server; `complete` adds Endpoints that the API server lacks."""
        self._access = access
        self._runtime = runtime
        self._find_worker = find_worker
        self._api_server = {API_SERVER: (api_address,)}
        self._complete = complete or (lambda _, endpoints: endpoints)
        self._endpoints: dict[str, Manifest] = {}
        self._services: dict[str, Manifest] = {}
        self._node_ports = NodePorts(self._connect)
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Watch and update until cancelled."""
        api = ApiClient(self._access)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch(api, "/api/v1/endpoints", self._endpoints))
                tasks.create_task(self._watch(api, "/api/v1/services", self._services))
                tasks.create_task(self._keep())
        finally:
            await self._node_ports.close()
            await api.close()

    def on_pods_changed(self) -> None:
        """Trigger an update after a change of pods, on which `complete` may depend."""
        self._changed.set()

    async def _watch(self, api: ApiClient, path: str, known: dict[str, Manifest]) -> None:
        def on_list(items: list[Manifest]) -> None:
            known.clear()
            known.update((item["metadata"]["uid"], item) for item in items)
            self._changed.set()

        async for event in api.list_and_watch(path, on_list):
            uid = event.object["metadata"]["uid"]
            if event.type == "DELETED":
                known.pop(uid, None)
            else:
                known[uid] = event.object
            self._changed.set()

    async def _keep(self) -> None:
        """Update names and node ports after every change; a burst of changes is one update."""
        written: dict[str, tuple[str, ...]] = {}
        while True:
            await self._changed.wait()
            self._changed.clear()
            endpoints = list(self._complete(self._services.values(), self._endpoints.values()))
            names = build_names(endpoints) | self._api_server
            if names != written:
                self._runtime.set_names(names)
                written = names
            await self._node_ports.update(self._services.values(), endpoints)
            await asyncio.sleep(_PAUSE_S)

    async def _connect(self, to: PodPort) -> socket.socket:
        """Connect a node port to a running pod."""
        worker = self._find_worker(to.namespace, to.pod)
        if worker is None or worker.sandbox is None:
            raise ConnectionRefusedError(f"pod {to.namespace}/{to.pod} does not run here")
        return await self._runtime.connect(worker.sandbox, to.port, _CONNECT_S)
