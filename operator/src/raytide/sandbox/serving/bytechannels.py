"""How do bytes go back and forth on a connection that has stopped being HTTP?

Two ways to one small protocol, `ByteChannel`: the binary messages of a WebSocket, and the raw socket of a request that
asked for an upgrade the HTTP server does not know (SPDY). Reading ends with empty bytes, writing waits while the other
side is slow and raises ConnectionError when it has gone. Used by server.py and the protocols above it.
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
        """Send nothing more and let go."""
        ...


class WebSocketBytes:
    """The binary messages of a WebSocket, as one stream of bytes."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket

    async def read(self) -> bytes:
        """The next message; empty when the other side has closed."""
        while True:
            message = await self._socket.receive()
            if message.type in {WSMsgType.BINARY, WSMsgType.TEXT}:
                chunk = message.data.encode() if isinstance(message.data, str) else bytes(message.data)
                if chunk:
                    return chunk
            else:
                return b""

    async def write(self, chunk: bytes) -> None:
        """One message."""
        await self._socket.send_bytes(chunk)

    async def close(self) -> None:
        """Close the WebSocket in an orderly way."""
        await self._socket.close()


class Hijacked(web.StreamResponse):
    """An answer whose connection no longer belongs to the HTTP server; `channel` is there once `take` has returned."""

    async def take(self, request: web.Request, head: bytes) -> "StreamChannel":
        """Send `head` (a complete 101 answer) and take the connection over."""
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
        """Nothing: the answer was written by `take`."""
        return

    async def write_eof(self, _chunk: object = b"") -> None:
        """Nothing: the connection ends with the channel."""
        return


class StreamChannel:
    """A socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        """Whatever has come."""
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
