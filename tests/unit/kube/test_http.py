"""One test per bullet of `HttpTransport`'s contract, against a socket that violates the protocol."""

import asyncio
import contextlib
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import parse_qs

import aiohttp
import pytest

from raytide.api.errors import ApiUnavailableError
from raytide.api.meta import RAYCLUSTERS
from raytide.kube.client import Client
from raytide.kube.http import MAX_BYTES, HttpTransport
from raytide.kube.transport import StreamStatusError, TooLargeError
from raytide.runtime.clock import Clock
from support.tls_server import TlsServer

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[HttpTransport]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    session = aiohttp.ClientSession()
    transport = HttpTransport(session, f"http://127.0.0.1:{port}/prefix/")
    try:
        yield transport
    finally:
        await transport.close()
        server.close()


def responding(*pieces: bytes, received: list[bytes] | None = None, and_then_s: float = 0.0) -> Handler:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        if received is not None:
            received.append(request)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        await asyncio.sleep(and_then_s)

    return handler


OK = b"HTTP/1.1 200 OK\r\nX-Who: me\r\nContent-Length: 2\r\n\r\nhi"
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


async def send(transport: HttpTransport, method: str = "POST", timeout_s: float = 5.0):
    return await transport.request(method, "/api/v1/x", query={"a": "b=c"}, body=b"{}", timeout_s=timeout_s)


async def test_an_answer_is_a_response_with_lower_case_headers():
    received: list[bytes] = []
    async with serving(responding(OK, received=received)) as transport:
        response = await send(transport)
    assert (response.status, response.body, response.headers["x-who"]) == (200, b"hi", "me")
    assert received[0].startswith(b"POST /prefix/api/v1/x?a=b%3Dc HTTP/1.1") or received[0].startswith(
        b"POST /prefix/api/v1/x?a=b=c HTTP/1.1"
    )


async def test_a_no_is_a_response_too():
    async with serving(responding(b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n")) as transport:
        assert (await send(transport)).status == 409


@pytest.mark.parametrize(
    "handler",
    [
        pytest.param(responding(and_then_s=30), id="no answer in time"),
        pytest.param(responding(), id="closed instead of answered"),
        pytest.param(responding(OK[:-1]), id="cut in the middle of the answer"),
        pytest.param(responding(b"nonsense\r\n\r\n"), id="not HTTP"),
    ],
)
@pytest.mark.parametrize(("method", "is_unknown"), [("POST", True), ("DELETE", True), ("PATCH", True), ("GET", False)])
async def test_an_error_after_sending_leaves_the_outcome_of_a_write_unknown(handler, method, is_unknown):
    async with serving(handler) as transport:
        with pytest.raises(ApiUnavailableError) as caught:
            await send(transport, method, timeout_s=0.2)
    assert caught.value.is_outcome_unknown is is_unknown
    assert str(caught.value)


async def test_a_refused_connection_means_that_nothing_happened():
    async with serving(responding(OK)) as transport:
        pass
    session = aiohttp.ClientSession()
    gone = HttpTransport(session, str(transport._server))
    with pytest.raises(ApiUnavailableError) as caught:
        await send(gone)
    await gone.close()
    assert not caught.value.is_outcome_unknown


async def test_a_stream_gives_bytes_as_they_come_and_ends_with_the_server():
    async with serving(responding(STREAM, chunk(b"one\n"), chunk(b"two\n"), b"0\r\n\r\n")) as transport:
        assert b"".join([piece async for piece in transport.stream("/w", silence_s=5)]) == b"one\ntwo\n"


@pytest.mark.parametrize(
    "handler",
    [
        pytest.param(responding(STREAM, chunk(b"one\n"), and_then_s=30), id="silent"),
        pytest.param(responding(STREAM, chunk(b"one\n")), id="cut"),
    ],
)
async def test_a_stream_that_breaks_keeps_what_came_before(handler):
    got = []
    async with serving(handler) as transport:
        stream = transport.stream("/w", silence_s=0.2)
        assert await anext(stream) == b"", "it is open"
        got.append(await anext(stream))
        with pytest.raises(ApiUnavailableError):
            await anext(stream)
    assert got == [b"one\n"]


async def test_a_stream_that_never_begins_is_unavailable():
    async with serving(responding(and_then_s=30)) as transport:
        with pytest.raises(ApiUnavailableError):
            [piece async for piece in transport.stream("/w", silence_s=0.2)]


async def test_opening_a_stream_has_a_shorter_timeout_than_an_open_silent_stream(monkeypatch):
    monkeypatch.setattr("raytide.kube.http.OPEN_STREAM_S", 0.2)
    async with serving(responding(and_then_s=30)) as transport:
        with pytest.raises(ApiUnavailableError):
            [piece async for piece in transport.stream("/w", silence_s=60)]


async def test_a_stream_answered_otherwise_is_rejected_with_the_answer():
    async with serving(responding(b"HTTP/1.1 410 Gone\r\nContent-Length: 3\r\n\r\nold")) as transport:
        with pytest.raises(StreamStatusError) as caught:
            [piece async for piece in transport.stream("/w", silence_s=5)]
    assert (caught.value.response.status, caught.value.response.body) == (410, b"old")


async def test_a_stream_that_is_closed_early_waits_for_no_answer_of_tls():
    with TlsServer() as server:
        transport = HttpTransport(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=server.client_context)), server.url
        )
        stream = transport.stream("/w", silence_s=5)
        assert [await anext(stream), await anext(stream)] == [b"", b"one"]
        await stream.aclose()
        assert await asyncio.to_thread(server.client_closed.wait, 5), "a silent server would keep the socket for 30 s"
        await transport.close()


