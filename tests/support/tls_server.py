"""A TLS server on loopback that opens a stream for every request, and ends it late or never.

It runs in threads and reads no TLS record after the request: only whether the client closed the TCP connection is seen.
Used by the tests of the HTTP clients.
"""

import contextlib
import os
import socket
import ssl
import threading
from datetime import UTC, datetime
from typing import Self

from raytide_sandbox.certificates import Identity, make_certificates
from support.deadlines import PATIENCE

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n"
HOST = "127.0.0.1"


class TlsServer:
    """Answers with one chunk of a stream; `closes_after_s` after the request it closes the connection."""

    def __init__(self, *, closes_after_s: float | None = None) -> None:
        certificates = make_certificates(datetime.now(UTC), [HOST])
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        Identity(certificates.server, certificates.server_key).load_into(self._context)
        self.client_context = ssl.create_default_context(cadata=certificates.authority.decode())
        self._closes_after_s = closes_after_s
        self._listener = socket.create_server((HOST, 0))
        self.url = f"https://{HOST}:{self._listener.getsockname()[1]}"
        self._connections: list[ssl.SSLSocket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self.client_closed = threading.Event()
        """The client closed a TCP connection, with or without close_notify before."""

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.close_connections()
        for thread in self._threads:
            thread.join(10 * PATIENCE)
        for one in self._connections:
            one.close()

    def close_connections(self) -> None:
        """End every connection without close_notify."""
        for one in self._connections:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=(plain,), daemon=True))
            self._threads[-1].start()

    def _serve(self, plain: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection = self._context.wrap_socket(plain, server_side=True)
            self._connections.append(connection)
            connection.recv(65536)
            connection.sendall(HEAD)
            self._wait_for_end(connection)

    def _wait_for_end(self, connection: ssl.SSLSocket) -> None:
        if self._closes_after_s is not None:
            threading.Event().wait(self._closes_after_s)
            connection.shutdown(socket.SHUT_RDWR)
            return
        with socket.socket(fileno=os.dup(connection.fileno())) as records:
            try:
                while records.recv(65536):
                    pass
            except ConnectionResetError:
                pass
        self.client_closed.set()
