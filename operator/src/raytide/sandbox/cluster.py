"""How do an API server and kubelets become one cluster on one event loop?

Takes settings, a runtime for pods and a plane (the API with its controllers, see plane.py); serves the API to people and
inside the pod network, gives each node a kubelet, and tells pods where services are. Everything runs in one task group:
whatever ends unasked ends all of it, so there is never half a cluster. Objects end with it. Run by main.py.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Final, NoReturn

from raytide.sandbox.kubeconfig import build_kubeconfig
from raytide.sandbox.kubelet.apiclient import Manifest
from raytide.sandbox.kubelet.kubelet import Kubelet, KubeletConfig
from raytide.sandbox.kubelet.podworker import PodWorker
from raytide.sandbox.kubelet.servicerouter import ServiceRouter
from raytide.sandbox.launch import Settings
from raytide.sandbox.node.runtime import Mode, Runtime
from raytide.sandbox.plane import NodeAccount, Plane

HTTPS_PORT: Final = 443
NODES_READY_S: Final = 20.0

_log = logging.getLogger("raytide.sandbox")


class Stopped(Exception):  # noqa: N818 - a way to end, not an error
    """Somebody asked the cluster to end."""


class Cluster:
    """One sandbox cluster; `run` is its whole life."""

    def __init__(
        self, settings: Settings, runtime: Runtime, plane: Plane, *, directory: Path, now: Callable[[], datetime]
    ) -> None:
        """`directory` is for the files of pods; its path should be short."""
        self.settings = settings
        self.runtime = runtime
        self.plane = plane
        self._directory = directory
        self._now = now
        self._kubelets: list[Kubelet] = []

    def kubeconfig(self) -> str:
        """For the administrator."""
        plane = self.plane
        return build_kubeconfig(server=plane.server, authority=plane.authority, token=plane.admin_token)

    async def run(self, stopping: asyncio.Event, on_ready: Callable[[], None]) -> NoReturn:
        """Run until `stopping` is set (an ExceptionGroup of `Stopped`) or something fails (of that)."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._stop(stopping))
                await self._start(group)
                on_ready()
        finally:
            await self.plane.stop()
        raise Stopped

    async def _start(self, group: asyncio.TaskGroup) -> None:
        """The plane first, then what needs it; returns when pods can be scheduled."""
        inside = await self.runtime.listen_inside(HTTPS_PORT if self.runtime.mode is Mode.NS else 0)
        port = inside.getsockname()[1]
        await self.plane.start(inside)
        group.create_task(self.plane.run())
        router = ServiceRouter(
            self.plane.router_access,
            self.runtime,
            self._find_worker,
            api_address=self.runtime.node_address,
            complete=self._complete,
        )
        group.create_task(_for_ever(router.run(), "the service router"))
        names = [f"sandbox-{number}" for number in range(1, self.settings.nodes + 1)]
        registered: list[asyncio.Event] = []
        for number, account in enumerate(self.plane.node_accounts(names)):
            config = self._kubelet_config(account, self._directory / str(number), port, router.note_pods)
            kubelet = Kubelet(config, self.runtime, self._now)
            self._kubelets.append(kubelet)
            registered.append(asyncio.Event())
            group.create_task(_for_ever(kubelet.run(registered[-1]), "the kubelet"))
        async with asyncio.timeout(NODES_READY_S):
            for event in registered:
                await event.wait()
            await self.plane.settle(names)

    async def _stop(self, stopping: asyncio.Event) -> NoReturn:
        await stopping.wait()
        _log.info("asked to end")
        raise Stopped

    def _kubelet_config(
        self, account: NodeAccount, directory: Path, service_port: int, on_pods: Callable[[], None]
    ) -> KubeletConfig:
        return KubeletConfig(
            access=account.access,
            directory=directory,
            node_names=account.node_names,
            service_port=service_port,
            door=account.door,
            cpu=self.settings.node_cpu,
            memory=self.settings.node_memory,
            on_pods=on_pods,
        )

    def _find_worker(self, namespace: str, name: str) -> PodWorker | None:
        found = (kubelet.find_worker(namespace, name) for kubelet in self._kubelets)
        return next((worker for worker in found if worker), None)

    def _complete(self, services: Iterable[Manifest], endpoints: Iterable[Manifest]) -> Iterable[Manifest]:
        pods = (pod for kubelet in self._kubelets for pod in kubelet.pods())
        return self.plane.complete(services, endpoints, pods)


async def _for_ever(work: Awaitable[object], what: str) -> NoReturn:
    await work
    raise RuntimeError(f"{what} ended by itself")
