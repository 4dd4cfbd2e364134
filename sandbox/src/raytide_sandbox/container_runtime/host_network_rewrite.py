"""Rewriting of commands and variables for pods that share one network.

In plain mode each pod has a loopback address; the Ray nodes of all pods listen on 127.0.0.1 at ports shifted by ten per
pod. Takes a word of a command or a variable's value; returns it with service names, `localhost:PORT` and volume paths
replaced by their values on this machine, except inside programs or files. Pure; called by host_network.py.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

RAY_PORTS: Final = {6379: 6379, 8265: 8265, 10001: 21001, 52365: 52365}
"""Ray's ports and the bases from which they are shifted; 10002-19999 belong to Ray workers."""

RAY_ADDRESS: Final = "127.0.0.1"
"""Address of every Ray node; with any other one Ray listens on all addresses of the machine (FD:SEC-F2)."""
STEP: Final = 10
MAX_PODS: Final = 160
"""Maximum number of pods; more would shift dashboard ports into those of Ray workers."""

_SERVICE: Final = re.compile(r"\b((?:[a-z0-9-]+\.)+svc(?:\.cluster\.local)?)(?![\w.-])(:\d+)?")
_LOCALHOST: Final = re.compile(r"(?<![\w.-])(?:localhost|127\.0\.0\.1):(\d+)")
_PORT_FLAG: Final = re.compile(r"(--port(?:=|\s+))6379\b")


def moved_port(number: int, index: int) -> int:
    """Actual port of Ray's port `number` in pod `index`; other ports are unchanged."""
    return RAY_PORTS[number] + STEP * index if number in RAY_PORTS else number


def endpoint(ip: str, index: int, port: int) -> tuple[str, int]:
    """Actual address and port of `port` of the pod with this IP and index."""
    return RAY_ADDRESS if port in RAY_PORTS else ip, moved_port(port, index)


def reservation_port(index: int) -> int:
    """Port that a sandbox binds to reserve `index` for its pod; no Ray port is shifted to it."""
    return 6379 + STEP * index + STEP // 2


def service_names(text: str) -> set[str]:
    """The full names of the services that a text contains."""
    return {_full_name(match[1]) for match in _SERVICE.finditer(text)}


def _full_name(name: str) -> str:
    return name if name.endswith(".cluster.local") else name + ".cluster.local"


def localise(
    text: str,
    *,
    ip: str,
    index: int,
    lookup: Callable[[str], Sequence[str]],
    index_by_ip: Mapping[str, int],
    paths: Sequence[tuple[str, str]] = (),
) -> str:
    """Rewrite `text` for the pod with this IP and index; a name without an address stays as it is."""

    def service(match: re.Match[str]) -> str:
        addresses = lookup(_full_name(match[1]))
        if not addresses:
            return match[0]
        return _reached(addresses[0], match[2], index_by_ip)

    # First, because a service name may become 127.0.0.1 with a port of another pod.
    text = _LOCALHOST.sub(lambda match: _joined(endpoint(ip, index, int(match[1]))), text)
    text = _SERVICE.sub(service, text)
    text = _PORT_FLAG.sub(lambda match: match[1] + str(moved_port(6379, index)), text)
    for inside, here in sorted(paths, key=lambda pair: -len(pair[0])):
        text = re.sub(rf"(?<![\w./-]){re.escape(inside)}(?![\w.-])", lambda _, here=here: here, text)  # type: ignore[misc]
    return text


def _reached(ip: str, colon_port: str | None, index_by_ip: Mapping[str, int]) -> str:
    if colon_port is None or ip not in index_by_ip:
        return ip + (colon_port or "")
    return _joined(endpoint(ip, index_by_ip[ip], int(colon_port[1:])))


def _joined(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"
