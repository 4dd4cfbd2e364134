"""HTTP endpoints for probes and Prometheus.

Serves checks and metrics given as callables: `/healthz` (would a restart help?) and `/readyz` (D9) list every check
with its message and answer 503 if one fails. The meaning of the checks is not its concern. Started by manager/main.py.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from aiohttp import web

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
    """Parse `:8080`, `127.0.0.1:8080`, or `0` for off as in KubeRay's flags; raises ValueError otherwise."""
    if text in ("", "0"):
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is not an address such as :8080 or 127.0.0.1:8080, or 0 to disable")
    if int(port) == 0:
        return None
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - the kubelet's probes come from outside the pod


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
            await web.TCPSite(runner, host, port).start()

    async def stop(self) -> None:
        """Release the ports."""
        for runner in self._runners:
            await runner.cleanup()
