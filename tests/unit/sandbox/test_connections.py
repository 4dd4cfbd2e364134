"""`ClosingConnector` against a server whose TLS handshake is late or never ends."""

import asyncio
import socket
import time

import aiohttp
import pytest

from raytide_sandbox import connections
from raytide_sandbox.connections import ClosingConnector
from support.deadlines import PATIENCE
from support.tls_server import TlsServer

LATE_S = 0.3


async def _cancelled_stream(server: TlsServer) -> tuple[list[socket.socket], aiohttp.ClientSession]:
    """The sockets of a session in which a stream was cancelled, and the session, still open."""
    session = aiohttp.ClientSession(connector=ClosingConnector(ssl=server.client_context))
    is_open = asyncio.Event()

    async def follow() -> None:
        async with session.get(server.url) as answer:
            async for _ in answer.content.iter_any():
                is_open.set()

    following = asyncio.create_task(follow())
    async with asyncio.timeout(10 * PATIENCE):
        await is_open.wait()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert isinstance(session.connector, ClosingConnector)
    return list(session.connector._opened), session


async def test_a_stream_that_was_cancelled_is_closed_when_the_session_is():
    with TlsServer(closes_after_s=LATE_S) as server:
        opened, session = await _cancelled_stream(server)
        assert [one.fileno() != -1 for one in opened] == [True], "it waits for the server's close_notify"
        await session.close()
        assert [one.fileno() for one in opened] == [-1]


async def test_a_server_that_never_answers_is_waited_for_so_long_and_no_longer(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "_CLOSED_WITHIN_S", 0.1)
    with TlsServer() as server:
        opened, session = await _cancelled_stream(server)
        connector = session.connector
        assert isinstance(connector, ClosingConnector)
        began = time.monotonic()
        await session.close()
        assert 0.1 <= time.monotonic() - began < 10
        server.close_connections()
        monkeypatch.setattr(connections, "_CLOSED_WITHIN_S", 10.0)
        await connector.close()
        assert [one.fileno() for one in opened] == [-1], "all of them are gone before a test's event loop is"
