"""Tunnel from the API server to the kubelet of a node, for logs, exec, port-forward and proxy.

`forward` sends the client's request to the kubelet of a `Proxied` and then copies bytes both ways until either side
ends, so it carries WebSocket, SPDY and plain HTTP without parsing them. A plain-text error of the kubelet is returned
as a Status, as by a real API server. Used by the HTTP adapter; the kubelet gets the server's bearer token, never the
client's.
"""

import asyncio
import ssl
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from raytide_sandbox.apiserver.api_status import ApiStatusError
from raytide_sandbox.apiserver.request_response import Proxied

_CONNECT_S: Final = 10.0
_PIECE_BYTES: Final = 64 * 1024
_BACKLOG_BYTES: Final = 1024 * 1024
_END_OF_HEAD: Final = b"\r\n\r\n"
_NOT_FORWARDED: Final = {
    "host",
    "authorization",
    "content-length",
    "transfer-encoding",
    "connection",
    "accept-encoding",
}
_REASONS: Final = {400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed"}


@dataclass(frozen=True, slots=True)
class Kubelets:
    """How the server connects to kubelets: TLS settings and bearer token."""

    tls: ssl.SSLContext | None = None
    token: str | None = None


async def forward(request: web.Request, body: bytes, to: Proxied, kubelets: Kubelets) -> web.StreamResponse:
    """Forward to the kubelet; raises ApiStatusError when it is unreachable or answers with a plain-text error."""
    try:
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_connection(to.host, to.port, ssl=kubelets.tls)
    except OSError as error:  # a TimeoutError is one
        message = f"error dialing backend: node {to.node} at {to.host}:{to.port}: {error or 'timed out'}"
        raise ApiStatusError(500, "InternalError", message) from error
    try:
        writer.write(_head(request, body, to, kubelets) + body)
        head = await _read_head(reader, to)
        status = int(head.split(b" ", 2)[1])
        if status >= 400 and not to.is_transparent and b"application/json" not in head.lower():
            raise _quoted(status, await reader.read(_PIECE_BYTES))
        return await _take_over(request, head, reader, writer)
    finally:
        writer.close()


def _head(request: web.Request, body: bytes, to: Proxied, kubelets: Kubelets) -> bytes:
    """The request head for the kubelet; `Connection: close` makes the end of the answer the end of the stream."""
    upgrade = request.headers.get("Upgrade")
    lines = [f"{request.method} {to.path} HTTP/1.1", f"Host: {to.host}:{to.port}"]
    lines += [f"{name}: {value}" for name, value in request.headers.items() if name.lower() not in _NOT_FORWARDED]
    lines.append("Connection: Upgrade" if upgrade else "Connection: close")
    if kubelets.token:
        lines.append(f"Authorization: Bearer {kubelets.token}")
    if body or request.method in {"POST", "PUT", "PATCH"}:
        lines.append(f"Content-Length: {len(body)}")
    lines.append(f"X-Remote-User: {quote(str(request.get('user', '')))}")
    return "\r\n".join(lines).encode() + _END_OF_HEAD


async def _read_head(reader: asyncio.StreamReader, to: Proxied) -> bytes:
    try:
        head = await reader.readuntil(_END_OF_HEAD)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError) as error:
        message = f"error dialing backend: the kubelet of node {to.node} gave no answer"
        raise ApiStatusError(502, "InternalError", message) from error
    if not head.startswith(b"HTTP/1."):
        raise ApiStatusError(502, "InternalError", f"error dialing backend: node {to.node} does not speak HTTP")
    return head


def _quoted(status: int, body: bytes) -> ApiStatusError:
    return ApiStatusError(status, _REASONS.get(status, "InternalError"), body.decode(errors="replace").strip())


# --- bytes both ways -------------------------------------------------------------------------------------------------
class _Taken(web.StreamResponse):
    """A response that was already written; aiohttp only has to close the connection."""

    def __init__(self) -> None:
        super().__init__()
        self.force_close()

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:  # noqa: ARG002 - not ours to name
        """Write nothing."""
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Write nothing."""


class _ClientSide(asyncio.Protocol):
    """The client's connection after aiohttp handed it over."""

    def __init__(
        self, transport: asyncio.Transport, kubelet: asyncio.StreamWriter, previous: asyncio.BaseProtocol
    ) -> None:
        self._transport = transport
        self._kubelet = kubelet
        self._previous = previous
        self._draining: asyncio.Task[None] | None = None
        self.can_write = asyncio.Event()
        self.can_write.set()
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        """Copy from the client to the kubelet."""
        self._kubelet.write(data)
        if self._draining is None and self._kubelet.transport.get_write_buffer_size() > _BACKLOG_BYTES:
            self._transport.pause_reading()
            self._draining = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        try:
            await self._kubelet.drain()
            self._transport.resume_reading()
        except (OSError, RuntimeError):
            self.ended.set()
        finally:
            self._draining = None

    def eof_received(self) -> bool:
        """The client has finished sending; both sides end (TLS has no half-closed connections)."""
        self.ended.set()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The client disconnected; pass it on to aiohttp."""
        self.ended.set()
        self.can_write.set()
        self._previous.connection_lost(exc)

    def pause_writing(self) -> None:
        """The client reads too slowly; stop writing."""
        self.can_write.clear()

    def resume_writing(self) -> None:
        """The client has caught up; write again."""
        self.can_write.set()


async def _take_over(
    request: web.Request, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> web.StreamResponse:
    transport = request.transport
    if transport is None:
        return _Taken()
    previous = transport.get_protocol()
    client = _ClientSide(transport, writer, previous)
    transport.set_protocol(client)
    transport.write(head)
    downstream = asyncio.get_running_loop().create_task(_copy(reader, transport, client))
    ended = asyncio.get_running_loop().create_task(client.ended.wait())
    try:
        await asyncio.wait({downstream, ended}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (downstream, ended):
            task.cancel()
        await asyncio.gather(downstream, ended, return_exceptions=True)
        if not transport.is_closing():
            transport.set_protocol(previous)
            transport.close()
    return _Taken()


async def _copy(reader: asyncio.StreamReader, transport: asyncio.Transport, client: _ClientSide) -> None:
    """Copy from the kubelet to the client until the kubelet ends."""
    while piece := await reader.read(_PIECE_BYTES):
        await client.can_write.wait()
        if transport.is_closing():
            return
        transport.write(piece)
