"""Network relay: connections from one network into another, such as that of the pods.

Input: a function that connects to the other side. While the context lasts, every connection to a port on loopback
(`relay`) or to another listening socket (`relay_from`) is relayed to that side. Bytes are copied unchanged and
half-closes are passed on. Used by kubelet/probes.py and portproxy.py for a single exchange each, by nodeports.py for the
lifetime of a service, and by raytide_sandbox/controlplane/kubernetes.py for pods that call their API server.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

_CHUNK: Final = 64 * 1024

Connect = Callable[[], Awaitable[socket.socket]]


@contextlib.asynccontextmanager
async def relay(connect: Connect, *, port: int = 0) -> AsyncIterator[int]:
    """Relay connections to a loopback port, which is yielded; raises OSError if a given `port` is taken."""
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
    except OSError:
        listener.close()
        raise
    async with relay_from(listener, connect):
        yield listener.getsockname()[1]


@contextlib.asynccontextmanager
async def relay_from(listener: socket.socket, connect: Connect) -> AsyncIterator[None]:
    """Relay connections to `listener`, which is closed at the end."""
    copies: set[asyncio.Task[None]] = set()

    async def copy_both(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task:
            copies.add(task)
        try:
            await join(reader, writer, await connect())
        except OSError:
            return
        finally:
            writer.close()

    server = await asyncio.start_server(copy_both, sock=listener)
    try:
        yield
    finally:
        server.close()
        for task in copies:
            task.cancel()
        await asyncio.gather(*copies, return_exceptions=True)


async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, far: socket.socket) -> None:
    """Copy both ways until both have ended, then close the far side."""
    far_reader, far_writer = await asyncio.open_connection(sock=far)
    try:
        await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))
    finally:
        far_writer.close()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end, then half-close the writing side."""
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
