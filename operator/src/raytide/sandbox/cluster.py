"""How do an API server, controllers and kubelets become one cluster on one event loop?

Takes settings, a runtime for pods and a listening socket; serves the API there and inside the pod network, lets the
controllers act after every burst of changes, and gives each node a kubelet. Everything runs in one task group: whatever
ends unasked ends all of it, so there is never half a cluster. Objects live in memory and end with it. Run by main.py.
"""

import asyncio
import importlib.resources
import logging
import os
import random
import secrets
import socket
import ssl
import tempfile
import uuid
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec
import yaml
from aiohttp import web

from raytide.sandbox.apiserver.http import application
from raytide.sandbox.apiserver.messages import Request
from raytide.sandbox.apiserver.routes import Api, Response
from raytide.sandbox.apiserver.store import Store
from raytide.sandbox.apiserver.tokens import Tokens
from raytide.sandbox.apiserver.tunnel import Kubelets
from raytide.sandbox.certificates import Certificates, make_certificates
from raytide.sandbox.controllers import Controllers
from raytide.sandbox.kubeconfig import build_kubeconfig
from raytide.sandbox.kubelet.apiclient import ApiAccess
from raytide.sandbox.kubelet.kubelet import Kubelet, KubeletConfig
from raytide.sandbox.launch import Settings
from raytide.sandbox.node.runtime import Mode, Runtime

