"""TLS in front of an API server that speaks plain HTTP: a pod always connects with TLS.

Writes the certificate authority as `ca.crt` into a folder, which the caller makes a service account. Used by tests of
processes that connect as in a pod.
"""

import asyncio
import contextlib
import ssl
from datetime import UTC, datetime
from pathlib import Path

from raytide_sandbox.certificates import make_certificates


class TlsProxy:
    """Forwards each TLS connection to the server on that port of loopback."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = 0
        self._behind = port
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self):
        made = make_certificates(datetime.now(UTC), ["127.0.0.1"])
        for name, content in (("ca.crt", made.authority), ("tls.crt", made.server), ("tls.key", made.server_key)):
            (self.folder / name).write_bytes(content)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(self.folder / "tls.crt", self.folder / "tls.key")
        self._server = await asyncio.start_server(self._meet, "127.0.0.1", 0, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _meet(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._behind)
        with contextlib.suppress(OSError, ssl.SSLError):
            await asyncio.gather(_pipe(reader, inner_writer), _pipe(inner_reader, writer))
        for end in (writer, inner_writer):
            end.close()


async def _pipe(reader, writer):
    while chunk := await reader.read(65536):
        writer.write(chunk)
        await writer.drain()
    writer.close()
