"""An aiohttp connector whose `close()` waits until all its sockets are closed.

aiohttp's `TCPConnector.close()` waits only for the idle connections of its pool. A TLS connection whose response was
abandoned waits up to 30 s for the server's close_notify, and stays open if the event loop ends first.
`ClosingConnector` waits for those as well. Used by the fault proxy, the process kubelet and the tests.
"""

import asyncio
import socket
from typing import Any, Final
from weakref import WeakSet

import aiohttp

_POLL_S: Final = 0.005
_CLOSED_WITHIN_S: Final = 20.0
"""Limit for servers that send no close_notify; after it, the kernel closes the socket with the process."""


class ClosingConnector(aiohttp.TCPConnector):
    """A `TCPConnector` whose `close()` returns when every socket it opened is closed, or after 20 s."""

    def __init__(self, **options: Any) -> None:
        """Takes the options of `TCPConnector` except `socket_factory`."""
        self._opened: WeakSet[socket.socket] = WeakSet()
        super().__init__(socket_factory=self._open, **options)

    def _open(self, address: aiohttp.AddrInfoType) -> socket.socket:
        opened = socket.socket(*address[:3])
        self._opened.add(opened)
        return opened

    async def close(self, *, abort_ssl: bool = False) -> None:
        """Close idle connections and those in use, and wait until these and earlier ones are closed."""
        await super().close(abort_ssl=abort_ssl)
        deadline = asyncio.get_running_loop().time() + _CLOSED_WITHIN_S
        while any(one.fileno() != -1 for one in self._opened):  # a socket's close cannot be awaited
            if asyncio.get_running_loop().time() >= deadline:
                return
            await asyncio.sleep(_POLL_S)
