"""Node object, Node status and Lease as a kubelet writes them.

Takes a node's name, its capacity and the time; returns the objects. CPU, memory and the number of pods are for the
scheduler only: nothing is enforced. Pure; written every 10 s by node_lease.py.
"""

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from raytide_sandbox.rfc3339 import format_time

KUBELET_VERSION: Final = "v1.35.0"
LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_DURATION_S: Final = 40
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_CONDITIONS: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """Properties of one node."""

    name: str
    address: str
    kubelet_port: int
    capacity: Mapping[str, str]
    runtime_name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()


def build_capacity(cpu: str, memory: str, pods: int) -> dict[str, str]:
    """Capacity of a node, which is also its allocatable."""
    return {"cpu": cpu, "memory": memory, "pods": str(pods), "ephemeral-storage": "100Gi"}


def build_node(facts: NodeFacts) -> dict[str, Any]:
    """The Node object to create."""
    architecture = _architecture()
    labels = {
        "kubernetes.io/hostname": facts.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture,
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": architecture,
    }
    spec = {"taints": [dict(taint) for taint in facts.taints]} if facts.taints else {}
    metadata = {"name": facts.name, "labels": {**labels, **facts.labels}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}


def build_node_status(facts: NodeFacts, since: datetime, now: datetime) -> dict[str, Any]:
    """The Node status; `since` is when this kubelet became ready."""
    capacity = dict(facts.capacity)
    return {
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": [
            {
                "type": kind,
                "status": value,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": format_time(now),
                "lastTransitionTime": format_time(since),
            }
            for kind, value, reason, message in _CONDITIONS
        ],
        "addresses": [
            {"type": "InternalIP", "address": facts.address},
            {"type": "Hostname", "address": facts.name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": facts.kubelet_port}},
        "nodeInfo": {
            "architecture": _architecture(),
            "operatingSystem": "linux",
            "kernelVersion": platform.release(),
            "osImage": "Raytide sandbox",
            "containerRuntimeVersion": facts.runtime_name,
            "kubeletVersion": KUBELET_VERSION,
            "kubeProxyVersion": "",
            "machineID": facts.name,
            "systemUUID": facts.name,
            "bootID": facts.name,
        },
    }


def build_lease(name: str, uid: str, now: datetime) -> dict[str, Any]:
    """The whole Lease, owned by its Node."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
        "spec": build_lease_spec(name, now),
    }


def build_lease_spec(name: str, now: datetime) -> dict[str, Any]:
    """The spec of the node's Lease, renewed at `now`."""
    return {
        "holderIdentity": name,
        "leaseDurationSeconds": LEASE_DURATION_S,
        "renewTime": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }


def _architecture() -> str:
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)
