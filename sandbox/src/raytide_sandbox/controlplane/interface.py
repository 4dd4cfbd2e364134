"""Plane: the interface of an API server with its controllers, as the rest of the sandbox uses it.

`Plane` is the seam between a cluster's API (embedded.py: an emulator with its controllers; kubernetes.py: real
Kubernetes components) and everything else that raytide_sandbox/cluster.py starts. A plane issues the credentials of kubelets
and its own towards them; it serves clients on loopback and pods on a socket in their network. It guarantees that none
of its parts runs any more when `stop` has returned.
"""

import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn, Protocol

from raytide_sandbox.kubelet.apiclient import ApiAccess, Manifest
from raytide_sandbox.kubelet.server import RequestAuthenticator

CRD_PATH: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
STALLED_S: Final = 60.0
"""A start ends if the part that is starting makes no progress for so long: no CPU time, log line or registered node."""
SERVER_NAMES: Final = (
    "127.0.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


@dataclass(frozen=True, slots=True)
class NodeAccount:
    """One kubelet of this API: the nodes it may act for, its credentials, and the authentication of its server."""

    node_names: tuple[str, ...]
    access: ApiAccess
    authenticator: RequestAuthenticator


class Plane(Protocol):
    """An API server with its controllers."""

    @property
    def server(self) -> str:
        """Its URL on this machine, once it is started."""
        ...

    @property
    def authority(self) -> bytes:
        """PEM of the authority that signed its certificate."""
        ...

    @property
    def admin_token(self) -> str:
        """The bearer token of the administrator."""
        ...

    @property
    def router_access(self) -> ApiAccess:
        """Access for the component that routes pods' connections to services."""
        ...

    @property
    def audit_log(self) -> Path | None:
        """The file in which every request is logged, if it is."""
        ...

    async def start(self, in_cluster_listener: socket.socket, *, timeout_s: float) -> None:
        """Serve clients on loopback and pods on `in_cluster_listener`; returns when objects can be created.

        Raises ControlPlaneError, with the end of a component's log, if one ends, stalls or is not ready within `timeout_s`.
        """
        ...

    def node_accounts(self, node_names: Sequence[str]) -> list[NodeAccount]:
        """The kubelets that this API needs for these nodes."""
        ...

    async def settle(self, node_names: Sequence[str]) -> None:
        """Return when pods can be scheduled on the registered nodes."""
        ...

    def complete(
        self, services: Iterable[Manifest], endpoints: Iterable[Manifest], pods: Iterable[Manifest]
    ) -> Iterable[Manifest]:
        """The Endpoints to use, where this API cannot store all of them."""
        ...

    async def run(self) -> NoReturn:
        """Run its controllers until cancelled; raises when a part of it is lost."""
        ...

    async def stop(self) -> None:
        """Stop it; does nothing if it never started."""
        ...
