"""Flags of the control plane's components.

Input: the files (files.py), the ports and the settings. Output: the arguments of etcd, kube-apiserver,
kube-controller-manager and kube-scheduler; flags of the settings come last, so they win. All listen on loopback,
anonymous requests are rejected, and etcd accepts only the API server's certificate. Starts and writes nothing. Used by
processes.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from raytide_sandbox.controlplane.files import CONTROLLERS, SCHEDULER, PlaneFiles
from raytide_sandbox.controlplane.ports import HOST, Ports

ETCD: Final = "etcd"
APISERVER: Final = "kube-apiserver"
PARTS: Final = (ETCD, APISERVER, CONTROLLERS, SCHEDULER)
PEER: Final = "etcd-peer"
"""Name of etcd's second port, which a single member does not use."""
PEER_NAME: Final = "https://127.0.0.1:2380"
"""The peer URL of this member in etcd's data, never changed; it need not be where it listens."""


@dataclass(frozen=True, slots=True)
class PlaneSettings:
    """Settings of a control plane."""

    parts: tuple[str, ...] = PARTS
    """Components in the order of their start; the first two are always needed."""
    port: int = 0
    """Port of the API server; 0: the previous one, or any. If it is taken, the next free one."""
    has_audit: bool = False
    hosts: tuple[str, ...] = ()
    """Further names and addresses at which clients reach the API server."""
    apiserver_flags: tuple[str, ...] = ()
    controller_flags: tuple[str, ...] = ()
    scheduler_flags: tuple[str, ...] = ()
    etcd_flags: tuple[str, ...] = ()
    gogc: int = 100
    """Go's garbage collection target in percent: a smaller one saves memory, a larger one CPU."""
    is_durable: bool = True
    """False: etcd does not wait for the disk; a power failure may lose the cluster, a SIGKILL does not."""


def arguments(component: str, files: PlaneFiles, ports: Ports, settings: PlaneSettings) -> list[str]:
    """The arguments after the component's name on its command line."""
    return _ARGUMENTS[component](files, ports, settings)


def _etcd(files: PlaneFiles, ports: Ports, settings: PlaneSettings) -> list[str]:
    clients, peers = f"https://{HOST}:{ports[ETCD]}", f"https://{HOST}:{ports[PEER]}"
    key_pair = [f"{files.file('storage.crt')}", f"{files.file('storage.key')}"]
    return [
        f"--name={ETCD}",
        f"--data-dir={files.etcd}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={PEER_NAME}",
        f"--initial-cluster={ETCD}={PEER_NAME}",
        *(f"--{prefix}cert-file={key_pair[0]}" for prefix in ("", "peer-")),
        *(f"--{prefix}key-file={key_pair[1]}" for prefix in ("", "peer-")),
        *(f"--{prefix}trusted-ca-file={files.file('storage-ca.crt')}" for prefix in ("", "peer-")),
        *(f"--{prefix}client-cert-auth" for prefix in ("", "peer-")),
        "--enable-grpc-gateway=false",  # it would call etcd with the server's certificate, not a client's
        f"--quota-backend-bytes={8 << 30}",
        "--log-level=warn",
        *([] if settings.is_durable else ["--unsafe-no-fsync"]),
        *settings.etcd_flags,
    ]


def _apiserver(files: PlaneFiles, ports: Ports, settings: PlaneSettings) -> list[str]:
    return [
        f"--bind-address={HOST}",
        f"--secure-port={ports[APISERVER]}",
        f"--tls-cert-file={files.file('apiserver.crt')}",
        f"--tls-private-key-file={files.file('apiserver.key')}",
        f"--etcd-servers=https://{HOST}:{ports[ETCD]}",
        f"--etcd-cafile={files.file('storage-ca.crt')}",
        f"--etcd-certfile={files.file('storage-client.crt')}",
        f"--etcd-keyfile={files.file('storage-client.key')}",
        *_who_is_who(files),
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
        "--allow-privileged=true",
        "--service-cluster-ip-range=10.96.0.0/12",
        f"--advertise-address={HOST}",
        "--endpoint-reconciler-type=none",  # Endpoints may not contain loopback addresses
        "--kubelet-preferred-address-types=InternalIP,Hostname",
        f"--kubelet-client-certificate={files.file('kubelet-client.crt')}",
        f"--kubelet-client-key={files.file('kubelet-client.key')}",
        f"--kubelet-certificate-authority={files.file('cluster-ca.crt')}",
        "--profiling=false",
        "--shutdown-delay-duration=0s",
        *(_audit(files) if settings.has_audit else []),
        *settings.apiserver_flags,
    ]


def _who_is_who(files: PlaneFiles) -> list[str]:
    return [
        "--anonymous-auth=false",
        f"--client-ca-file={files.file('cluster-ca.crt')}",
        f"--token-auth-file={files.file('tokens.csv')}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={files.file('accounts.pub')}",
        f"--service-account-signing-key-file={files.file('accounts.key')}",
        f"--requestheader-client-ca-file={files.file('front-proxy-ca.crt')}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={files.file('front-proxy-client.crt')}",
        f"--proxy-client-key-file={files.file('front-proxy-client.key')}",
    ]


def _audit(files: PlaneFiles) -> list[str]:
    return [
        f"--audit-policy-file={files.file('audit-policy.yaml')}",
        f"--audit-log-path={files.audit_log}",
        "--audit-log-mode=blocking",  # batches would come half a minute late
        "--audit-log-maxsize=100000",  # megabytes; a log that rotates hides what came before
    ]


def _controllers(files: PlaneFiles, ports: Ports, settings: PlaneSettings) -> list[str]:
    return [
        *_serving(CONTROLLERS, files, ports),
        f"--kubeconfig={files.kubeconfig(CONTROLLERS)}",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={files.file('accounts.key')}",
        f"--root-ca-file={files.file('cluster-ca.crt')}",
        f"--cluster-signing-cert-file={files.file('cluster-ca.crt')}",
        f"--cluster-signing-key-file={files.file('cluster-ca.key')}",
        "--kube-api-qps=500",  # with the default of 20, garbage collection of 200 pods takes ten seconds
        "--kube-api-burst=1000",
        *settings.controller_flags,
    ]


def _scheduler(files: PlaneFiles, ports: Ports, settings: PlaneSettings) -> list[str]:
    return [
        *_serving(SCHEDULER, files, ports),
        f"--config={files.file('scheduler.yaml')}",
        *settings.scheduler_flags,
    ]


def _serving(component: str, files: PlaneFiles, ports: Ports) -> list[str]:
    """Flags of the port for health and metrics, for clients that the API server authorizes."""
    return [
        f"--bind-address={HOST}",
        f"--secure-port={ports[component]}",
        f"--tls-cert-file={files.file('components.crt')}",
        f"--tls-private-key-file={files.file('components.key')}",
        f"--authentication-kubeconfig={files.kubeconfig(component)}",
        f"--authorization-kubeconfig={files.kubeconfig(component)}",
        "--profiling=false",
    ]


_ARGUMENTS: Final[Mapping[str, Callable[[PlaneFiles, Ports, PlaneSettings], list[str]]]] = {
    ETCD: _etcd,
    APISERVER: _apiserver,
    CONTROLLERS: _controllers,
    SCHEDULER: _scheduler,
}
