"""The sandbox cluster: an API server, controllers and kubelets on one event loop.

Takes settings, a pod runtime and a plane (the API with its controllers, see raytide_sandbox/controlplane/interface.py). Serves
the API on the host and in the pod network, runs one kubelet per node and publishes service addresses to pods. All parts
run in one task group: when one of them ends, all end. Objects are gone with the cluster. Run by main.py.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Final, NoReturn

from raytide_sandbox.container_runtime.interface import Mode, Runtime
from raytide_sandbox.controlplane.interface import STALLED_S, NodeAccount, Plane
from raytide_sandbox.daemonize import Settings
from raytide_sandbox.kubeconfig import build_kubeconfig
from raytide_sandbox.kubelet.apiclient import Manifest
from raytide_sandbox.kubelet.kube_proxy import ServiceRouter
from raytide_sandbox.kubelet.kubelet import Kubelet, KubeletConfig
from raytide_sandbox.kubelet.podworker import PodWorker

HTTPS_PORT: Final = 443

_log = logging.getLogger("raytide_sandbox")


class StoppedError(Exception):
    """The cluster was asked to stop."""


class NodesNotReadyError(Exception):
    """Kubelets or controllers make no progress, or not in time; the log of the sandbox has theirs."""


class Cluster:
    """One sandbox cluster; `run` starts it and returns when it has stopped."""

    def __init__(
        self, settings: Settings, runtime: Runtime, plane: Plane, *, directory: Path, now: Callable[[], datetime]
    ) -> None:
        """`directory` holds the files of pods; its path should be short, because socket paths are limited."""
        self.settings = settings
        self.runtime = runtime
        self.plane = plane
        self._directory = directory
        self._now = now
        self._kubelets: list[Kubelet] = []

    def kubeconfig(self) -> str:
        """The administrator's kubeconfig as YAML."""
        plane = self.plane
        return build_kubeconfig(server=plane.server, authority=plane.authority, token=plane.admin_token)

    async def run(self, stopping: asyncio.Event, on_ready: Callable[[], None]) -> NoReturn:
        """Run until `stopping` is set or a part fails; raises an ExceptionGroup of `StoppedError` or of the failure."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._stop(stopping))
                await self._start(group)
                on_ready()
        finally:
            await self.plane.stop()
        raise StoppedError

    async def _start(self, group: asyncio.TaskGroup) -> None:
        """Start the plane, then the router and the kubelets; returns when pods can be scheduled."""
        ends_at = asyncio.get_running_loop().time() + self.settings.timeout_s
        inside = await self.runtime.listen_inside(HTTPS_PORT if self.runtime.mode is Mode.NS else 0)
        port = inside.getsockname()[1]
        await self.plane.start(inside, timeout_s=self.settings.timeout_s)
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
        registered: dict[str, asyncio.Event] = {}
        for number, account in enumerate(self.plane.node_accounts(names)):
            config = self._kubelet_config(account, self._directory / str(number), port, router.on_pods_changed)
            kubelet = Kubelet(config, self.runtime, self._now)
            self._kubelets.append(kubelet)
            event = registered[", ".join(account.node_names)] = asyncio.Event()
            group.create_task(_for_ever(kubelet.run(event), "the kubelet"))
        await self._nodes_ready(names, registered, ends_at)

    async def _nodes_ready(self, names: list[str], registered: dict[str, asyncio.Event], ends_at: float) -> None:
        """Return when pods can be scheduled on all nodes; raises NodesNotReadyError."""
        waits_for = ""
        try:
            async with asyncio.timeout_at(ends_at):
                for part, event in registered.items():
                    waits_for = part
                    async with asyncio.timeout(STALLED_S):
                        await event.wait()
                waits_for = "the controllers, which take the initial taints from nodes"
                await self.plane.settle(names)
        except TimeoutError:
            if asyncio.get_running_loop().time() < ends_at:
                raise NodesNotReadyError(f"no node has registered for {STALLED_S:g} s; missing: {waits_for}") from None
            limit = f"was not ready within {self.settings.timeout_s:g} s (--timeout)"
            raise NodesNotReadyError(f"the sandbox {limit}; waiting for {waits_for}") from None

    async def _stop(self, stopping: asyncio.Event) -> NoReturn:
        await stopping.wait()
        _log.info("asked to end")
        raise StoppedError

    def _kubelet_config(
        self, account: NodeAccount, directory: Path, service_port: int, on_pods: Callable[[], None]
    ) -> KubeletConfig:
        return KubeletConfig(
            access=account.access,
            directory=directory,
            node_names=account.node_names,
            service_port=service_port,
            authenticator=account.authenticator,
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
