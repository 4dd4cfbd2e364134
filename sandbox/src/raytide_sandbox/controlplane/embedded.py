"""Embedded plane: the emulated API server and its controllers.

Input: a listening socket, an address for pods and a clock. Keeps every object in memory, serves the API there and
inside the pod network, and runs the controllers after every burst of changes. One account stands for all nodes, since
there is no authorisation. One of the two planes that raytide_sandbox/cluster.py can run.
"""

import asyncio
import importlib.resources
import random
import secrets
import socket
import ssl
import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec
import yaml
from aiohttp import web

from raytide_sandbox.apiserver.http import application
from raytide_sandbox.apiserver.kubelet_proxy import Kubelets
from raytide_sandbox.apiserver.request_response import Request
from raytide_sandbox.apiserver.routes import Api, Response
from raytide_sandbox.apiserver.store import Store
from raytide_sandbox.apiserver.tokens import Tokens
from raytide_sandbox.certificates import Certificates, Identity, make_certificates
from raytide_sandbox.controllers.manager import Controllers
from raytide_sandbox.controlplane.interface import CRD_PATH, SERVER_NAMES, NodeAccount
from raytide_sandbox.kubelet.apiclient import ApiAccess, Manifest
from raytide_sandbox.kubelet.server import RequestAuthenticator

ADMIN: Final = "kubernetes-admin"
KUBELET: Final = "system:node:sandbox"
TOKEN_LIFE_S: Final = 365 * 24 * 3600
API_SERVICE: Final = "kubernetes"
API_SERVICE_ADDRESS: Final = "10.96.0.1"
HTTPS_PORT: Final = 443
_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_SHUTDOWN_TIMEOUT_S: Final = 0.2


class EmbeddedPlane:
    """The emulator (see docs/sandbox.md)."""

    audit_log = None

    def __init__(
        self,
        listener: socket.socket,
        *,
        node_address: str,
        has_crds: bool,
        now: Callable[[], datetime],
        volumes: Path | None = None,
    ) -> None:
        self.server = f"https://127.0.0.1:{listener.getsockname()[1]}"
        self.tokens = Tokens(secrets.token_bytes(32), now=now)
        self.admin_token = self.tokens.mint_for(ADMIN, life_s=TOKEN_LIFE_S)
        self._kubelet_token = secrets.token_urlsafe(32)
        self.store = Store(now=now, new_uid=lambda: str(uuid.uuid4()))
        self.api = Api(self.store, new_suffix=_new_suffix, mint_token=self.tokens.mint, authenticate=self.tokens.user)
        self.certificates = make_certificates(now(), [*SERVER_NAMES, API_SERVICE_ADDRESS, node_address])
        self._controllers = Controllers(self.store, authority=self.certificates.authority.decode(), volumes=volumes)
        self._listener = listener
        self._node_address = node_address
        self._has_crds = has_crds
        self._now = now
        self._changed = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self.store.subscribe(lambda _: self._changed.set())

    @property
    def authority(self) -> bytes:
        """See `Plane`."""
        return self.certificates.authority

    @property
    def router_access(self) -> ApiAccess:
        """See `Plane`."""
        return ApiAccess(
            base_url=self.server,
            token=self.tokens.mint_for(KUBELET, life_s=TOKEN_LIFE_S),
            authority_pem=self.authority.decode(),
        )

    async def start(self, in_cluster_listener: socket.socket, *, timeout_s: float) -> None:  # noqa: ARG002 - it waits for nothing
        """See `Plane`."""
        self._create_kubernetes_service(in_cluster_listener.getsockname()[1])
        if self._has_crds:
            self._install_crds()
        self._step()
        kubelets = Kubelets(token=self._kubelet_token)
        app = application(self.api, authenticate=self.tokens.user, kubelets=kubelets)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_TIMEOUT_S)
        await self._runner.setup()
        context = _server_context(self.certificates)
        for listener in (self._listener, in_cluster_listener):
            await web.SockSite(self._runner, listener, ssl_context=context).start()

    def node_accounts(self, node_names: Sequence[str]) -> list[NodeAccount]:
        """One account for all nodes."""
        return [NodeAccount(tuple(node_names), self.router_access, RequestAuthenticator(token=self._kubelet_token))]

    async def settle(self, node_names: Sequence[str]) -> None:
        """Return at once: a node is schedulable as soon as it exists."""

    def complete(
        self, services: Iterable[Manifest], endpoints: Iterable[Manifest], pods: Iterable[Manifest]
    ) -> Iterable[Manifest]:
        """The given Endpoints: this API stores all of them."""
        del services, pods
        return endpoints

    async def run(self) -> NoReturn:
        """Run the controllers after each burst of changes, and when one has requested to run again."""
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

    async def stop(self) -> None:
        """See `Plane`."""
        if self._runner is not None:
            await self._runner.cleanup()

    def _step(self) -> datetime | None:
        wakeup = self._controllers.step(self._now())
        self.api.finish_definitions()
        return wakeup

    # --- first objects ---------------------------------------------------------------------------------------------------
    def _create_kubernetes_service(self, port: int) -> None:
        """Create the service by which pods find the API server: `kubernetes.default.svc`."""
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
            "addresses": [{"ip": self._node_address}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        }
        self.store.create("services", {"metadata": metadata, "spec": spec, "status": {"loadBalancer": {}}})
        self.store.create("endpoints", {"metadata": dict(metadata), "subsets": [subset]})

    def _install_crds(self) -> None:
        """Create every CRD that comes with Raytide."""
        for name, manifest in shipped_crds():
            answer = self.api.handle(Request("POST", CRD_PATH, body=msgspec.json.encode(manifest)))
            if not isinstance(answer, Response) or answer.status != 201:
                raise RuntimeError(f"{name} is rejected by the API server: {answer}")


def shipped_crds() -> list[tuple[str, Manifest]]:
    """File name and object of every CRD that comes with Raytide."""
    folder = importlib.resources.files("raytide") / "crds"
    files = sorted(folder.iterdir(), key=lambda file: file.name) if folder.is_dir() else []
    return [
        (file.name, yaml.load(file.read_bytes(), Loader=_Loader))  # noqa: S506 - a safe loader
        for file in files
        if file.name.endswith(".yaml")
    ]


_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _new_suffix() -> str:
    return "".join(random.choices(_SUFFIX_LETTERS, k=5))  # noqa: S311 - names, not secrets


def _server_context(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    Identity(certificates.server, certificates.server_key).load_into(context)
    return context
