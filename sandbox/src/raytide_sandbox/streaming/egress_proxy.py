"""Egress proxy: the HTTP CONNECT proxy through which kube-apiserver reaches the pods' network.

kube-apiserver uses it for every connection into the cluster (its egress selector): to pods and services for
`kubectl proxy`, to webhooks, and to kubelets. It listens on a unix socket in a directory of the sandbox's owner.
Loopback addresses are dialled on this machine, all others in the pods' network. Started by
raytide_sandbox/controlplane/kubernetes.py.
"""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from raytide_sandbox.streaming.network_relay import join

_END_OF_HEAD: Final = b"\r\n\r\n"
_HEAD_S: Final = 10.0
_DIAL_S: Final = 10.0

Dial = Callable[[str, int, float], Awaitable[socket.socket]]
"""A connected socket to that address and port in the pods' network, within that many seconds; raises OSError."""


def build_egress_configuration(path: Path) -> dict[str, Any]:
    """The content of `--egress-selector-config-file` for a proxy at `path`."""
    connection = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": str(path)}}}
    return {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": connection}],
    }


@contextlib.asynccontextmanager
async def egress_proxy(path: Path, dial: Dial) -> AsyncIterator[None]:
    """Serve CONNECT on a unix socket at `path` for as long as the context lasts."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task:
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        try:
            await _serve(reader, writer, dial)
        finally:
            writer.close()

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, dial: Dial) -> None:
    with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        async with asyncio.timeout(_HEAD_S):
            head = await reader.readuntil(_END_OF_HEAD)
        try:
            connection = await _connect(*_target(head), dial)
        except ValueError:
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            return
        except OSError as error:
            why = str(error).replace("\n", " ").encode()
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: %d\r\n\r\n%s" % (len(why), why))
            return
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await join(reader, writer, connection)


def _target(head: bytes) -> tuple[str, int]:
    """Address and port of a CONNECT request; raises ValueError."""
    method, place, *_ = [*head.decode("latin-1").split(), "", ""]
    host, _, port = place.rpartition(":")
    if method != "CONNECT":
        raise ValueError(f"not a CONNECT: {method}")
    return str(ipaddress.ip_address(host.strip("[]"))), int(port)


async def _connect(host: str, port: int, dial: Dial) -> socket.socket:
    if not ipaddress.ip_address(host).is_loopback:
        return await dial(host, port, _DIAL_S)
    return await connect_here(host, port)


async def connect_here(host: str, port: int) -> socket.socket:
    """A connected, non-blocking socket to a port of this machine; raises OSError."""
    opened = socket.socket()
    opened.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(opened, (host, port))
    except BaseException:
        opened.close()
        raise
    return opened
