"""Asynchronous ends of a command's standard streams.

A reader and a writer over a non-blocking file descriptor, a pipe or a terminal. Each call transfers bytes directly and
waits in the event loop only while the kernel would block; there is no thread and no buffer. A terminal closed by its
last user is at end of file. Made by stdio.py for containers and execs, used by the kubelet's server.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import struct
import termios
from collections.abc import Callable
from typing import Any, Final

_CTRL_D: Final = b"\x04"


async def _wait_until(fd: int, add: Callable[..., Any], remove: Callable[[int], Any]) -> None:
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    add(fd, wake)
    try:
        await ready
    finally:
        remove(fd)


class FdReader:
    """A `ReadEnd` over a descriptor that it owns."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd

    async def read(self, limit_bytes: int = 65536) -> bytes:
        """Read the next bytes; empty at end of file."""
        loop = asyncio.get_running_loop()
        while self._fd >= 0:
            try:
                return os.read(self._fd, limit_bytes)
            except BlockingIOError:
                await _wait_until(self._fd, loop.add_reader, loop.remove_reader)
            except OSError as error:
                if error.errno == errno.EIO:  # a terminal whose other side is closed
                    return b""
                raise
        return b""

    def close(self) -> None:
        """Close the descriptor."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


class FdWriter:
    """A `WriteEnd` over a descriptor that it owns."""

    def __init__(self, fd: int, *, is_tty: bool) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._is_tty = is_tty

    async def write(self, chunk: bytes) -> None:
        """Write all of `chunk`; raises BrokenPipeError after `close`."""
        loop = asyncio.get_running_loop()
        while chunk:
            if self._fd < 0:
                raise BrokenPipeError(errno.EPIPE, "already closed")
            try:
                chunk = chunk[os.write(self._fd, chunk) :]
            except BlockingIOError:
                await _wait_until(self._fd, loop.add_writer, loop.remove_writer)

    def close(self) -> None:
        """Close the descriptor, after Ctrl-D on a terminal: end of file for the command."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().remove_writer(fd)
        if self._is_tty:
            with contextlib.suppress(OSError):
                os.write(fd, _CTRL_D)
        os.close(fd)

    def resize(self, columns: int, rows: int) -> None:
        """Set the terminal's size; no effect on a pipe."""
        if self._is_tty and self._fd >= 0:
            fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
