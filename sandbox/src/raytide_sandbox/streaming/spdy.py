"""SPDY/3.1 server: several streams over one connection of a Kubernetes client.

Implements what exec and port-forward use: streams that the client opens with headers, data in both directions,
half-closes, resets and pings. Bytes come from and go to a `ByteChannel`; `accept` returns each new stream. There is no
flow control besides the connection's own, as in the Go library that Kubernetes clients use. Used by remotecommand.py
and portforward.py.
"""

import asyncio
import struct
import zlib
from collections.abc import Mapping
from typing import Final

from raytide_sandbox.streaming.byte_channels import ByteChannel
from raytide_sandbox.streaming.spdy_header_dictionary import DICTIONARY

_VERSION: Final = 3
_SYN_STREAM: Final = 1
_SYN_REPLY: Final = 2
_RST_STREAM: Final = 3
_PING: Final = 6
_HEADERS: Final = 8
_FLAG_FIN: Final = 1
_CONTROL: Final = 1 << 31
_HEAD_BYTES: Final = 8
_STREAM_MASK: Final = 0x7FFFFFFF
_REFUSED_STREAM: Final = 3
_MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
_DATA_BYTES: Final = 32 * 1024
_QUEUED_CHUNKS: Final = 64

Headers = Mapping[str, str]


class SpdyError(Exception):
    """The peer does not speak SPDY/3."""


class SpdyStream:
    """One stream, opened by the peer."""

    def __init__(self, connection: "SpdyConnection", number: int, headers: Headers) -> None:
        self.number = number
        self.headers = headers
        self._connection = connection
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue(_QUEUED_CHUNKS)
        self._has_ended = False
        self._is_closed = False
        self._is_ignored = False

    async def read(self) -> bytes:
        """The next bytes; empty at the end."""
        if self._has_ended:
            return b""
        chunk = await self._chunks.get()
        self._has_ended = not chunk
        return chunk

    async def write(self, chunk: bytes) -> None:
        """Send all of it; raises ConnectionError when the stream or the connection is gone."""
        if self._is_closed:
            raise ConnectionResetError("the stream is closed")
        for begin in range(0, len(chunk), _DATA_BYTES):
            await self._connection.send_data(self.number, chunk[begin : begin + _DATA_BYTES])

    async def close_write(self) -> None:
        """Half-close: nothing more will be written."""
        if not self._is_closed:
            self._is_closed = True
            await self._connection.send_data(self.number, b"", is_last=True)

    async def reset(self) -> None:
        """Reset the stream."""
        if not self._is_closed:
            self._is_closed = True
            await self._connection.send_reset(self.number)

    def stop_reading(self) -> None:
        """Discard data that still arrives, so that it blocks no other stream."""
        self._is_ignored = True
        while not self._chunks.empty():
            self._chunks.get_nowait()

    async def feed(self, chunk: bytes) -> None:
        """Accept received data; empty at the end."""
        if not self._is_ignored:
            await self._chunks.put(chunk)

    def cut(self) -> None:
        """End the stream: the peer has reset it, or the connection is gone."""
        self._is_closed = True
        while self._chunks.full():
            self._chunks.get_nowait()
        self._chunks.put_nowait(b"")


