"""Multiplexed streams over one connection (SPDY/3.1), from the client's side."""

import asyncio
import struct
import zlib

import pytest

from raytide_sandbox.streaming.spdy import SpdyConnection, SpdyError
from raytide_sandbox.streaming.spdy_header_dictionary import DICTIONARY
from support.deadlines import PATIENCE


class Client:
    """The other end: what it sends is read by the connection, what the connection writes is taken apart."""

    def __init__(self):
        self._incoming: asyncio.Queue[bytes] = asyncio.Queue()
        self._outgoing = bytearray()
        self._deflate, self._inflate = zlib.compressobj(zdict=DICTIONARY), zlib.decompressobj(zdict=DICTIONARY)

    # the ByteChannel that the connection sees
    async def read(self):
        return await self._incoming.get()

    async def write(self, chunk):
        self._outgoing += chunk

    async def close(self):
        self._outgoing += b""

    # the client
    def send(self, raw):
        self._incoming.put_nowait(raw)

    def hang_up(self):
        self.send(b"")

    def open(self, number, headers, *, is_last=False):
        plain = struct.pack(">I", len(headers))
        for word in (word for pair in headers.items() for word in pair):
            plain += struct.pack(">I", len(word)) + word.encode()
        packed = self._deflate.compress(plain) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        self.send(self.control(1, struct.pack(">IIH", number, 0, 0) + packed, flags=int(is_last)))

    def data(self, number, chunk, *, is_last=False):
        self.send(struct.pack(">II", number, int(is_last) << 24 | len(chunk)) + chunk)

    @staticmethod
    def control(kind, payload, flags=0):
        return struct.pack(">II", 1 << 31 | 3 << 16 | kind, flags << 24 | len(payload)) + payload

    def frames(self):
        """(kind or "data", number, flags, payload) of everything the connection has written."""
        found, position = [], 0
        while position < len(self._outgoing):
            first, second = struct.unpack_from(">II", self._outgoing, position)
            payload = bytes(self._outgoing[position + 8 : position + 8 + (second & 0xFFFFFF)])
            if first >> 31:
                found.append((first & 0xFFFF, int.from_bytes(payload[:4]), second >> 24, payload[4:]))
            else:
                found.append(("data", first, second >> 24, payload))
            position += 8 + (second & 0xFFFFFF)
        return found


@pytest.fixture
async def wire():
    client = Client()
    connection = SpdyConnection(client)
    reading = asyncio.create_task(connection.run())
    yield client, connection
    client.hang_up()
    await asyncio.gather(reading, return_exceptions=True)


async def test_a_stream_is_agreed_to_and_carries_its_headers(wire):
    client, connection = wire
    client.open(1, {"streamtype": "error", "Port": "8265"})
    stream = await connection.accept()
    assert (stream.number, stream.headers) == (1, {"streamtype": "error", "port": "8265"})
    assert client.frames()[0][:2] == (2, 1)


async def test_headers_of_later_streams_share_one_compression(wire):
    client, connection = wire
    for number in (1, 3, 5):
        client.open(number, {"streamtype": "data", "requestid": str(number)})
    assert [(await connection.accept()).headers["requestid"] for _ in range(3)] == ["1", "3", "5"]


async def test_data_flows_both_ways_and_either_side_may_close_first(wire):
    client, connection = wire
    client.open(1, {})
    stream = await connection.accept()
    client.data(1, b"ping", is_last=True)
    assert [await stream.read(), await stream.read(), await stream.read()] == [b"ping", b"", b""]
    await stream.write(b"pong")
    await stream.close_write()
    assert client.frames()[1:] == [("data", 1, 0, b"pong"), ("data", 1, 1, b"")]
    with pytest.raises(ConnectionError):
        await stream.write(b"more")


async def test_long_data_is_cut_into_frames(wire):
    client, connection = wire
    client.open(1, {})
    stream = await connection.accept()
    await stream.write(bytes(100_000))
    frames = client.frames()[1:]
    assert len(frames) > 1
    assert sum(len(payload) for *_, payload in frames) == 100_000


async def test_frames_may_arrive_in_any_pieces(wire):
    client, connection = wire
    client.open(1, {})
    stream = await connection.accept()
    for byte in struct.pack(">II", 1, 5) + b"hello":
        client.send(bytes([byte]))
    assert await stream.read() == b"hello"


async def test_a_ping_comes_back(wire):
    client, connection = wire
    client.send(client.control(6, struct.pack(">I", 7)))
    client.open(1, {})
    await connection.accept()
    assert client.frames()[0] == (6, 7, 0, b"")


async def test_a_reset_ends_reading_and_writing(wire):
    client, connection = wire
    client.open(1, {})
    stream = await connection.accept()
    client.send(client.control(3, struct.pack(">II", 1, 5)))
    assert await stream.read() == b""
    with pytest.raises(ConnectionError):
        await stream.write(b"x")


async def test_a_stream_without_a_reader_holds_up_no_other(wire):
    client, connection = wire
    client.open(1, {})
    client.open(3, {})
    deaf, other = await connection.accept(), await connection.accept()
    deaf.stop_reading()
    for _ in range(500):
        client.data(1, b"x")
    client.data(3, b"here")
    assert await asyncio.wait_for(other.read(), 2 * PATIENCE) == b"here"


async def test_the_end_of_the_connection_ends_every_stream_and_accept(wire):
    client, connection = wire
    client.open(1, {})
    stream = await connection.accept()
    client.hang_up()
    assert await stream.read() == b""
    assert await connection.accept() is None


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(struct.pack(">II", 1 << 31 | 2 << 16 | 1, 0), id="another version"),
        pytest.param(struct.pack(">II", 1 << 31 | 3 << 16 | 1, 0), id="a stream without a number"),
        pytest.param(Client.control(1, bytes(10) + b"garbage"), id="headers that are not compressed"),
    ],
)
async def test_garbage_is_an_error_of_its_own(garbage):
    client = Client()
    client.send(garbage)
    with pytest.raises(SpdyError):
        await SpdyConnection(client).run()
