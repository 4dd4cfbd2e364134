"""HTTP endpoints for probes and Prometheus.

Serves checks and metrics given as callables: `/healthz` (would a restart help?) and `/readyz` (D9) list every check
with its message and answer 503 if one fails. The meaning of the checks is not its concern. `:port` answers on IPv4 and IPv6,
since the kubelet's probes come from outside the pod, in the cluster's family (FD:RC3-1). Started by manager/main.py, and by
autoscaler/sidecar/main.py for the sidecar's pages.
"""

import errno
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from aiohttp import web

from raytide.api.host_port import split_host_port

ALL_ADDRESSES: Final = ("", "::")
"""Hosts that mean all addresses of both families; `0.0.0.0` means those of IPv4."""
WITHOUT_IPV6: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
"""Errors of a kernel, or of a container's network, that refuses IPv6."""

Check: TypeAlias = Callable[[], tuple[bool, str]]
"""Returns whether it passes, and a short message."""


Answer: TypeAlias = Callable[[web.Request], web.StreamResponse]
"""Handler of a page."""


def report(checks: Mapping[str, Check]) -> tuple[bool, str]:
    """Run all checks; one line each, in the format of Kubernetes' own endpoints."""
    results = {name: check() for name, check in checks.items()}
    is_well = all(is_good for is_good, _ in results.values())
    lines = [f"[{'+' if is_good else '-'}]{name} {text}" for name, (is_good, text) in results.items()]
    return is_well, "\n".join([*lines, "ok" if is_well else "failed", ""])


def health_text(checks: Mapping[str, Check]) -> Answer:
    """Handler that shows the checks."""

    def answer(_request: web.Request) -> web.StreamResponse:
        is_well, text = report(checks)
        return web.Response(text=text, status=200 if is_well else 503)

    return answer


def page(make: Callable[[], tuple[bytes, str]]) -> Answer:
    """Handler whose bytes and content type are computed for each request."""

    def answer(_request: web.Request) -> web.StreamResponse:
        body, content_type = make()
        return web.Response(body=body, headers={"Content-Type": content_type})

    return answer


def address_of(text: str) -> tuple[str, int] | None:
    """Parse `:8080`, `127.0.0.1:8080`, `[::1]:8080`, or `0` for off as in KubeRay's flags; raises ValueError otherwise."""
    if text in ("", "0"):
        return None
    try:
        host, port = split_host_port(text)
    except ValueError as error:
        raise ValueError(f"{error}, or 0 to disable") from None
    return (host, port) if port else None


async def listen(runner: web.BaseRunner, host: str, port: int, *, tls: ssl.SSLContext | None = None) -> None:
    """Serve at the address; an empty host and `::` are all addresses, of both families as in Go. Raises OSError."""
    if host in ALL_ADDRESSES:
        await web.SockSite(runner, _socket_of_all_addresses(port), ssl_context=tls).start()
    else:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()


def _socket_of_all_addresses(port: int) -> socket.socket:
    """One socket for both families, because asyncio's of IPv6 refuses IPv4; of IPv4 alone where there is no IPv6."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if error.errno not in WITHOUT_IPV6:
                raise
    return socket.create_server(("", port))


class Endpoints:
    """A small HTTP server; endpoints at equal addresses share it."""

    def __init__(self) -> None:
        self._apps: dict[tuple[str, int], web.Application] = {}
        self._runners: list[web.AppRunner] = []

    def add(self, address: str, path: str, answer: Answer) -> None:
        """Serve the path at that address, unless the address is off."""
        parsed = address_of(address)
        if parsed is None:
            return

        async def respond(request: web.Request) -> web.StreamResponse:
            return answer(request)

        self._apps.setdefault(parsed, web.Application()).router.add_get(path, respond)

    async def start(self) -> None:
        """Listen; raises OSError that names the address when it is in use."""
        for (host, port), app in self._apps.items():
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            self._runners.append(runner)
            await listen(runner, host, port)

    async def stop(self) -> None:
        """Release the ports."""
        for runner in self._runners:
            await runner.cleanup()
