"""Remote-command protocols: a client's streams of exec and attach, over WebSocket or SPDY.

Two implementations of `RemoteStreams`: WebSocket messages whose first byte is the channel number (versions 4 and 5, and
the unversioned protocol), and SPDY streams identified by their headers (versions 2 to 5). Input, output, terminal sizes
and the final status look the same to the caller. remotecommand.py opens one for each request.
"""

import asyncio
import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self

from aiohttp import WSMsgType, web

from raytide_sandbox.streaming.byte_channels import Hijacked
from raytide_sandbox.streaming.logs import is_true
from raytide_sandbox.streaming.spdy import SpdyConnection, SpdyError, SpdyStream
from raytide_sandbox.streaming.upgrades import is_websocket, open_spdy, open_websocket, reject

_WEBSOCKET_PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io", "channel.k8s.io")
_SPDY_PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io")
_STDIN: Final = 0
_OUTPUTS: Final = {"stdout": 1, "stderr": 2}
_STATUS: Final = 3
_RESIZE: Final = 4
_CLOSE: Final = 255
_STREAMS_TIMEOUT_S: Final = 30.0
_QUEUED_CHUNKS: Final = 64
_JSON_STATUS_SINCE: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """The streams that the client requests, and the command for exec."""

    command: tuple[str, ...] = ()
    has_stdin: bool = False
    has_stdout: bool = False
    has_stderr: bool = False
    is_tty: bool = False

    @classmethod
    def read(cls, request: web.Request, command: tuple[str, ...] = ()) -> Self:
        """Parse a query in the kubelet's spelling or in the API server's."""

        def says(*names: str) -> bool:
            return any(is_true(request.query.get(name)) for name in names)

        is_tty = says("tty")
        return cls(
            command=command,
            has_stdin=says("input", "stdin"),
            has_stdout=says("output", "stdout"),
            has_stderr=says("error", "stderr") and not is_tty,
            is_tty=is_tty,
        )


class RemoteStreams(Protocol):
    """The client's end of exec or attach."""

    @property
    def response(self) -> web.StreamResponse:
        """The response for the HTTP server."""
        ...

    async def read_stdin(self) -> bytes:
        """The next bytes of standard input; empty at the end."""
        ...

    async def write(self, name: str, chunk: bytes) -> None:
        """Send output of the stream `name` (stdout or stderr); raises ConnectionError."""
        ...

    async def next_size(self) -> tuple[int, int]:
        """Wait for the next change of the client's terminal; returns columns and rows."""
        ...

    async def wait_gone(self) -> None:
        """Return when the client has disconnected."""
        ...

    async def finish(self, status: Mapping[str, Any]) -> None:
        """Send the final status, and close."""
        ...


async def open_streams(request: web.Request, wanted: StreamRequest) -> RemoteStreams:
    """Negotiate the client's protocol and open its streams."""
    if is_websocket(request):
        return WebSocketStreams(await open_websocket(request, _WEBSOCKET_PROTOCOLS))
    response, channel, protocol = await open_spdy(request, _SPDY_PROTOCOLS)
    streams = SpdyStreams(response, SpdyConnection(channel), protocol)
    await streams.wait_complete(wanted)
    return streams


