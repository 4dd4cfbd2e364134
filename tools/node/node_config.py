"""Configuration files of the programs of a node, as text.

Input: `NodeConfig`. Output: the configuration of containerd, the pod network, kubelet, kube-proxy and CoreDNS, the objects of the
DNS service, and the flags with which the API server listens on other addresses than loopback. Paths are those in the root of the
node (node_root.py). Does no I/O. Used by node_supervisor.py.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

NODE_ADDRESS = "10.200.0.1"
GATEWAY = "10.200.0.254"
"""No host has this address: with the default route, replies and connections to the API server have a source address."""
PREFIX_LENGTH = 24
POD_NETWORK = "10.244.0.0/24"
DNS_ADDRESS = "10.96.0.10"
DOMAIN = "cluster.local"
RUNTIME_SOCKET = "/run/containerd/containerd.sock"
PAUSE_IMAGE = "localhost/raytide-pause:1"
DNS_USER = "system:coredns"

# Paths in the root of the node:
CONFIGURATION = "/etc/raytide"
PROGRAMS = "/mnt"
CNI_PROGRAMS = "/usr/lib/cni"


@dataclass(frozen=True)
class NodeConfig:
    """Values in the configuration files."""

    name: str
    cgroup: str
    """Name of the cgroup of all pods, without a slash."""
    snapshotter: str
    """Of containerd: `overlayfs` or `native`."""
    may_lower_oom_scores: bool
    iptables: str
    """`nft` or `legacy`."""
    cpus: int
    """Number of CPUs that the node reports."""

    @property
    def path(self) -> str:
        """PATH of the programs, with the iptables of the backend that the kernel supports."""
        return f"{CONFIGURATION}/iptables-{self.iptables}:/usr/sbin:/usr/bin"


def files(config: NodeConfig) -> dict[str, str]:
    """The configuration files by their path below `CONFIGURATION`."""
    return {
        "containerd.toml": containerd(config),
        "cni/10-pods.conflist": json.dumps(pod_network(), indent=1),
        "kubelet.yaml": yaml.safe_dump(kubelet(config)),
        "kube-proxy.yaml": yaml.safe_dump(kube_proxy(config)),
        "Corefile": corefile(),
        "resolv.conf": f"nameserver {DNS_ADDRESS}\n",
    }


def iptables_programs(root: Path) -> dict[str, str]:
    """Symbolic links below `CONFIGURATION`: for each backend, its programs by the names that kube-proxy calls."""
    found = {}
    for backend in ("nft", "legacy"):
        for program in sorted((root / "usr" / "sbin").glob(f"ip*tables-{backend}*")):
            name = program.name.replace(f"-{backend}", "")
            found[f"iptables-{backend}/{name}"] = f"/usr/sbin/{program.name}"
    return found


def containerd(config: NodeConfig) -> str:
    """Text of containerd.toml."""
    restricts = "false" if config.may_lower_oom_scores else "true"
    return f"""\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]

[grpc]
address = "{RUNTIME_SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
restrict_oom_score_adj = {restricts}
enable_unprivileged_ports = true
enable_unprivileged_icmp = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{CNI_PROGRAMS}"
conf_dir = "{CONFIGURATION}/cni"

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{config.snapshotter}"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
"""


def pod_network() -> dict[str, Any]:
    """CNI configuration: a bridge with an address per pod, in hairpin mode for services whose endpoint is their client."""
    addresses = {"type": "host-local", "ranges": [[{"subnet": POD_NETWORK}]], "dataDir": "/var/lib/cni/networks"}
    bridge = {"type": "bridge", "bridge": "cni0", "isDefaultGateway": True, "hairpinMode": True, "ipam": addresses}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}


def kubelet(config: NodeConfig) -> dict[str, Any]:
    """KubeletConfiguration; other fields have their defaults."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_ADDRESS,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{CONFIGURATION}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",  # systemd is not required on the machine
        "cgroupRoot": f"/{config.cgroup}",
        "clusterDNS": [DNS_ADDRESS],
        "clusterDomain": DOMAIN,
        "containerRuntimeEndpoint": f"unix://{RUNTIME_SOCKET}",
        # The disk is shared with the machine: what other programs write must not evict pods or delete images.
        "evictionHard": {
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
            "memory.available": "100Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
        },
        "failCgroupV1": False,
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "registerNode": True,
        "resolvConf": f"{CONFIGURATION}/resolv.conf",
        "tlsCertFile": f"{CONFIGURATION}/kubelet.crt",
        "tlsPrivateKeyFile": f"{CONFIGURATION}/kubelet.key",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
    }


def kube_proxy(config: NodeConfig) -> dict[str, Any]:
    """KubeProxyConfiguration; it leaves the conntrack limits, which are those of the machine, unchanged."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": f"{CONFIGURATION}/kube-proxy.kubeconfig"},
        "clusterCIDR": POD_NETWORK,
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpCloseWaitTimeout": "0s", "tcpEstablishedTimeout": "0s"},
        "hostnameOverride": config.name,
        "mode": "iptables",
    }


def corefile() -> str:
    """The Corefile of kubeadm without forwarding, because the network of the node is isolated."""
    return f"""\
{DOMAIN}:53 in-addr.arpa:53 {{
    bind {NODE_ADDRESS}
    errors
    ready 127.0.0.1:8181
    cache 30
    kubernetes {DOMAIN} in-addr.arpa {{
        kubeconfig {CONFIGURATION}/coredns.kubeconfig
        pods insecure
        ttl 30
    }}
}}
"""


def dns_objects() -> list[dict[str, Any]]:
    """The DNS Service with its endpoint on the node, and the read permissions of CoreDNS."""
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
    rbac = "rbac.authorization.k8s.io"
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system"},
            "spec": {"clusterIP": DNS_ADDRESS, "ports": ports},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "kube-dns-node",
                "namespace": "kube-system",
                "labels": {"kubernetes.io/service-name": "kube-dns"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [NODE_ADDRESS], "conditions": {"ready": True}}],
            "ports": ports,
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": DNS_USER},
            "rules": [
                {"apiGroups": [""], "resources": ["namespaces", "pods", "services"], "verbs": ["list", "watch"]},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
            ],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": DNS_USER},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": DNS_USER},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": DNS_USER}],
        },
    ]


def apiserver_flags() -> tuple[str, ...]:
    """Flags with which the API server listens on all addresses, and is the endpoint of the Service `kubernetes`."""
    return ("--bind-address=0.0.0.0", f"--advertise-address={NODE_ADDRESS}", "--endpoint-reconciler-type=lease")


def commands(config: NodeConfig) -> dict[str, list[str]]:
    """Command line of each program, in the order of their start."""
    return {
        "containerd": ["/usr/bin/containerd", "--config", f"{CONFIGURATION}/containerd.toml"],
        "kubelet": [
            f"{PROGRAMS}/node",
            "kubelet",
            f"--config={CONFIGURATION}/kubelet.yaml",
            f"--kubeconfig={CONFIGURATION}/kubelet.kubeconfig",
            f"--hostname-override={config.name}",
            f"--node-ip={NODE_ADDRESS}",
            "--v=2",
        ],
        "kube-proxy": [f"{PROGRAMS}/node", "kube-proxy", f"--config={CONFIGURATION}/kube-proxy.yaml", "--v=2"],
        "coredns": [f"{PROGRAMS}/coredns", "-conf", f"{CONFIGURATION}/Corefile"],
    }