async def test_a_stream_may_be_closed_early():
    async with serving(responding(STREAM, chunk(b"one\n"), and_then_s=30)) as transport:
        stream = transport.stream("/w", silence_s=5)
        assert [await anext(stream), await anext(stream)] == [b"", b"one\n"]
        await stream.aclose()


@pytest.mark.rule("D10")
async def test_no_body_leaves_after_its_time_even_if_the_process_was_stopped(monkeypatch):
    received: list[bytes] = []
    async with serving(responding(OK, received=received)) as transport:
        loop = asyncio.get_running_loop()
        asked = iter([loop.time()])
        real = loop.time
        # Asked once before sending, and then the process stands still for a minute.
        monkeypatch.setattr(loop, "time", lambda: next(asked, real() + 60))
        with pytest.raises(ApiUnavailableError) as caught:
            await send(transport, timeout_s=5.0)
        monkeypatch.undo()
    assert received == []
    assert not caught.value.is_outcome_unknown


class SuspendedClock(Clock):
    """Of a machine that sleeps for a minute between the gate and the sending: only `boottime` goes on meanwhile."""

    def __init__(self):
        self.readings = 0

    def boottime(self):
        self.readings += 1
        return self.monotonic() + (60 if self.readings > 1 else 0)


@pytest.mark.rule("FD:REL-F", "D10")
async def test_no_body_leaves_after_its_time_even_if_the_machine_was_suspended():
    received: list[bytes] = []
    async with serving(responding(OK, received=received)) as transport:
        transport._clock = SuspendedClock()
        with pytest.raises(ApiUnavailableError) as caught:
            await send(transport, timeout_s=5.0)
    assert received == []
    assert not caught.value.is_outcome_unknown


LARGE = b"x" * (1 << 20)


def flooding(*, has_content_length: bool) -> Handler:
    """An answer of a gigabyte, as far as it is read."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"Content-Length: 1073741824" if has_content_length else b"Transfer-Encoding: chunked"
        writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(1024):
                writer.write(LARGE if has_content_length else chunk(LARGE))
                await writer.drain()

    return handler


@pytest.mark.rule("FD:SEC-F1")
@pytest.mark.parametrize("has_content_length", [True, False])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_answer_without_end_is_not_read_to_its_end(method, has_content_length):
    async with serving(flooding(has_content_length=has_content_length)) as transport:
        tracemalloc.start()
        try:
            with pytest.raises(TooLargeError) as caught:
                await send(transport, method)
            assert tracemalloc.get_traced_memory()[1] < 3 * MAX_BYTES
        finally:
            tracemalloc.stop()
    assert caught.value.is_outcome_unknown == (method == "POST")


def listing(count: int) -> Handler:
    """That many objects of a megabyte each, in pages of the requested size."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while request := await reader.readuntil(b"\r\n\r\n"):
                query = parse_qs(request.split()[1].decode().partition("?")[2])
                begin = int(query.get("continue", ["0"])[0])
                end = min(count, begin + int(query["limit"][0]))
                more = str(end) if end < count else ""
                writer.write(STREAM)
                writer.write(chunk(b'{"metadata":{"resourceVersion":"7","continue":"%s"},"items":[' % more.encode()))
                for number in range(begin, end):
                    comma = b"," if number > begin else b""
                    writer.write(chunk(comma + b'{"metadata":{"name":"n%d"},"spec":"%s"}' % (number, LARGE)))
                    await writer.drain()
                writer.write(chunk(b"]}") + b"0\r\n\r\n")
                await writer.drain()

    return handler


@pytest.mark.rule("FD:SEC-F1")
async def test_a_list_of_large_objects_takes_a_bounded_amount_of_memory():
    async with serving(listing(300)) as transport:
        client, found = Client(transport, clock=Clock()), 0
        tracemalloc.start()
        try:
            async for page in client.pages(RAYCLUSTERS):
                found += len(page.items)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert found == 300
    assert peak < 4 * MAX_BYTES, f"{peak >> 20} MiB"
