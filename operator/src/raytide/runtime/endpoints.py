"""How does the process answer probes and Prometheus?

Takes checks and metrics as plain callables and serves them over HTTP: `/healthz` asks "would a restart help?", `/readyz`
"may work be sent here?" (D9); both list every check with its words, and answer 503 if one fails. It knows what none of
them means. Started by main.py.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from aiohttp import web

Check: TypeAlias = Callable[[], tuple[bool, str]]
"""Whether it is well, and how it is doing in a few words."""


Answer: TypeAlias = Callable[[web.Request], web.StreamResponse]
"""A page."""


def report(checks: Mapping[str, Check]) -> tuple[bool, str]:
    """All of them, one per line, as Kubernetes' own endpoints spell it."""
    results = {name: check() for name, check in checks.items()}
    is_well = all(is_good for is_good, _ in results.values())
    lines = [f"[{'+' if is_good else '-'}]{name} {words}" for name, (is_good, words) in results.items()]
    return is_well, "\n".join([*lines, "ok" if is_well else "failed", ""])


def text_of(checks: Mapping[str, Check]) -> Answer:
    """A page that shows the checks."""

    def answer(_request: web.Request) -> web.StreamResponse:
        is_well, text = report(checks)
        return web.Response(text=text, status=200 if is_well else 503)

    return answer


def page(make: Callable[[], tuple[bytes, str]]) -> Answer:
    """A page whose bytes and content type are made anew each time."""

    def answer(_request: web.Request) -> web.StreamResponse:
        body, content_type = make()
        return web.Response(body=body, headers={"Content-Type": content_type})

    return answer


def address_of(text: str) -> tuple[str, int] | None:
    """`:8080`, `127.0.0.1:0` or `0`, which means off, as KubeRay's flags have it; raises ValueError otherwise."""
    if text in ("", "0"):
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is no address such as :8080 or 127.0.0.1:8080, nor 0 for off")
    if int(port) == 0:
        return None
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - a pod's probes come from outside the pod


class Endpoints:
    """One small HTTP server; two addresses that are equal share it."""

    def __init__(self) -> None:
        self._apps: dict[tuple[str, int], web.Application] = {}
        self._runners: list[web.AppRunner] = []

    def add(self, address: str, path: str, answer: Answer) -> None:
        """Serve that path at that address, unless the address is off."""
        parsed = address_of(address)
        if parsed is None:
            return

        async def respond(request: web.Request) -> web.StreamResponse:
            return answer(request)

        self._apps.setdefault(parsed, web.Application()).router.add_get(path, respond)

    async def start(self) -> None:
        """Listen; raises OSError that names the address when it is taken."""
        for (host, port), app in self._apps.items():
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            self._runners.append(runner)
            await web.TCPSite(runner, host, port).start()

    async def stop(self) -> None:
        """Let go of the ports."""
        for runner in self._runners:
            await runner.cleanup()
