"""Configuration of the kind cluster, as values.

Input: e2e/kind.yaml and, if the nodes are of the image of kind_image.py, what they need in addition. Output: the configuration that
kind reads, and the routes between the pods of these nodes, which do not have kind's network plugin. Does no I/O. Used by
kind_cluster.py.
"""

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

KIND_YAML = Path(__file__).resolve().parents[2] / "e2e" / "kind.yaml"
AUDIT_FOLDER = "AUDIT_FOLDER"
"""Placeholder in e2e/kind.yaml for the folder of the audit log."""
CONTAINERD = "/var/lib/containerd"
SYSFS = ("/sys/devices/system/cpu", "/sys/devices/system/node")
"""Folders of the root of Docker that are mounted in nodes; the kubelet counts CPUs in them (node_root.py)."""


def socket_of(work: Path) -> Path:
    """Path on the machine of the socket of a daemon with this folder."""
    return work / "var" / "docker.sock"


def containerd_folder(number: int) -> Path:
    """Path in the root of the daemon of the containerd folder of one node."""
    return Path("/var/lib/kind", str(number), "containerd")


@dataclass(frozen=True)
class OwnNodes:
    """What nodes of the image of kind_image.py need in addition to e2e/kind.yaml."""

    containerd: tuple[str, ...]
    """Per node a folder in the root of Docker with the images that its containerd has from the start."""
    has_cgroup_v1: bool
    sysfs: tuple[str, ...] = SYSFS
    """Those of `SYSFS` that exist on the machine."""

    @property
    def patches(self) -> list[str]:
        """Patches of kubeadm's configuration."""
        found: list[dict[str, Any]] = [
            # The data of etcd is deleted with the cluster.
            {"kind": "ClusterConfiguration", "etcd": {"local": {"extraArgs": {"unsafe-no-fsync": "true"}}}}
        ]
        if self.has_cgroup_v1:
            found.append({"kind": "KubeletConfiguration", "failCgroupV1": False})
        return [yaml.safe_dump(patch) for patch in found]


def cluster(text: str, audit_folder: str, own: OwnNodes | None = None) -> dict[str, Any]:
    """The configuration in this text of e2e/kind.yaml; `audit_folder` is a path in the root of Docker."""
    made: dict[str, Any] = copy.deepcopy(yaml.safe_load(text))
    for node in made["nodes"]:
        for mount in node.get("extraMounts", []):
            if mount["hostPath"] == AUDIT_FOLDER:
                mount["hostPath"] = audit_folder
    if own is not None:
        made["kubeadmConfigPatches"] = own.patches
        made["networking"] = {
            "disableDefaultCNI": True
        }  # the image has a CNI configuration; kind's plugin is in an image of a registry
        for node, folder in zip(made["nodes"], own.containerd, strict=True):
            mounts = [{"hostPath": folder, "containerPath": CONTAINERD}]
            mounts += [{"hostPath": path, "containerPath": path, "readOnly": True} for path in own.sysfs]
            node["extraMounts"] = [*node.get("extraMounts", []), *mounts]
    return made


def node_count(text: str) -> int:
    """Number of nodes in this text of e2e/kind.yaml."""
    return len(yaml.safe_load(text)["nodes"])


@dataclass(frozen=True)
class Route:
    """A route on `node` to the pods of another node."""

    node: str
    pods: str
    """Pod CIDR of the other node."""
    gateway: str

    @property
    def command(self) -> list[str]:
        """The command that sets it, to be run on `node`."""
        return ["ip", "route", "replace", self.pods, "via", self.gateway]


def routes(nodes: Iterable[dict[str, Any]]) -> list[Route]:
    """The routes between all pairs of these nodes; raises LookupError while a node has no pod CIDR."""
    found = [(node["metadata"]["name"], node["spec"]["podCIDR"], _address(node)) for node in nodes]
    return [Route(node, pods, address) for node, _, _ in found for other, pods, address in found if other != node]


def _address(node: dict[str, Any]) -> str:
    addresses = {each["type"]: each["address"] for each in node["status"]["addresses"]}
    found: str = addresses["InternalIP"]
    return found
