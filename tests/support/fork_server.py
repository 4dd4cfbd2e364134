"""`raytide operator` forked from a process that has imported it: importing takes most of a second of a processor.

The suite starts an operator in most of its integration tests. What such a process does from its first argument to its exit
code is what one that a shell started does; only its imports were made before. `ForkServer` is the client, and this file run as
a program the server. Each request carries the arguments and the environment, a file descriptor for standard error, and one for
the exit code. The fork server of `multiprocessing` would import pytest, as the main module, in each process, and ends processes
without atexit.
"""

import asyncio
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

IMPORTED: Final = ("raytide.cli.operator", "raytide.manager.main", "raytide.kube.kubeconfig", "kubernetes.aio.config")
"""What an operator imports before it is ready."""
MAX_REQUEST_BYTES: Final = 1 << 17


class ForkedProcess:
    """What tests need of `asyncio.subprocess.Process`, for a process that another one forked."""

    def __init__(self, pid: int, exit_fd: int, stderr: asyncio.StreamReader) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stderr = stderr
        self._exit_fd = exit_fd
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._loop.add_reader(exit_fd, self._end)

    async def wait(self) -> int:
        """Its exit code once it ends; -N if signal N ended it."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Raises ProcessLookupError when it has ended."""
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _end(self) -> None:
        self._loop.remove_reader(self._exit_fd)
        self.returncode = os.waitstatus_to_exitcode(int(os.read(self._exit_fd, 16) or b"9"))  # 9: with its server
        os.close(self._exit_fd)
        self._ended.set()


class ForkServer:
    """The server of this process: begun with the first request, ended with this process."""

    _connection: socket.socket | None = None
    _server: subprocess.Popen[bytes]
    _one_request = threading.Lock()

    @classmethod
    async def operator(cls, *flags: str, environ: Mapping[str, str]) -> ForkedProcess:
        """Start `raytide operator` with these flags."""
        stderr_fd, their_stderr_fd = os.pipe()
        exit_fd, their_exit_fd = os.pipe()
        request = json.dumps(
            {"argv": ["raytide", "operator", *flags], "environ": dict(environ), "cwd": str(Path.cwd())}
        )
        try:
            pid = await asyncio.to_thread(cls._fork, request.encode(), [their_stderr_fd, their_exit_fd])
        finally:
            os.close(their_stderr_fd)
            os.close(their_exit_fd)
        stderr = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stderr), os.fdopen(stderr_fd, "rb", buffering=0)
        )
        return ForkedProcess(pid, exit_fd, stderr)

    @classmethod
    def _fork(cls, request: bytes, fds: list[int]) -> int:
        with cls._one_request:
            if cls._connection is None:
                cls._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with theirs:
                    command = [sys.executable, __file__, str(theirs.fileno())]
                    cls._server = subprocess.Popen(command, pass_fds=[theirs.fileno()])
            socket.send_fds(cls._connection, [request], fds)
            return int(cls._connection.recv(16))


def serve(connection: socket.socket) -> dict[str, object] | None:
    """Fork until the client is gone (None); in a forked process, what it was asked for."""
    for name in IMPORTED:
        __import__(name)
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy the pages of what it looks at
    selector = selectors.DefaultSelector()
    selector.register(connection, selectors.EVENT_READ)
    exit_fds: dict[int, tuple[int, int]] = {}  # by the fd that the kernel makes ready when a process ends
    while True:
        for key, _ in selector.select():
            if key.fd in exit_fds:
                selector.unregister(key.fd)
                pid, exit_fd = exit_fds.pop(key.fd)
                with suppress(BrokenPipeError):  # the test that started it is over
                    os.write(exit_fd, str(os.waitpid(pid, 0)[1]).encode())
                os.close(exit_fd)
                os.close(key.fd)
                continue
            request, fds, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, 2)
            if not request:
                return None
            stderr_fd, exit_fd = fds
            pid = os.fork()
            if pid == 0:
                os.dup2(stderr_fd, 2)
                selector.close()
                for fd in (*fds, connection.fileno(), *exit_fds, *(fd for _, fd in exit_fds.values())):
                    os.close(fd)
                connection.detach()
                asked: dict[str, object] = json.loads(request)
                return asked
            os.close(stderr_fd)
            pid_fd = os.pidfd_open(pid)
            exit_fds[pid_fd] = pid, exit_fd
            selector.register(pid_fd, selectors.EVENT_READ)
            connection.send(str(pid).encode())


def main() -> None:
    """Serve, and in each forked process be `python -m raytide`."""
    del sys.path[0]  # the folder of this file
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        os.environ.clear()
        os.environ.update(asked["environ"])  # type: ignore[arg-type]
        os.chdir(str(asked["cwd"]))
        sys.argv = list(asked["argv"])  # type: ignore[call-overload]
        runpy.run_module("raytide", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
