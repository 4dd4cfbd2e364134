"""Kubernetes plane: a real control plane as the API of a sandbox.

Starts one (processes.py) in a directory of the sandbox, lets pods reach it by a relay in their network, and gives every
node a certificate of its own, so that the Node authorizer restricts each kubelet to its node. Kubelets serve HTTPS with
certificates of a separate authority, and only the API server has a client certificate for them. When a component of the
control plane ends, `run` raises and the sandbox ends. One of the two planes of raytide_sandbox/cluster.py.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NoReturn

import yaml

from raytide_sandbox.certificates import Authority
from raytide_sandbox.container_runtime.interface import Mode, Runtime
from raytide_sandbox.controllers.endpoints import build_endpoints, group_by_ports
from raytide_sandbox.controlplane.embedded import shipped_crds
from raytide_sandbox.controlplane.interface import CRD_PATH, NodeAccount
from raytide_sandbox.controlplane.processes import ControlPlane, ControlPlaneError, PlaneSettings, find_binary
from raytide_sandbox.kubeconfig import write_private
from raytide_sandbox.kubelet.apiclient import ApiAccess, ApiClient, ApiStatusError, Manifest
from raytide_sandbox.kubelet.server import RequestAuthenticator
from raytide_sandbox.streaming.egress_proxy import build_egress_configuration, connect_here, egress_proxy
from raytide_sandbox.streaming.network_relay import relay_from

NODES_GROUP: Final = "system:nodes"
NODE_USER: Final = "system:node:"
ROUTER_USER: Final = "system:kube-proxy"
API_SERVER_CLIENT: Final = "kube-apiserver-kubelet-client"
NODE_HOST: Final = "127.0.0.1"
_POLL_S: Final = 0.1
_CHECK_S: Final = 1.0


class KubernetesPlane:
    """etcd, kube-apiserver, kube-controller-manager and kube-scheduler."""

    def __init__(
        self,
        directory: Path,
        runtime: Runtime,
        *,
        scratch: Path,
        port: int,
        has_crds: bool,
        has_audit: bool,
        now: Callable[[], datetime],
    ) -> None:
        """`scratch` is for a socket, so its path should be short; raises ControlPlaneError if there is no binary."""
        self._binary = find_binary()
        self._directory = directory
        self._runtime = runtime
        self._egress = scratch / "egress"
        self._has_crds = has_crds
        self._now = now
        self._kubelets = Authority.create(now(), "raytide-kubelets")
        self._control = ControlPlane(
            directory,
            self._binary,
            PlaneSettings(
                port=port,
                has_audit=has_audit,
                hosts=(runtime.node_address,),
                apiserver_flags=(*self._kubelet_flags(), *self._egress_flags()),
                is_durable=False,
            ),
        )
        self._ends = contextlib.AsyncExitStack()

    @property
    def server(self) -> str:
        """See `Plane`."""
        return self._control.server

    @property
    def authority(self) -> bytes:
        """See `Plane`."""
        return self._control.authority

    @property
    def admin_token(self) -> str:
        """See `Plane`."""
        return self._control.admin_token

    @property
    def audit_log(self) -> Path | None:
        """See `Plane`."""
        return self._control.audit_log if self._control.settings.has_audit else None

    @property
    def router_access(self) -> ApiAccess:
        """Access of a service proxy, which may read services and their endpoints."""
        return self._access(ROUTER_USER)

    # --- lifecycle -------------------------------------------------------------------------------------------------------
    async def start(self, in_cluster_listener: socket.socket, *, timeout_s: float) -> None:
        """See `Plane`."""
        await self._ends.enter_async_context(egress_proxy(self._egress, self._runtime.dial))
        await asyncio.to_thread(self._control.start, timeout_s)
        await self._ends.enter_async_context(relay_from(in_cluster_listener, self._connect))
        if self._has_crds:
            api = ApiClient(self._admin())
            try:
                await _install_crds(api)
            finally:
                await api.close()

    async def _connect(self) -> socket.socket:
        host, _, port = self.server.removeprefix("https://").rpartition(":")
        return await connect_here(host, int(port))

    async def run(self) -> NoReturn:
        """Watch the components; raises ControlPlaneError when one has ended."""
        while True:
            await asyncio.sleep(_CHECK_S)
            self._control.check()

    async def stop(self) -> None:
        """See `Plane`."""
        await self._ends.aclose()
        await asyncio.to_thread(self._control.stop)

    # --- identities ------------------------------------------------------------------------------------------------------
    def node_accounts(self, node_names: Sequence[str]) -> list[NodeAccount]:
        """One kubelet per node: no certificate is valid for more than one."""
        return [
            NodeAccount((name,), self._access(f"{NODE_USER}{name}", NODES_GROUP), self._authenticator(name))
            for name in node_names
        ]

    def _access(self, user: str, group: str = "") -> ApiAccess:
        return ApiAccess(
            base_url=self.server,
            authority_pem=self.authority.decode(),
            identity=self._control.issue_client(user, group),
        )

    def _admin(self) -> ApiAccess:
        return ApiAccess(base_url=self.server, authority_pem=self.authority.decode(), token=self.admin_token)

    def _authenticator(self, node_name: str) -> RequestAuthenticator:
        """HTTPS that requires a certificate of the kubelets' authority."""
        identity = self._kubelets.issue_server(self._now(), f"{NODE_USER}{node_name}", [NODE_HOST, node_name])
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=self._kubelets.certificate.decode())
        context.verify_mode = ssl.CERT_REQUIRED
        identity.load_into(context)
        return RequestAuthenticator(tls=context, client_name=API_SERVER_CLIENT)

    def _kubelet_flags(self) -> tuple[str, ...]:
        """Flags for the addresses of kubelets and the certificates of both sides."""
        client = self._kubelets.issue_client(self._now(), API_SERVER_CLIENT)
        directory = self._directory / "kubelet-client"
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        files = {"ca.crt": self._kubelets.certificate, "client.crt": client.certificate, "client.key": client.key}
        for name, pem in files.items():
            write_private(directory / name, pem.decode())
        return (
            f"--kubelet-certificate-authority={directory}/ca.crt",
            f"--kubelet-client-certificate={directory}/client.crt",
            f"--kubelet-client-key={directory}/client.key",
            "--kubelet-preferred-address-types=InternalIP",
        )

    def _egress_flags(self) -> tuple[str, ...]:
        """Flags that make the API server reach pods by their own addresses, also those behind a service."""
        file = self._directory / "egress.yaml"
        file.write_text(yaml.safe_dump(build_egress_configuration(self._egress)))
        return (f"--egress-selector-config-file={file}", "--enable-aggregator-routing=true")

    # --- nodes and endpoints ---------------------------------------------------------------------------------------------
    async def settle(self, node_names: Sequence[str]) -> None:
        """Wait until the controllers have seen every node Ready and removed its initial taints."""
        api = ApiClient(self._admin())
        try:
            while not _are_schedulable(await api.get("/api/v1/nodes"), node_names):  # noqa: ASYNC110 - of another program
                await asyncio.sleep(_POLL_S)
        finally:
            await api.close()

    def complete(
        self, services: Iterable[Manifest], endpoints: Iterable[Manifest], pods: Iterable[Manifest]
    ) -> Iterable[Manifest]:
        """Resolve selectors here where pods have loopback addresses, which Kubernetes rejects in Endpoints."""
        if self._runtime.mode is Mode.NS:
            return endpoints
        listed = list(pods)
        followed = [_endpoints_of(dict(service), listed) for service in services if service["spec"].get("selector")]
        names = {_key(subject) for subject in followed}
        return [*followed, *(subject for subject in endpoints if _key(subject) not in names)]


