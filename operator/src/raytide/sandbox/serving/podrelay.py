"""How does a library that opens its connections itself get into a pod's network?

Takes a way to connect to the pod; gives, for as long as the context lasts, a port on loopback behind which every
connection is one to the pod. Bytes are copied as they are and half-closing is passed on. Used by grpchealth.py and
portproxy.py for a single exchange each, and by nodeports.py for as long as a service stands.
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
    """A port on loopback that leads into the pod; raises OSError when that very `port` is taken."""
    copies: set[asyncio.Task[None]] = set()

    async def copy_both(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task:
            copies.add(task)
        try:
            pod_reader, pod_writer = await asyncio.open_connection(sock=await connect())
        except OSError:
            writer.close()
            return
        try:
            await asyncio.gather(copy(reader, pod_writer), copy(pod_reader, writer))
        finally:
            pod_writer.close()
            writer.close()

    server = await asyncio.start_server(copy_both, "127.0.0.1", port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in copies:
            task.cancel()
        await asyncio.gather(*copies, return_exceptions=True)


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until the end; then nothing more is written."""
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