ADMIN: Final = "kubernetes-admin"
KUBELET: Final = "system:node:sandbox"
TOKEN_LIFE_S: Final = 365 * 24 * 3600
API_SERVICE: Final = "kubernetes"
API_SERVICE_ADDRESS: Final = "10.96.0.1"
HTTPS_PORT: Final = 443
SERVER_NAMES: Final = (
    "127.0.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
CRD_PATH: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NODES_READY_S: Final = 20.0
_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_GOODBYE_S: Final = 0.2

_log = logging.getLogger("raytide.sandbox")


class Stopped(Exception):  # noqa: N818 - a way to end, not an error
    """Somebody asked the cluster to end."""


class Cluster:
    """One sandbox cluster; `run` is its whole life."""

    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        listener: socket.socket,
        *,
        directory: Path,
        now: Callable[[], datetime],
    ) -> None:
        """`directory` is for the files of pods; its path should be short."""
        self.settings = settings
        self.runtime = runtime
        self.server = f"https://127.0.0.1:{listener.getsockname()[1]}"
        self.tokens = Tokens(secrets.token_bytes(32), now=now)
        self.admin_token = self.tokens.mint_for(ADMIN, life_s=TOKEN_LIFE_S)
        self._kubelet_token = secrets.token_urlsafe(32)
        self.store = Store(now=now, new_uid=lambda: str(uuid.uuid4()))
        self.api = Api(self.store, new_suffix=_new_suffix, mint_token=self.tokens.mint, authenticate=self.tokens.user)
        self.certificates = make_certificates(now(), [*SERVER_NAMES, API_SERVICE_ADDRESS, runtime.node_address])
        self._controllers = Controllers(self.store, authority=self.certificates.authority.decode())
        self._listener = listener
        self._directory = directory
        self._now = now
        self._changed = asyncio.Event()
        self.store.subscribe(lambda _: self._changed.set())

    def kubeconfig(self) -> str:
        """For the administrator."""
        return build_kubeconfig(server=self.server, authority=self.certificates.authority, token=self.admin_token)

    async def run(self, stopping: asyncio.Event, on_ready: Callable[[], None]) -> NoReturn:
        """Run until `stopping` is set (an ExceptionGroup of `Stopped`) or something fails (of that)."""
        inside = await self.runtime.listen_inside(HTTPS_PORT if self.runtime.mode is Mode.NS else 0)
        self._create_api_service(inside.getsockname()[1])
        if self.settings.has_crds:
            self._install_crds()
        self._step()
        runner = await self._serve(self._listener, inside)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._stop(stopping))
                group.create_task(self._run_controllers())
                registered = asyncio.Event()
                group.create_task(_for_ever(self._kubelet(inside.getsockname()[1]).run(registered), "the kubelet"))
                async with asyncio.timeout(NODES_READY_S):
                    await registered.wait()
                on_ready()
        finally:
            await runner.cleanup()
        raise Stopped

    # --- the parts -----------------------------------------------------------------------------------------------------
    async def _serve(self, *listeners: socket.socket) -> web.AppRunner:
        kubelets = Kubelets(token=self._kubelet_token)
        app = application(self.api, authenticate=self.tokens.user, kubelets=kubelets)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_GOODBYE_S)
        await runner.setup()
        context = _server_context(self.certificates)
        for listener in listeners:
            await web.SockSite(runner, listener, ssl_context=context).start()
        return runner

    async def _run_controllers(self) -> NoReturn:
        """Act on each burst of changes, and when a controller asked to be woken."""
        while True:
            self._changed.clear()
            wakeup = self._step()
            delay_s = None if wakeup is None else max(0.0, (wakeup - self._now()).total_seconds())
            try:
                async with asyncio.timeout(delay_s):
                    await self._changed.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(0)

    def _step(self) -> datetime | None:
        wakeup = self._controllers.step(self._now())
        self.api.finish_definitions()
        return wakeup

    async def _stop(self, stopping: asyncio.Event) -> NoReturn:
        await stopping.wait()
        _log.info("asked to end")
        raise Stopped

    def _kubelet(self, service_port: int) -> Kubelet:
        settings = self.settings
        config = KubeletConfig(
            access=ApiAccess(
                base_url=self.server,
                token=self.tokens.mint_for(KUBELET, life_s=TOKEN_LIFE_S),
                authority_pem=self.certificates.authority.decode(),
            ),
            directory=self._directory,
            node_names=tuple(f"sandbox-{number}" for number in range(1, settings.nodes + 1)),
            service_port=service_port,
            serving_token=self._kubelet_token,
            cpu=settings.node_cpu,
            memory=settings.node_memory,
        )
        return Kubelet(config, self.runtime, self._now)

    # --- first objects ---------------------------------------------------------------------------------------------------
    def _create_api_service(self, port: int) -> None:
        """The API server as pods find it: `kubernetes.default.svc`."""
        metadata = {
            "name": API_SERVICE,
            "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        }
        ports = [{"name": "https", "port": HTTPS_PORT, "protocol": "TCP", "targetPort": port}]
        spec = {
            "type": "ClusterIP",
            "clusterIP": API_SERVICE_ADDRESS,
            "clusterIPs": [API_SERVICE_ADDRESS],
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster",
            "sessionAffinity": "None",
            "ports": ports,
        }
        subset = {
            "addresses": [{"ip": self.runtime.node_address}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        }
        self.store.create("services", {"metadata": metadata, "spec": spec, "status": {"loadBalancer": {}}})
        self.store.create("endpoints", {"metadata": dict(metadata), "subsets": [subset]})

    def _install_crds(self) -> None:
        """Every CRD that comes with Raytide."""
        folder = importlib.resources.files("raytide") / "crds"
        for file in sorted(folder.iterdir(), key=lambda file: file.name) if folder.is_dir() else ():
            if file.name.endswith(".yaml"):
                body = msgspec.json.encode(yaml.load(file.read_bytes(), Loader=_Loader))  # noqa: S506 - a safe loader
                answer = self.api.handle(Request("POST", CRD_PATH, body=body))
                if not isinstance(answer, Response) or answer.status != 201:
                    raise RuntimeError(f"{file.name} is refused by the API server: {answer}")


_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


async def _for_ever(work: Awaitable[object], what: str) -> NoReturn:
    await work
    raise RuntimeError(f"{what} ended by itself")


def _new_suffix() -> str:
    return "".join(random.choices(_SUFFIX_LETTERS, k=5))  # noqa: S311 - names, not secrets


def _server_context(certificates: Certificates) -> ssl.SSLContext:
    """The key reaches OpenSSL through a file that has no name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryFile() as file:
        file.write(certificates.server + certificates.server_key)
        file.flush()
        context.load_cert_chain(f"/proc/{os.getpid()}/fd/{file.fileno()}")
    return context
