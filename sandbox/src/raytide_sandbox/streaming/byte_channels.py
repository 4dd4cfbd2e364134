"""Byte channels: raw bytes on a connection that is no longer HTTP.

Two implementations of `ByteChannel`: the binary messages of a WebSocket, and the raw socket of a request for an upgrade
that the HTTP server does not support (SPDY). `read` returns empty bytes at the end; `write` waits while the peer is
slow and raises ConnectionError when it is gone. Used by upgrades.py, spdy.py and the protocols above them.
"""

import asyncio
from typing import Final, Protocol

from aiohttp import WSMsgType, web

_LIMIT: Final = 256 * 1024


class ByteChannel(Protocol):
    """Bytes in both directions."""

    async def read(self) -> bytes:
        """The next bytes; empty at the end."""
        ...

    async def write(self, chunk: bytes) -> None:
        """Send all of it; raises ConnectionError."""
        ...

    async def close(self) -> None:
        """Stop sending, and close the connection."""
        ...


class WebSocketBytes:
    """The binary messages of a WebSocket, as one stream of bytes."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket

    async def read(self) -> bytes:
        """The next message; empty when the peer has closed."""
        while True:
            message = await self._socket.receive()
            if message.type in {WSMsgType.BINARY, WSMsgType.TEXT}:
                chunk = message.data.encode() if isinstance(message.data, str) else bytes(message.data)
                if chunk:
                    return chunk
            else:
                return b""

    async def write(self, chunk: bytes) -> None:
        """Send one message."""
        await self._socket.send_bytes(chunk)

    async def close(self) -> None:
        """Close the WebSocket in an orderly way."""
        await self._socket.close()


class Hijacked(web.StreamResponse):
    """A response whose connection `take` removes from the HTTP server."""

    async def take(self, request: web.Request, head: bytes) -> "StreamChannel":
        """Send `head` (a complete 101 response) and take over the connection; raises ConnectionResetError."""
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the client has gone")
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_LIMIT, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if isinstance(transport, asyncio.ReadTransport):
            transport.resume_reading()
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        writer.write(head)
        self.force_close()
        return StreamChannel(reader, writer)

    async def prepare(self, _request: web.BaseRequest) -> None:
        """Do nothing: `take` has written the response."""
        return

    async def write_eof(self, _chunk: object = b"") -> None:
        """Do nothing: the connection ends with the channel."""
        return


class StreamChannel:
    """The raw socket of an upgraded request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        """The bytes received since the last call; empty at the end."""
        try:
            return await self._reader.read(_LIMIT)
        except OSError:
            return b""

    async def write(self, chunk: bytes) -> None:
        """Send and wait until the buffer is not full."""
        self._writer.write(chunk)
        await self._writer.drain()

    async def close(self) -> None:
        """Close once everything is sent."""
        self._writer.close()
