"""Startup, readiness and liveness probes of a container.

`watch_probes` runs the checks, counts successes and failures and reports each change of a probe's result. A check that
exceeds its timeout is a failure; a check never raises. `Checker` runs commands and HTTP, TCP and gRPC health checks
against a container through the runtime. container_probes.py starts and cancels one `watch_probes` per running
container.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import grpc.aio

from raytide_sandbox.container_runtime.interface import Container, ContainerRuntimeError, ExecConfig, Runtime, Sandbox
from raytide_sandbox.kubelet.podspec import (
    Action,
    ContainerSpec,
    ExecAction,
    GrpcAction,
    HttpAction,
    PodSpecError,
    ProbeSpec,
    SleepAction,
    TcpAction,
)
from raytide_sandbox.streaming.network_relay import Connect, relay

_OUTPUT_BYTES: Final = 10 * 1024
_HEADER_BYTES: Final = 64 * 1024
_GRPC_METHOD: Final = "/grpc.health.v1.Health/Check"
_GRPC_SERVING: Final = b"\x08\x01"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of one check, with the message of a failure."""

    is_success: bool
    message: str = ""


@dataclass(slots=True)
class Counter:
    """Consecutive successes or failures; `verdict` is None until a threshold is reached."""

    probe: ProbeSpec
    verdict: bool | None = None
    run: int = 0
    last: bool | None = None

    def count(self, *, is_success: bool) -> bool:
        """Count one check; returns whether the verdict has changed."""
        self.run = self.run + 1 if is_success == self.last else 1
        self.last = is_success
        threshold = self.probe.success_threshold if is_success else self.probe.failure_threshold
        if self.run < threshold or self.verdict == is_success:
            return False
        self.verdict = is_success
        return True


Check = Callable[[ProbeSpec], Awaitable[CheckResult]]
Report = Callable[[str, bool], None]
Complain = Callable[[str, str], None]


async def watch_probes(container: ContainerSpec, check: Check, report: Report, complain: Complain) -> None:
    """Run every probe of a started container; a failed startup probe ends all, a failed liveness probe only itself.

    `report(kind, verdict)` is called for each change (liveness: only False), `complain(kind, message)` for each failure.
    """
    if container.startup and not await _watch("startup", container.startup, check, report, complain):
        return
    others = [(kind, probe) for kind, probe in container.probes.items() if kind != "startup"]
    await asyncio.gather(*(_watch(kind, probe, check, report, complain) for kind, probe in others))


async def _watch(kind: str, probe: ProbeSpec, check: Check, report: Report, complain: Complain) -> bool:
    """Run one probe until it has its final verdict, which is returned; a readiness probe has none."""
    counter = Counter(probe)
    clock = asyncio.get_running_loop()
    await asyncio.sleep(probe.initial_delay_s)
    while True:
        begun = clock.time()
        result = await _bounded(check, probe)
        if not result.is_success:
            complain(kind, result.message)
        if counter.count(is_success=result.is_success):
            if kind != "liveness" or not result.is_success:
                report(kind, result.is_success)
            if kind == "startup" or (kind == "liveness" and not result.is_success):
                return result.is_success
        await asyncio.sleep(max(0.0, probe.period_s - (clock.time() - begun)))


async def _bounded(check: Check, probe: ProbeSpec) -> CheckResult:
    try:
        async with asyncio.timeout(probe.timeout_s):  # wait_for may lose a cancellation in Python 3.11
            return await check(probe)
    except TimeoutError:
        return CheckResult(is_success=False, message=f"timeout: no answer within {probe.timeout_s}s")