class SpdyConnection:
    """The serving end of a connection; `run` reads frames until it is closed."""

    def __init__(self, channel: ByteChannel) -> None:
        self._channel = channel
        self._buffer = bytearray()
        self._streams: dict[int, SpdyStream] = {}
        self._opened: asyncio.Queue[SpdyStream | None] = asyncio.Queue()
        self._sending = asyncio.Lock()
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    async def accept(self) -> SpdyStream | None:
        """The next stream that the client opens, with the reply already sent; None when the connection has ended."""
        return await self._opened.get()

    async def run(self) -> None:
        """Read frames until the end; raises SpdyError."""
        try:
            while (frame := await self._frame()) is not None:
                await self._receive(*frame)
        finally:
            for stream in self._streams.values():
                stream.cut()
            self._opened.put_nowait(None)

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()

    async def send_data(self, number: int, chunk: bytes, *, is_last: bool = False) -> None:
        """Send one data frame."""
        head = struct.pack(">II", number, (_FLAG_FIN if is_last else 0) << 24 | len(chunk))
        await self._send(head + chunk)

    async def send_reset(self, number: int) -> None:
        """Reset a stream."""
        self._streams.pop(number, None)
        await self._send(_control(_RST_STREAM, struct.pack(">II", number, _REFUSED_STREAM)))

    # --- receiving -----------------------------------------------------------------------------------------------
    async def _frame(self) -> tuple[int, int, bytes] | None:
        """First word, flags and payload of the next frame; None at the end."""
        head = await self._exactly(_HEAD_BYTES)
        if head is None:
            return None
        first, second = struct.unpack(">II", head)
        flags, length = second >> 24, second & 0xFFFFFF
        if length > _MAX_FRAME_BYTES:
            raise SpdyError(f"a frame of {length} bytes")
        payload = await self._exactly(length)
        return None if payload is None else (first, flags, payload)

    async def _exactly(self, count: int) -> bytes | None:
        while len(self._buffer) < count:
            chunk = await self._channel.read()
            if not chunk:
                return None
            self._buffer += chunk
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    async def _receive(self, first: int, flags: int, payload: bytes) -> None:
        if not first & _CONTROL:
            await self._receive_data(first, flags, payload)
            return
        if (first >> 16) & 0x7FFF != _VERSION:
            raise SpdyError("not SPDY/3")
        kind = first & 0xFFFF
        if kind == _SYN_STREAM:
            await self._open(payload, flags)
        elif kind == _RST_STREAM:
            stream = self._streams.pop(_number(payload), None)
            if stream:
                stream.cut()
        elif kind == _PING:
            await self._send(_control(_PING, payload))
        elif kind in {_HEADERS, _SYN_REPLY}:
            self._read_headers(payload[4:])  # keeps the shared compression state in step
        # SETTINGS, WINDOW_UPDATE and GOAWAY need no action: the client closes the connection when it is done

    async def _receive_data(self, number: int, flags: int, payload: bytes) -> None:
        stream = self._streams.get(number)
        if stream is None:
            return
        if payload:
            await stream.feed(payload)
        if flags & _FLAG_FIN:
            await stream.feed(b"")

    async def _open(self, payload: bytes, flags: int) -> None:
        number = _number(payload)
        stream = SpdyStream(self, number, self._read_headers(payload[10:]))
        self._streams[number] = stream
        await self._send(_control(_SYN_REPLY, struct.pack(">I", number) + self._packed_headers({})))
        if flags & _FLAG_FIN:
            await stream.feed(b"")
        self._opened.put_nowait(stream)

    # --- headers -------------------------------------------------------------------------------------------------
    def _read_headers(self, packed: bytes) -> dict[str, str]:
        try:
            return _unpack_headers(self._inflate.decompress(packed))
        except (zlib.error, struct.error) as error:
            raise SpdyError(f"unreadable headers: {error}") from error

    def _packed_headers(self, headers: Headers) -> bytes:
        plain = struct.pack(">I", len(headers))
        for name, value in headers.items():
            for word in (name.lower().encode(), value.encode()):
                plain += struct.pack(">I", len(word)) + word
        return self._deflate.compress(plain) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    async def _send(self, frame: bytes) -> None:
        async with self._sending:
            await self._channel.write(frame)


def _control(kind: int, payload: bytes) -> bytes:
    return struct.pack(">II", _CONTROL | _VERSION << 16 | kind, len(payload)) + payload


def _number(payload: bytes) -> int:
    if len(payload) < 4:
        raise SpdyError("a frame without a stream number")
    return int.from_bytes(payload[:4]) & _STREAM_MASK


def _unpack_headers(plain: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    (count,), position = struct.unpack_from(">I", plain), 4
    for _ in range(count):
        words = []
        for _ in range(2):
            (length,) = struct.unpack_from(">I", plain, position)
            words.append(plain[position + 4 : position + 4 + length].decode("latin-1"))
            position += 4 + length
        headers[words[0].lower()] = words[1]
    return headers
