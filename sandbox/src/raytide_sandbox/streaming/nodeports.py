"""Node ports: listeners on loopback that forward to the ready pods of services.

Input: Services and Endpoints as raw objects. Keeps one listener for each NodePort; its connections go to the ready pods
of the service in turn. A port that another program holds is logged, and tried again when the node ports of services
change. TCP on 127.0.0.1 only, because the sandbox serves only this machine. Kept up to date by kubelet.py.
"""

import contextlib
import itertools
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from raytide_sandbox.streaming.network_relay import relay

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodePort:
    """One port of one service, as the service names it."""

    namespace: str
    service: str
    port_name: str


@dataclass(frozen=True, slots=True)
class PodPort:
    """The target of a connection."""

    namespace: str
    pod: str
    port: int


Connect = Callable[[PodPort], Awaitable[socket.socket]]
"""A socket to that port of that pod; raises OSError."""


def wanted_node_ports(services: Iterable[Mapping[str, Any]]) -> dict[int, NodePort]:
    """Node port -> the service's port, for all services with TCP node ports."""
    wanted: dict[int, NodePort] = {}
    for service in services:
        metadata = service["metadata"]
        for port in service["spec"].get("ports") or ():
            if port.get("nodePort") and port.get("protocol", "TCP") == "TCP":
                wanted[port["nodePort"]] = NodePort(metadata["namespace"], metadata["name"], port.get("name", ""))
    return wanted


def ready_pods(endpoints: Iterable[Mapping[str, Any]], node_port: NodePort) -> list[PodPort]:
    """The ready pods behind the node port, in the order of Endpoints."""
    namespace, service = node_port.namespace, node_port.service
    found: list[PodPort] = []
    for subject in endpoints:
        if (subject["metadata"]["namespace"], subject["metadata"]["name"]) != (namespace, service):
            continue
        for subset in subject.get("subsets") or ():
            ports = [p["port"] for p in subset.get("ports") or () if p.get("name", "") == node_port.port_name]
            pods = [a["targetRef"]["name"] for a in subset.get("addresses") or () if a.get("targetRef")]
            found += [PodPort(namespace, pod, port) for pod in pods for port in ports]
    return found


class NodePorts:
    """The listeners on this machine."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._endpoints: list[Mapping[str, Any]] = []
        self._open: dict[int, contextlib.AsyncExitStack] = {}
        self._wanted: dict[int, NodePort] = {}
        self._turns = itertools.count()

    async def update(self, services: Iterable[Mapping[str, Any]], endpoints: Iterable[Mapping[str, Any]]) -> None:
        """Open and close listeners to match the services."""
        self._endpoints = list(endpoints)
        wanted = wanted_node_ports(services)
        if wanted == self._wanted:
            return
        self._wanted = wanted
        for port in self._open.keys() - wanted.keys():
            await self._open.pop(port).aclose()
        for port in wanted.keys() - self._open.keys():
            await self._listen(port)

    async def close(self) -> None:
        """Close all listeners."""
        while self._open:
            await self._open.popitem()[1].aclose()

    async def _listen(self, port: int) -> None:
        stack = contextlib.AsyncExitStack()
        try:
            await stack.enter_async_context(relay(lambda: self._to_a_pod(port), port=port))
        except OSError as error:
            _log.warning("node port %d cannot be served on this machine: %s", port, error)
            return
        self._open[port] = stack

    async def _to_a_pod(self, port: int) -> socket.socket:
        pods = ready_pods(self._endpoints, self._wanted[port]) if port in self._wanted else []
        if not pods:
            raise ConnectionRefusedError(f"no ready pod behind node port {port}")
        return await self._connect(pods[next(self._turns) % len(pods)])