class Checker:
    """Runs probes and hooks of one running container."""

    def __init__(self, runtime: Runtime, sandbox: Sandbox, spec: ContainerSpec, container: Container) -> None:
        self._runtime = runtime
        self._sandbox = sandbox
        self._spec = spec
        self._container = container

    async def check(self, probe: ProbeSpec) -> CheckResult:
        """Run one check of a probe; the caller enforces the timeout of the whole check."""
        return await self.run(probe.action, timeout_s=probe.timeout_s)

    async def run(self, action: Action, *, timeout_s: float) -> CheckResult:
        """Run the action of a probe or hook; every error but a cancellation becomes a failed result."""
        try:
            if isinstance(action, ExecAction):
                return await self._exec(action)
            if isinstance(action, HttpAction):
                return await self._http(action, timeout_s)
            if isinstance(action, GrpcAction):
                return await self._grpc(action, timeout_s)
            if isinstance(action, SleepAction):
                await asyncio.sleep(action.seconds)
                return CheckResult(is_success=True)
            return await self._tcp(action, timeout_s)
        except (
            OSError,
            ContainerRuntimeError,
            PodSpecError,
            ValueError,
            EOFError,
            asyncio.LimitOverrunError,
        ) as error:
            return CheckResult(is_success=False, message=str(error) or type(error).__name__)

    async def _exec(self, action: ExecAction) -> CheckResult:
        command = await self._runtime.exec(self._container, ExecConfig(argv=action.command))
        try:
            output = bytearray()
            while len(output) < _OUTPUT_BYTES and (chunk := await command.stdout.read()):
                output += chunk
            errors = await command.stderr.read() if command.stderr else b""
            ended = await command.wait()
        except asyncio.CancelledError:
            command.kill()
            raise
        message = (bytes(output) + errors)[:_OUTPUT_BYTES].decode(errors="replace")
        return CheckResult(is_success=ended.code == 0, message=message)

    async def _connect(self, port: int, timeout_s: float) -> socket.socket:
        try:
            return await self._runtime.connect(self._sandbox, port, timeout_s)
        except ConnectionRefusedError:
            raise ConnectionRefusedError(f"dial tcp {self._sandbox.ip}:{port}: connect: connection refused") from None

    async def _tcp(self, action: TcpAction, timeout_s: float) -> CheckResult:
        port = self._spec.port_number(action.port)
        connection = await self._connect(port, timeout_s)
        connection.close()
        return CheckResult(is_success=True)

    async def _http(self, action: HttpAction, timeout_s: float) -> CheckResult:
        port = self._spec.port_number(action.port)
        connection = await self._connect(port, timeout_s)
        tls = _unverified_tls() if action.scheme == "HTTPS" else None
        reader, writer = await asyncio.open_connection(
            sock=connection, limit=_HEADER_BYTES, ssl=tls, server_hostname="" if tls else None
        )
        try:
            writer.write(_http_request(action, self._sandbox.ip, port))
            line = (await reader.readline()).decode("latin-1").split(" ", 2)
            code = int(line[1]) if len(line) > 1 and line[0].startswith("HTTP/") else 0
        finally:
            writer.close()
        return CheckResult(is_success=200 <= code < 400, message=f"HTTP probe failed with statuscode: {code}")

    async def _grpc(self, action: GrpcAction, timeout_s: float) -> CheckResult:
        is_serving, message = await _check_grpc_health(
            lambda: self._connect(action.port, timeout_s), action.service, timeout_s
        )
        return CheckResult(is_success=is_serving, message=message)


def _http_request(action: HttpAction, ip: str, port: int) -> bytes:
    headers = {"Host": f"{action.host or ip}:{port}", "User-Agent": "kube-probe/1.35", "Accept": "*/*"}
    headers |= dict(action.headers) | {"Connection": "close"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"GET {action.path} HTTP/1.1\r\n{lines}\r\n".encode()


def _unverified_tls() -> ssl.SSLContext:
    """TLS context without verification: kubelets do not verify the certificates of pods."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _check_grpc_health(connect: Connect, service: str, timeout_s: float) -> tuple[bool, str]:
    """Call Health/Check once; the timeout is in seconds. Returns whether the service is SERVING, and else the message."""
    name = service.encode()
    request = b"\x0a" + bytes([len(name)]) + name if name else b""
    async with relay(connect) as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            answer = await channel.unary_unary(_GRPC_METHOD)(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            return False, f"gRPC probe failed: {error.code().name}: {error.details()}"
    return bytes(answer) == _GRPC_SERVING, "gRPC probe failed: the service is not SERVING"
