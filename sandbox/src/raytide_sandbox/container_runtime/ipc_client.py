"""Asynchronous client of the first process of a node or a pod.

One end of an `ipc_protocol` pair. Requests are numbered and answers matched by number; every other message goes to a
callback. It never blocks the event loop; a partner that does not read fails the request. When the partner is gone,
every open request fails and `lost` is set. Used by process_runtime.py and node_init_client.py.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Sequence

from raytide_sandbox.container_runtime import ipc_protocol
from raytide_sandbox.container_runtime.interface import ContainerRuntimeError

_ANSWERS = frozenset({"done", "started", "refused"})


class Link:
    """Requests and events over one socket."""

    def __init__(self, end: socket.socket, partner: str, on_event: Callable[[ipc_protocol.Message], None]) -> None:
        self._end = end
        self._partner = partner
        self._on_event = on_event
        self._open: dict[int, asyncio.Future[tuple[ipc_protocol.Message, list[int]]]] = {}
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.lost = asyncio.Event()
        asyncio.get_running_loop().add_reader(end, self._read)

    async def ready(self, timeout_s: float) -> None:
        """Wait until the partner reports ready; raises ContainerRuntimeError with its reason, or when it is too late."""
        try:
            await asyncio.wait_for(asyncio.shield(self._ready), timeout_s)
        except TimeoutError:
            raise ContainerRuntimeError(f"{self._partner} was not ready within {timeout_s:g} s") from None

    async def request(
        self, number: int, message: ipc_protocol.Message, fds: Sequence[int] = (), *, timeout_s: float = 30.0
    ) -> tuple[ipc_protocol.Message, list[int]]:
        """Send a request and wait for its answer; raises ContainerRuntimeError when it is rejected, lost or too late."""
        answer: asyncio.Future[tuple[ipc_protocol.Message, list[int]]] = asyncio.get_running_loop().create_future()
        self._open[number] = answer
        try:
            self.notify({**message, "id": number}, fds)
            return await asyncio.wait_for(answer, timeout_s)
        except TimeoutError:
            raise ContainerRuntimeError(f"{self._partner} did not answer within {timeout_s:g} s") from None
        finally:
            self._open.pop(number, None)

    def notify(self, message: ipc_protocol.Message, fds: Sequence[int] = ()) -> None:
        """Send a message without waiting for an answer; raises ContainerRuntimeError when the partner is gone or stuck."""
        if self.lost.is_set():
            raise ContainerRuntimeError(f"{self._partner} has ended")
        try:
            ipc_protocol.send(self._end, message, fds, is_waiting=False)
        except BlockingIOError:
            raise ContainerRuntimeError(f"{self._partner} does not take requests any more") from None
        except OSError as error:
            raise ContainerRuntimeError(f"{self._partner} has ended") from error

    def hang_up(self) -> None:
        """Close the connection; the partner reads end of file."""
        if not self.lost.is_set():
            with contextlib.suppress(OSError):
                self._end.shutdown(socket.SHUT_RDWR)
            self._lose()

    def _read(self) -> None:
        while not self.lost.is_set():
            try:
                received = ipc_protocol.receive(self._end, is_waiting=False)
            except BlockingIOError:
                return
            if received is None:
                self._lose()
                return
            self._sort(*received)

    def _sort(self, message: ipc_protocol.Message, fds: list[int]) -> None:
        event = message["event"]
        if event == "ready" and not self._ready.done():
            self._ready.set_result(None)
        elif event == "failed" and not self._ready.done():
            self._fail(self._ready, message["why"])
        elif event in _ANSWERS:
            self._settle(message, fds)
        else:
            self._on_event(message)

    def _settle(self, message: ipc_protocol.Message, fds: list[int]) -> None:
        answer = self._open.get(message["id"])
        if answer is None or answer.done():
            for fd in fds:
                os.close(fd)
        elif message["event"] == "refused":
            self._fail(answer, message["why"])
        else:
            answer.set_result((message, fds))

    @staticmethod
    def _fail(waiting: asyncio.Future[None] | asyncio.Future[tuple[ipc_protocol.Message, list[int]]], why: str) -> None:
        if not waiting.done():
            waiting.set_exception(ContainerRuntimeError(why))
            waiting.exception()  # marks it as retrieved: the waiter may be gone, which is no error

    def _lose(self) -> None:
        self.lost.set()
        asyncio.get_running_loop().remove_reader(self._end)
        self._end.close()
        self._fail(self._ready, f"{self._partner} has ended")
        for waiting in self._open.values():
            self._fail(waiting, f"{self._partner} has ended")
        self._on_event({"event": "lost"})
