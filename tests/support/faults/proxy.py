"""Reverse proxy that injects faults between clients and a Kubernetes API server.

Listens on loopback. Requests pass with the client's own credentials and meet the faults that `Script` selects by
number, path or headers. It applies a fault to bytes and connections as it occurs on a network (a lost answer is
silence, a reset breaks the body in the middle), adds no fault of its own, and records all requests for later checks.
Started by tests, benchmarks and chaos runs; `transport.py` does the same without sockets (D17; RM:F1–F7, F14).
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, cast

import aiohttp
from aiohttp import web

from raytide_sandbox.apiserver.request_response import Response
from raytide_sandbox.certificates import Identity
from raytide_sandbox.kubeconfig import build_kubeconfig, write_private
from support.faults.script import Script
from support.faults.transport import Faulty
from support.faults.types import (
    Answer,
    CallFault,
    CommitLate,
    Delay,
    Kill,
    LoseAnswer,
    RefuseConnection,
    Reset,
    ResponseHistory,
    Stale,
    answer,
)
from support.faults.upstream import (
    ConnectionLostError,
    ForwardedCall,
    Hole,
    StreamRejectedError,
    Upstream,
    UpstreamWire,
    WireErrors,
)

_NO_TIMEOUT_S: Final = 86_400.0
_SEEN_LIMIT: Final = 1_000_000
_CONNECTION_ERRORS: Final = (aiohttp.ClientError, OSError)
"""The upstream cannot be reached, or breaks the connection."""


@dataclass(frozen=True, slots=True)
class ObservedRequest:
    """One request that passed through the proxy, for later checks."""

    at_s: float
    """On the script's clock: when a request was answered, or a stream was accepted."""
    agent: str
    method: str
    url: str
    is_watch: bool
    status: int
    """The status that the client received; 0: no answer, or an incomplete one."""


