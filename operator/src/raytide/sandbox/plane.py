"""What do kubelets, pods and people need of an API server, whatever it is?

`Plane` is the seam between a cluster's API (embedded_plane.py: an emulator with its controllers; kubernetes_plane.py: the
real thing) and everything else that cluster.py starts. A plane says who the nodes are to it and how it is known to their
kubelets; it serves itself to people on loopback and to pods on a socket in their network. It promises that nothing of it
runs any more when `stop` has returned.
"""

import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn, Protocol

from raytide.sandbox.kubelet.apiclient import ApiAccess, Manifest
from raytide.sandbox.serving.server import Door

CRD_PATH: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
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
    """One kubelet as this API knows it: the nodes it may speak for, and who may speak to it."""

    node_names: tuple[str, ...]
    access: ApiAccess
    door: Door


class Plane(Protocol):
    """An API server with its controllers."""

    @property
    def server(self) -> str:
        """Its URL on this machine, once it is started."""
        ...

    @property
    def authority(self) -> bytes:
        """PEM of who signed its certificate."""
        ...

    @property
    def admin_token(self) -> str:
        """What the administrator shows."""
        ...

    @property
    def router_access(self) -> ApiAccess:
        """For whoever tells pods where services are."""
        ...

    @property
    def audit_log(self) -> Path | None:
        """Where every request is written down, if it is."""
        ...

    async def start(self, inside: socket.socket) -> None:
        """Serve people, and pods on `inside`; returns when objects can be created."""
        ...

    def node_accounts(self, node_names: Sequence[str]) -> list[NodeAccount]:
        """As many kubelets as this API needs for these nodes."""
        ...

    async def settle(self, node_names: Sequence[str]) -> None:
        """Return when pods can be scheduled on the registered nodes."""
        ...

    def complete(
        self, services: Iterable[Manifest], endpoints: Iterable[Manifest], pods: Iterable[Manifest]
    ) -> Iterable[Manifest]:
        """The Endpoints to go by, where this API cannot say all of them."""
        ...

    async def run(self) -> NoReturn:
        """Do what its controllers do until cancelled; raises when a part of it is lost."""
        ...

    async def stop(self) -> None:
        """End it; harmless when it never started."""
        ...
