"""Configuration of the kind cluster, as values.

Input: e2e/kind.yaml and, where the nodes are of an image made here (kind_image.py), what such nodes need in addition.
Output: the configuration that kind reads, and the routes between the pods of these nodes, which kind's own network would
set. Does no I/O. Used by kind_cluster.py.
"""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

KIND_YAML = Path(__file__).resolve().parents[2] / "e2e" / "kind.yaml"
AUDIT_FOLDER = "AUDIT_FOLDER"
"""What e2e/kind.yaml has in place of the folder of the audit log."""
CONTAINERD = "/var/lib/containerd"
SYSFS = ("/sys/devices/system/cpu", "/sys/devices/system/node")
"""Folders of the root of Docker that a node sees at the same path; they tell the number of processors (node_root.py)."""


def socket_of(work: Path) -> Path:
    """The socket of a daemon with this folder, as the machine sees it."""
    return work / "var" / "docker.sock"


def containerd_folder(number: int) -> Path:
    """The folder of the containerd of one node, in the daemon's root."""
    return Path("/var/lib/kind", str(number), "containerd")


@dataclass(frozen=True)
class OwnNodes:
    """What the nodes of an image made here need in addition to e2e/kind.yaml."""

    containerd: tuple[str, ...]
    """A folder per node with the images that its containerd has from the start, where Docker sees it."""
    has_cgroup_v1: bool
    sysfs: tuple[str, ...] = SYSFS
    """Those of `SYSFS` that the machine has."""

    @property
    def patches(self) -> list[str]:
        """Patches of kubeadm's configuration."""
        found: list[dict[str, Any]] = [
            # The data of etcd is gone with the cluster anyway.
            {"kind": "ClusterConfiguration", "etcd": {"local": {"extraArgs": {"unsafe-no-fsync": "true"}}}}
        ]
        if self.has_cgroup_v1:
            found.append({"kind": "KubeletConfiguration", "failCgroupV1": False})
        return [yaml.safe_dump(patch) for patch in found]


def cluster(text: str, audit_folder: str, own: OwnNodes | None = None) -> dict[str, Any]:
    """The configuration in this text of e2e/kind.yaml, with the folder of the audit log as Docker sees it."""
    made: dict[str, Any] = copy.deepcopy(yaml.safe_load(text))
    for node in made["nodes"]:
        for mount in node.get("extraMounts", []):
            if mount["hostPath"] == AUDIT_FOLDER:
                mount["hostPath"] = audit_folder
    if own is not None:
        made["kubeadmConfigPatches"] = own.patches
        made["networking"] = {"disableDefaultCNI": True}  # the image has a network, kind's is in images of its own
        for node, folder in zip(made["nodes"], own.containerd, strict=True):
            mounts = [{"hostPath": folder, "containerPath": CONTAINERD}]
            mounts += [{"hostPath": path, "containerPath": path, "readOnly": True} for path in own.sysfs]
            node["extraMounts"] = [*node.get("extraMounts", []), *mounts]
    return made


def node_count(text: str) -> int:
    """The number of nodes in this text of e2e/kind.yaml."""
    return len(yaml.safe_load(text)["nodes"])


@dataclass(frozen=True)
class Route:
    """A route on one node to the pods of another."""

    node: str
    pods: str
    """The other node's range of addresses."""
    gateway: str

    @property
    def command(self) -> list[str]:
        """What `node` runs to have it."""
        return ["ip", "route", "replace", self.pods, "via", self.gateway]


def routes(nodes: Iterable[dict[str, Any]]) -> list[Route]:
    """The routes between each two of these nodes; raises LookupError while one has no pod addresses yet."""
    places = [(node["metadata"]["name"], node["spec"]["podCIDR"], _address(node)) for node in nodes]
    return list(_routes(places))


def _routes(places: list[tuple[str, str, str]]) -> Iterator[Route]:
    for node, _, _ in places:
        for other, pods, address in places:
            if other != node:
                yield Route(node, pods, address)


def _address(node: dict[str, Any]) -> str:
    addresses = {each["type"]: each["address"] for each in node["status"]["addresses"]}
    found: str = addresses["InternalIP"]
    return found
