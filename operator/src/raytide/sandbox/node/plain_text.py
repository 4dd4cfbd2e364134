"""Which words of a pod must change where all pods share one network?

Pods without a network of their own have a loopback address each; the Rays of all of them listen on 127.0.0.1, at ports that
move by ten for each pod. Text goes in — a command, an argument, a variable — and comes out with service names,
`localhost:PORT` and the pod's volumes replaced by what they are here. Pure. It cannot see names inside programs or files; called by plain.py.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

RAY_PORTS: Final = {6379: 6379, 8265: 8265, 10001: 21001, 52365: 52365}
"""Ray's ports and where they begin to be counted: 10002-19999 belong to its workers."""

RAY_ADDRESS: Final = "127.0.0.1"
"""Where every Ray listens: with any other address of its node it would listen on all addresses (FD:SEC-F2)."""
STEP: Final = 10
MOST_PODS: Final = 160
"""Beyond that the dashboard's ports would reach those of workers."""

_SERVICE: Final = re.compile(r"\b((?:[a-z0-9-]+\.)+svc(?:\.cluster\.local)?)(?![\w.-])(:\d+)?")
_LOCALHOST: Final = re.compile(r"(?<![\w.-])(?:localhost|127\.0\.0\.1):(\d+)")
_PORT_FLAG: Final = re.compile(r"(--port(?:=|\s+))6379\b")


def moved_port(number: int, index: int) -> int:
    """Where the Ray of pod `index` listens when it should on `number`; other ports stay."""
    return RAY_PORTS[number] + STEP * index if number in RAY_PORTS else number


def endpoint(ip: str, index: int, port: int) -> tuple[str, int]:
    """Where the pod with this address and number is reached when it is asked for at `port`."""
    return RAY_ADDRESS if port in RAY_PORTS else ip, moved_port(port, index)


def reservation_port(index: int) -> int:
    """A port that nobody else uses, bound by the sandbox to which pod number `index` belongs."""
    return 6379 + STEP * index + STEP // 2


def service_names(text: str) -> set[str]:
    """The full names of the services a text mentions."""
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
    """`text` for the pod with this address; a name that has no address yet stays as it is."""

    def service(match: re.Match[str]) -> str:
        addresses = lookup(_full_name(match[1]))
        if not addresses:
            return match[0]
        return _reached(addresses[0], match[2], index_by_ip)

    # First, because what stands for a service may be 127.0.0.1, at the port of another pod.
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