def _key(manifest: Manifest) -> tuple[str, str]:
    return manifest["metadata"]["namespace"], manifest["metadata"]["name"]


def _endpoints_of(service: dict[str, Any], pods: Iterable[Manifest]) -> Manifest:
    selector, namespace = service["spec"]["selector"].items(), service["metadata"]["namespace"]
    selected = [
        dict(pod)
        for pod in pods
        if pod["metadata"]["namespace"] == namespace and selector <= (pod["metadata"].get("labels") or {}).items()
    ]
    return build_endpoints(service, group_by_ports(service, selected))


def _are_schedulable(nodes: Manifest, names: Sequence[str]) -> bool:
    good = {node["metadata"]["name"] for node in nodes["items"] if not (node["spec"].get("taints") or ())}
    return good >= set(names)


async def _install_crds(api: ApiClient) -> None:
    """Create all CRDs, then wait until each is served and kubectl finds it."""
    crds = shipped_crds()
    for name, manifest in crds:
        try:
            await api.request("POST", CRD_PATH, body=manifest)
        except ApiStatusError as error:
            if error.status != 409:
                raise ControlPlaneError(f"{name} is rejected by the API server: {error}") from error
    for _, manifest in crds:
        path = f"{CRD_PATH}/{manifest['metadata']['name']}"
        while not _is_established(await api.get(path)):  # noqa: ASYNC110 - of another program
            await asyncio.sleep(_POLL_S)
    # The API server adds a kind to its OpenAPI documents about a second after it is established; until then `kubectl explain`
    # does not know it.
    documents = {f"apis/{manifest['spec']['group']}/v1" for _, manifest in crds}
    while not documents <= (await api.get("/openapi/v3"))["paths"].keys():  # noqa: ASYNC110 - of another program
        await asyncio.sleep(_POLL_S)


def _is_established(crd: Manifest) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