class FaultProxy:
    """One API server behind a script of faults.

    - The client's `Authorization` passes; a client without one gets the upstream's own credentials.
    - Watches are JSON; each line is delayed by `lag_s()`, in order.
    - While `hole` is open, streams deliver neither lines nor their end, and new ones get no answer.
    - A client that disconnects cancels its request, except one that is delayed or to be committed late.
    - `on_kill` receives the user agent of the client that a `Kill` hits; that request is never answered.
    - Upgrades (exec, port-forward) are answered 501.
    """

    def __init__(
        self,
        upstream: Upstream,
        script: Script,
        *,
        lag_s: Callable[[], float] = lambda: 0.0,
        on_kill: Callable[[str], None] = lambda _agent: None,
        serving: Identity | None = None,
    ) -> None:
        """With the server certificate `serving`, the proxy speaks HTTPS."""
        self.script = script
        self._lag_s = lag_s
        self.hole = Hole()
        self.seen: deque[ObservedRequest] = deque(maxlen=_SEEN_LIMIT)
        self.server = ""
        self._upstream = upstream
        self._on_kill = on_kill
        self._serving = serving
        self._past = ResponseHistory()
        self._late: set[asyncio.Task[None]] = set()
        self._runner: web.ServerRunner | None = None
        self._wires: tuple[UpstreamWire, Faulty] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self, port: int = 0) -> None:
        """Listen on loopback; sets `server` to the URL."""
        wire = UpstreamWire(self._upstream, lag_s=self._lag_s, hole=self.hole)
        faulty = Faulty(wire, self.script, troubles=WireErrors(), on_kill=lambda: self._on_kill(""), past=self._past)
        self._wires = wire, faulty
        self._runner = web.ServerRunner(
            web.Server(self._respond, handler_cancellation=True, access_log=None, auto_decompress=False),
            shutdown_timeout=0.1,
        )
        await self._runner.setup()
        listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        tls: ssl.SSLContext | None = None
        if self._serving is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._serving.load_into(tls)
        await web.SockSite(self._runner, listener, ssl_context=tls, backlog=1024).start()
        self.server = f"{'https' if tls else 'http'}://127.0.0.1:{listener.getsockname()[1]}"

    async def stop(self) -> None:
        """Close all connections, and cancel requests that wait to be committed late."""
        for task in self._late:
            task.cancel()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._wires is not None:
            await self._wires[1].close()

    def write_kubeconfig(self, path: Path, token: str, *, authority: bytes = b"") -> Path:
        """Write a kubeconfig with this token; `authority` is the CA that issued `serving`."""
        write_private(path, build_kubeconfig(server=self.server, authority=authority, token=token))
        return path

    @property
    def _open_transports(self) -> tuple[UpstreamWire, Faulty]:
        if self._wires is None:
            raise RuntimeError("the proxy was not started")
        return self._wires

    # --- one request -------------------------------------------------------------------------------------------------

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        if "upgrade" in request.headers:
            return web.Response(status=501, text="the fault proxy carries no upgrades\n")
        call = ForwardedCall.of(request, await request.read() if request.can_read_body else None)
        if call.is_stream:
            return await self._stream(request, call)
        status = 0
        try:
            response = await self._respond_with_fault(request, call)
            status = response.status
        except (ConnectionLostError, *_CONNECTION_ERRORS):
            return _abort_response(request)
        finally:
            self._record_status(call, status)
        return web.Response(status=response.status, body=response.body, headers=response.headers)

    def _record_status(self, call: ForwardedCall, status: int) -> None:
        agent = call.headers.get("user-agent", "")
        self.seen.append(ObservedRequest(self.script.now_s(), agent, call.method, call.url, call.is_watch, status))

    async def _respond_with_fault(self, request: web.BaseRequest, call: ForwardedCall) -> Response:
        fault = self.script.call(call.method, call.path, call.query, headers=call.headers)
        match fault:
            case None:
                return await self._sent(call)
            case Answer():
                return answer(fault)
            case Stale():
                old = self._past.recall(call.path, call.query, fault, self.script.now_s())
                return old or await self._sent(call)
            case Delay(for_s):
                return await self._on_the_way(for_s, call)
            case RefuseConnection():
                raise ConnectionLostError
            case Reset():
                raise await _cut_in_the_middle(request, await self._sent(call))
            case _:
                return await self._unanswered(fault, call)

    async def _unanswered(self, fault: CallFault, call: ForwardedCall) -> Response:
        """The faults after which the client gets no answer and waits until its own timeout."""
        if isinstance(fault, LoseAnswer) or (isinstance(fault, Kill) and fault.is_after):
            await self._sent(call)
        if isinstance(fault, Kill):
            self._on_kill(call.headers.get("user-agent", ""))
        try:
            await asyncio.Event().wait()
        finally:
            if isinstance(fault, CommitLate):
                self._carry_out(self._sent_after(fault.after_s, call))
        raise ConnectionLostError

    async def _sent(self, call: ForwardedCall) -> Response:
        wire, _ = self._open_transports
        response = await wire.request(call.method, call.path, timeout_s=_NO_TIMEOUT_S, call=call)
        if call.method == "GET":
            self._past.note(call.path, call.query, response, self.script.now_s())
        return response

    async def _on_the_way(self, for_s: float, call: ForwardedCall) -> Response:
        """Deliver the request after the delay, even if the client gives up meanwhile."""
        answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._carry_out(self._sent_after(for_s, call, answered))
        return await answered

    async def _sent_after(
        self, for_s: float, call: ForwardedCall, answered: asyncio.Future[Response] | None = None
    ) -> None:
        await asyncio.sleep(for_s)
        outcome: Response | Exception
        try:
            outcome = await self._sent(call)
        except _CONNECTION_ERRORS as error:
            outcome = error
        if answered is None or answered.done():
            return
        if isinstance(outcome, Exception):
            answered.set_exception(outcome)
        else:
            answered.set_result(outcome)

    def _carry_out(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    # --- one watch -----------------------------------------------------------------------------------------------------

    async def _stream(self, request: web.BaseRequest, call: ForwardedCall) -> web.StreamResponse:
        response = web.StreamResponse()

        async def start_response(headers: Mapping[str, str]) -> None:
            response.headers.update(headers)
            response.enable_chunked_encoding()
            await response.prepare(request)
            self._record_status(call, 200)

        wire, faulty = self._open_transports
        lines = (faulty if call.is_watch else wire).stream(
            call.path,
            silence_s=_NO_TIMEOUT_S,
            query=call.query,
            headers=call.headers,
            call=call,
            on_open=start_response,
        )
        try:
            async with aclosing(cast("AsyncGenerator[bytes, None]", lines)):
                async for line in lines:
                    await response.write(line)
            await response.write_eof()
        except StreamRejectedError as error:
            error_response = error.response
            self._record_status(call, error_response.status)
            return web.Response(status=error_response.status, body=error_response.body, headers=error_response.headers)
        except (ConnectionLostError, *_CONNECTION_ERRORS):
            return _abort_response(request, response)
        return response


# --- what breaks on the wire -------------------------------------------------------------------------------------------


def _abort_response(request: web.BaseRequest, response: web.StreamResponse | None = None) -> web.StreamResponse:
    """Abort the client's connection; the response returned to aiohttp is never sent."""
    if request.transport is not None:
        request.transport.abort()
    response = response or web.Response(status=502)
    response.force_close()
    return response


async def _cut_in_the_middle(request: web.BaseRequest, whole: Response) -> ConnectionLostError:
    """Send the head and half of the body; returns the exception to raise."""
    response = web.StreamResponse(status=whole.status, headers=whole.headers)
    response.content_length = len(whole.body)
    await response.prepare(request)
    await response.write(whole.body[: len(whole.body) // 2])
    await asyncio.sleep(0)  # flush the bytes before the connection breaks
    return ConnectionLostError("in the middle of the answer")
