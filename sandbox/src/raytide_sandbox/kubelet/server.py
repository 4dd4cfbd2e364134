"""Kubelet server: logs, exec, attach and port-forward for the pods of this machine.

An HTTP server with the paths of a kubelet (`/containerLogs`, `/exec`, `/attach`, `/portForward`, and `/podProxy` for
plain HTTP to a port), to which the API server forwards its clients. Streams are WebSockets (kubectl from 1.31) or SPDY
upgrades (older kubectl, and a real API server). It decides nothing about pods and admits only its API server, which
presents a token or a certificate, because every user of a machine can reach its loopback. Started by kubelet.py.
"""

import hmac
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NoReturn

from aiohttp import web

from raytide_sandbox.container_runtime.interface import Runtime
from raytide_sandbox.kubelet.containers import Waiting
from raytide_sandbox.kubelet.podspec import ContainerSpec
from raytide_sandbox.kubelet.podworker import PodWorker
from raytide_sandbox.streaming.logs import is_true, read_log, read_options
from raytide_sandbox.streaming.portforward import serve_forward
from raytide_sandbox.streaming.portproxy import relay_http
from raytide_sandbox.streaming.remote_command_protocols import StreamRequest
from raytide_sandbox.streaming.remotecommand import serve_attach, serve_exec
from raytide_sandbox.streaming.upgrades import reject

FindWorker = Callable[[str, str], PodWorker | None]

_SHUTDOWN_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class RequestAuthenticator:
    """Authentication by a bearer token or by a client certificate with that name; without both, none."""

    token: str | None = None
    tls: ssl.SSLContext | None = None
    client_name: str | None = None
    """The common name of the only client; `tls` has to request certificates."""

    def accepts(self, request: web.Request) -> bool:
        """Whether the request is from the permitted client."""
        if self.client_name is not None:
            return _common_name(request) == self.client_name
        shown = request.headers.get("Authorization", "").encode(errors="surrogateescape")
        return self.token is None or hmac.compare_digest(shown, f"Bearer {self.token}".encode())


def _common_name(request: web.Request) -> str | None:
    certificate = request.transport.get_extra_info("peercert") if request.transport else None
    names = [pair for part in (certificate or {}).get("subject", ()) for pair in part]
    return next((value for kind, value in names if kind == "commonName"), None)


class KubeletServer:
    """The kubelet's HTTP server."""

    def __init__(
        self,
        runtime: Runtime,
        find_worker: FindWorker,
        now: Callable[[], datetime],
        authenticator: RequestAuthenticator,
    ) -> None:
        self._authenticator = authenticator
        self._runtime = runtime
        self._find = find_worker
        self._now = now
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 selects a free one."""
        app = web.Application(middlewares=[self._authenticate])
        pod = "{namespace}/{pod}"
        app.add_routes(
            [
                web.get("/healthz", _healthz),
                web.get(f"/containerLogs/{pod}/{{container}}", self._logs),
                web.route("*", f"/exec/{pod}/{{container}}", self._exec),
                web.route("*", f"/attach/{pod}/{{container}}", self._attach),
                web.route("*", f"/portForward/{pod}", self._forward),
                web.route("*", f"/podProxy/{pod}/{{port:\\d+}}/{{rest:.*}}", self._proxy),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_S)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, ssl_context=self._authenticator.tls).start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Stop serving, and end every stream."""
        if self._runner:
            await self._runner.cleanup()

    @web.middleware
    async def _authenticate(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if not self._authenticator.accepts(request):
            reject(401, "Unauthorized")
        return await handler(request)

    # --- logs ----------------------------------------------------------------------------------------------------
    async def _logs(self, request: web.Request) -> web.StreamResponse:
        worker, spec = self._container(request)
        attempt = _log_attempt(worker, spec, is_previous=is_true(request.query.get("previous")))
        try:
            options = read_options(request.query, self._now())
        except ValueError as error:
            reject(400, str(error))
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        lines = read_log(
            worker.files.log(spec.name, attempt),
            options,
            worker.files.clock(spec.name, attempt),
            may_grow=lambda: _is_attempt_running(worker, spec.name, attempt),
            now=self._now,
        )
        async for chunk in lines:
            await response.write(chunk)
        return response

    # --- streams -------------------------------------------------------------------------------------------------
    async def _exec(self, request: web.Request) -> web.StreamResponse:
        worker, spec = self._container(request)
        running = worker.running.get(spec.name)
        if running is None:
            reject(500, f"container {spec.name} of pod {worker.pod.name} is not running")
        wanted = StreamRequest.read(request, command=tuple(request.query.getall("command", [])))
        return await serve_exec(request, wanted, self._runtime, running.container)

    async def _attach(self, request: web.Request) -> web.StreamResponse:
        worker, spec = self._container(request)
        running = worker.running.get(spec.name)
        if running is None:
            reject(500, f"container {spec.name} of pod {worker.pod.name} is not running")
        return await serve_attach(request, StreamRequest.read(request), running.container)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        worker = self._worker(request)
        if worker.sandbox is None:
            reject(500, f"pod {worker.pod.name} is not running")
        return await serve_forward(request, self._runtime, worker.sandbox)

    async def _proxy(self, request: web.Request) -> web.StreamResponse:
        worker = self._worker(request)
        if worker.sandbox is None:
            reject(503, f"pod {worker.pod.name} is not running")
        port, path = int(request.match_info["port"]), "/" + request.match_info["rest"]
        return await relay_http(request, self._runtime, worker.sandbox, port, path)

    # --- request target ------------------------------------------------------------------------------------------
    def _worker(self, request: web.Request) -> PodWorker:
        place = request.match_info["namespace"], request.match_info["pod"]
        return self._find(*place) or reject(404, f'pods "{place[1]}" not found')

    def _container(self, request: web.Request) -> tuple[PodWorker, ContainerSpec]:
        worker, name = self._worker(request), request.match_info["container"]
        spec = worker.pod.container(name)
        return worker, spec or reject(404, f"container {name} is not valid for pod {worker.pod.name}")


def _log_attempt(worker: PodWorker, spec: ContainerSpec, *, is_previous: bool) -> int:
    """The attempt of the container whose log is requested; answers 400 if there is none."""
    record = worker.records[spec.name]
    if not record.has_ever_started:
        reason = record.state.reason if isinstance(record.state, Waiting) else ""
        reject(400, f'container "{spec.name}" in pod "{worker.pod.name}" is waiting to start: {reason}')
    latest = record.restart_count
    if not is_previous or isinstance(record.state, Waiting):
        return latest
    if record.last is None:
        _reject_previous(worker, spec)
    return latest - 1


def _reject_previous(worker: PodWorker, spec: ContainerSpec) -> NoReturn:
    reject(400, f'previous terminated container "{spec.name}" in pod "{worker.pod.name}" not found')


def _is_attempt_running(worker: PodWorker, name: str, attempt: int) -> bool:
    running = worker.running.get(name)
    return running is not None and running.container.config.attempt == attempt


async def _healthz(_request: web.Request) -> web.Response:
    return web.Response(text="ok")