class WebSocketStreams:
    """Streams as channels of one WebSocket."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self.response = socket
        self._socket = socket
        self._stdin: asyncio.Queue[bytes] = asyncio.Queue(_QUEUED_CHUNKS)
        self._sizes: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
        self._reader = asyncio.create_task(self._read())

    async def read_stdin(self) -> bytes:
        """See RemoteStreams."""
        return await self._stdin.get()

    async def write(self, name: str, chunk: bytes) -> None:
        """See RemoteStreams."""
        await self._socket.send_bytes(bytes([_OUTPUTS[name]]) + chunk)

    async def next_size(self) -> tuple[int, int]:
        """See RemoteStreams."""
        return await self._sizes.get()

    async def wait_gone(self) -> None:
        """See RemoteStreams."""
        await asyncio.wait({self._reader})

    async def finish(self, status: Mapping[str, Any]) -> None:
        """See RemoteStreams."""
        with contextlib.suppress(ConnectionError):
            await self._socket.send_bytes(bytes([_STATUS]) + json.dumps(status).encode())
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._socket.close()

    async def _read(self) -> None:
        while True:
            message = await self._socket.receive()
            if message.type not in {WSMsgType.BINARY, WSMsgType.TEXT}:
                self._end_stdin()
                return
            chunk = message.data.encode() if isinstance(message.data, str) else bytes(message.data)
            if len(chunk) > 1 and chunk[0] == _STDIN:
                await self._stdin.put(chunk[1:])
            elif chunk[:2] == bytes([_CLOSE, _STDIN]):
                await self._stdin.put(b"")
            elif chunk[:1] == bytes([_RESIZE]):
                _note_size(chunk[1:], self._sizes)

    def _end_stdin(self) -> None:
        while self._stdin.full():
            self._stdin.get_nowait()
        self._stdin.put_nowait(b"")


class SpdyStreams:
    """Streams of one SPDY connection."""

    def __init__(self, response: Hijacked, connection: SpdyConnection, protocol: str) -> None:
        self.response = response
        self._connection = connection
        self._has_json_status = protocol in _JSON_STATUS_SINCE
        self._streams: dict[str, SpdyStream] = {}
        self._sizes: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
        self._reader = asyncio.create_task(self._run())
        self._sizing: asyncio.Task[None] | None = None

    async def wait_complete(self, wanted: StreamRequest) -> None:
        """Wait until the client has opened every requested stream; answers 400 if it does not."""
        expected = {"error"} | ({"stdin"} if wanted.has_stdin else set())
        expected |= ({"stdout"} if wanted.has_stdout else set()) | ({"stderr"} if wanted.has_stderr else set())
        expected |= {"resize"} if wanted.is_tty else set()
        try:
            async with asyncio.timeout(_STREAMS_TIMEOUT_S):
                while not expected <= self._streams.keys() and (stream := await self._connection.accept()):
                    self._streams[stream.headers.get("streamtype", "")] = stream
        except TimeoutError:
            await self._connection.close()
            reject(400, f"the client did not open its streams within {_STREAMS_TIMEOUT_S:.0f}s")
        if "resize" in self._streams:
            self._sizing = asyncio.create_task(self._read_sizes(self._streams["resize"]))

    async def read_stdin(self) -> bytes:
        """See RemoteStreams."""
        stream = self._streams.get("stdin")
        return await stream.read() if stream else b""

    async def write(self, name: str, chunk: bytes) -> None:
        """See RemoteStreams."""
        stream = self._streams.get(name)
        if stream:
            await stream.write(chunk)

    async def next_size(self) -> tuple[int, int]:
        """See RemoteStreams."""
        return await self._sizes.get()

    async def wait_gone(self) -> None:
        """See RemoteStreams."""
        await asyncio.wait({self._reader})

    async def finish(self, status: Mapping[str, Any]) -> None:
        """See RemoteStreams."""
        error = self._streams.get("error")
        with contextlib.suppress(ConnectionError):
            if error and self._has_json_status:
                await error.write(json.dumps(status).encode())
            elif error and status.get("status") != "Success":
                await error.write(str(status.get("message")).encode())
            for stream in self._streams.values():
                await stream.close_write()
        if self._sizing:
            self._sizing.cancel()
        self._reader.cancel()
        await asyncio.gather(self._reader, *([self._sizing] if self._sizing else []), return_exceptions=True)
        await self._connection.close()

    async def _run(self) -> None:
        with contextlib.suppress(SpdyError, ConnectionError):
            await self._connection.run()

    async def _read_sizes(self, stream: SpdyStream) -> None:
        while chunk := await stream.read():
            for line in chunk.splitlines():
                _note_size(line, self._sizes)


def _note_size(text: bytes, sizes: asyncio.Queue[tuple[int, int]]) -> None:
    try:
        size = json.loads(text)
        sizes.put_nowait((int(size["Width"]), int(size["Height"])))
    except (ValueError, KeyError, TypeError):
        return
