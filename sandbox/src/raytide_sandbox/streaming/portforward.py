"""Port-forward: connections of `kubectl port-forward` to a port of a pod.

Input: an upgrade request and a pod's sandbox. Connects to the pod once per forwarded connection and copies bytes both
ways. Three protocols are served: SPDY frames inside a WebSocket (current kubectl), SPDY upgrades (older ones), and
numbered channels of a WebSocket (libraries). An error of one connection is sent on its error stream and ends no other.
Called by kubelet/server.py.
"""

import asyncio
import contextlib
import logging
import struct
from dataclasses import dataclass, field
from typing import Final

from aiohttp import WSMsgType, web

from raytide_sandbox.container_runtime.interface import Runtime, Sandbox
from raytide_sandbox.streaming.byte_channels import WebSocketBytes
from raytide_sandbox.streaming.spdy import SpdyConnection, SpdyError, SpdyStream
from raytide_sandbox.streaming.upgrades import is_websocket, open_spdy, open_websocket

_TUNNEL: Final = "SPDY/3.1+portforward.k8s.io"
_PLAIN: Final = "portforward.k8s.io"
_CHANNELS: Final = "v4.channel.k8s.io"
_CONNECT_S: Final = 10.0
_CHUNK: Final = 64 * 1024

_log = logging.getLogger(__name__)


async def serve_forward(request: web.Request, runtime: Runtime, sandbox: Sandbox) -> web.StreamResponse:
    """Forward until the client disconnects."""
    if not is_websocket(request):
        response, channel, _ = await open_spdy(request, (_PLAIN,))
        await _serve_spdy(SpdyConnection(channel), runtime, sandbox)
        return response
    ports = _ports(request)
    socket = await open_websocket(request, (_TUNNEL, _CHANNELS) if ports else (_TUNNEL,))
    if socket.ws_protocol == _TUNNEL:
        await _serve_spdy(SpdyConnection(WebSocketBytes(socket)), runtime, sandbox)
    else:
        await _serve_channels(socket, ports, runtime, sandbox)
    return socket


def _ports(request: web.Request) -> list[int]:
    """Clients send `ports`; an API server sends `port` to its kubelets."""
    lines = [*request.query.getall("ports", []), *request.query.getall("port", [])]
    return [int(text) for line in lines for text in line.split(",") if text.isdecimal()]


async def open_pod_connection(
    runtime: Runtime, sandbox: Sandbox, port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to a port of the pod; raises OSError."""
    connection = await runtime.connect(sandbox, port, _CONNECT_S)
    return await asyncio.open_connection(sock=connection, limit=_CHUNK)


# --- SPDY ------------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class _Pair:
    """The two streams of one forwarded connection."""

    streams: dict[str, SpdyStream] = field(default_factory=dict)


async def _serve_spdy(connection: SpdyConnection, runtime: Runtime, sandbox: Sandbox) -> None:
    reading = asyncio.create_task(connection.run())
    forwards: set[asyncio.Task[None]] = set()
    pairs: dict[str, _Pair] = {}
    try:
        while stream := await connection.accept():
            request_id = stream.headers.get("requestid", "")
            pair = pairs.setdefault(request_id, _Pair())
            pair.streams[stream.headers.get("streamtype", "")] = stream
            if {"error", "data"} <= pair.streams.keys():
                del pairs[request_id]
                task = asyncio.create_task(_forward(pair.streams["data"], pair.streams["error"], runtime, sandbox))
                forwards.add(task)
                task.add_done_callback(forwards.discard)
    finally:
        for task in (reading, *forwards):
            task.cancel()
        results = await asyncio.gather(reading, *forwards, return_exceptions=True)
        for error in results:
            if isinstance(error, SpdyError):
                _log.info("port-forward ended: %s", error)
        await connection.close()


async def _forward(data: SpdyStream, error: SpdyStream, runtime: Runtime, sandbox: Sandbox) -> None:
    port_text = data.headers.get("port", "")
    try:
        with contextlib.suppress(ConnectionError):
            await _copy_stream(data, error, port_text, runtime, sandbox)
            await data.close_write()
            await error.close_write()
    finally:
        data.stop_reading()
        error.stop_reading()


async def _copy_stream(
    data: SpdyStream, errors: SpdyStream, port_text: str, runtime: Runtime, sandbox: Sandbox
) -> None:
    try:
        reader, writer = await open_pod_connection(runtime, sandbox, int(port_text))
    except (OSError, ValueError) as error:
        pod = sandbox.config.uid
        message = f"error forwarding port {port_text} to pod {pod}, uid : failed to connect: {error}"
        await errors.write(message.encode())
        return
    upward = asyncio.create_task(_feed(data, writer))
    try:
        while chunk := await reader.read(_CHUNK):
            await data.write(chunk)
    except OSError as error:
        await errors.write(f"error forwarding port {port_text}: {error}".encode())
    finally:
        upward.cancel()
        await asyncio.gather(upward, return_exceptions=True)
        writer.close()


async def _feed(data: SpdyStream, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await data.read():
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()


# --- numbered channels -----------------------------------------------------------------------------------------------
async def _serve_channels(socket: web.WebSocketResponse, ports: list[int], runtime: Runtime, sandbox: Sandbox) -> None:
    """Channel 2i carries data of the i-th port, 2i+1 its errors; each begins with the port as two bytes."""
    writers: dict[int, asyncio.StreamWriter] = {}
    copies: list[asyncio.Task[None]] = []
    try:
        for index, port in enumerate(ports):
            for channel in (2 * index, 2 * index + 1):
                await socket.send_bytes(bytes([channel]) + struct.pack("<H", port))
            try:
                reader, writers[2 * index] = await open_pod_connection(runtime, sandbox, port)
            except OSError as error:
                await socket.send_bytes(bytes([2 * index + 1]) + f"error forwarding port {port}: {error}".encode())
                continue
            copies.append(asyncio.create_task(_copy_channel(reader, socket, 2 * index)))
        async for message in socket:
            if message.type is WSMsgType.BINARY and message.data and message.data[0] in writers:
                writers[message.data[0]].write(message.data[1:])
                await writers[message.data[0]].drain()
    except OSError as error:
        _log.info("port-forward ended: %s", error)
    finally:
        for task in copies:
            task.cancel()
        await asyncio.gather(*copies, return_exceptions=True)
        for writer in writers.values():
            writer.close()


async def _copy_channel(reader: asyncio.StreamReader, socket: web.WebSocketResponse, channel: int) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            await socket.send_bytes(bytes([channel]) + chunk)
    await socket.close()
