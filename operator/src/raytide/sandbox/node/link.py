"""How does the event loop ask a holder or a pod's first process for something?

One end of a `wire` pair: requests get numbers and answers find them, everything else that is said goes to a callback.
It never blocks the loop; a partner that reads nothing is an error of that request. When the partner is gone, every
open request fails and `lost` is set. Used by engine.py only.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Sequence

from raytide.sandbox.node import wire
from raytide.sandbox.node.runtime import RuntimeTrouble

_ANSWERS = frozenset({"done", "started", "refused"})


class Link:
    """Requests and events over one socket."""

    def __init__(self, end: socket.socket, partner: str, on_event: Callable[[wire.Message], None]) -> None:
        self._end = end
        self._partner = partner
        self._on_event = on_event
        self._open: dict[int, asyncio.Future[tuple[wire.Message, list[int]]]] = {}
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.lost = asyncio.Event()
        asyncio.get_running_loop().add_reader(end, self._read)

    async def ready(self, timeout_s: float) -> None:
        """Return when the partner says that it is ready; raises RuntimeTrouble with its reason when it cannot be."""
        try:
            await asyncio.wait_for(asyncio.shield(self._ready), timeout_s)
        except TimeoutError:
            raise RuntimeTrouble(f"{self._partner} was not ready within {timeout_s:g} s") from None

    async def request(
        self, number: int, message: wire.Message, fds: Sequence[int] = (), *, timeout_s: float = 30.0
    ) -> tuple[wire.Message, list[int]]:
        """Ask and wait for the answer to `number`; raises RuntimeTrouble when it is no."""
        answer: asyncio.Future[tuple[wire.Message, list[int]]] = asyncio.get_running_loop().create_future()
        self._open[number] = answer
        try:
            self.tell({**message, "id": number}, fds)
            return await asyncio.wait_for(answer, timeout_s)
        except TimeoutError:
            raise RuntimeTrouble(f"{self._partner} did not answer within {timeout_s:g} s") from None
        finally:
            self._open.pop(number, None)

    def tell(self, message: wire.Message, fds: Sequence[int] = ()) -> None:
        """Ask without waiting; raises RuntimeTrouble when the partner is gone or stuck."""
        if self.lost.is_set():
            raise RuntimeTrouble(f"{self._partner} has ended")
        try:
            wire.send(self._end, message, fds, is_waiting=False)
        except BlockingIOError:
            raise RuntimeTrouble(f"{self._partner} does not take requests any more") from None
        except OSError as trouble:
            raise RuntimeTrouble(f"{self._partner} has ended") from trouble

    def hang_up(self) -> None:
        """Let the partner see end of file, now."""
        if not self.lost.is_set():
            with contextlib.suppress(OSError):
                self._end.shutdown(socket.SHUT_RDWR)
            self._lose()

    def _read(self) -> None:
        while not self.lost.is_set():
            try:
                received = wire.receive(self._end, is_waiting=False)
            except BlockingIOError:
                return
            if received is None:
                self._lose()
                return
            self._sort(*received)

    def _sort(self, message: wire.Message, fds: list[int]) -> None:
        event = message["event"]
        if event == "ready" and not self._ready.done():
            self._ready.set_result(None)
        elif event == "failed" and not self._ready.done():
            self._fail(self._ready, message["why"])
        elif event in _ANSWERS:
            self._settle(message, fds)
        else:
            self._on_event(message)

    def _settle(self, message: wire.Message, fds: list[int]) -> None:
        answer = self._open.get(message["id"])
        if answer is None or answer.done():
            for fd in fds:
                os.close(fd)
        elif message["event"] == "refused":
            self._fail(answer, message["why"])
        else:
            answer.set_result((message, fds))

    @staticmethod
    def _fail(waiting: asyncio.Future[None] | asyncio.Future[tuple[wire.Message, list[int]]], why: str) -> None:
        if not waiting.done():
            waiting.set_exception(RuntimeTrouble(why))
            waiting.exception()  # nobody may be waiting for it any more; that is no error of its own

    def _lose(self) -> None:
        self.lost.set()
        asyncio.get_running_loop().remove_reader(self._end)
        self._end.close()
        self._fail(self._ready, f"{self._partner} has ended")
        for waiting in self._open.values():
            self._fail(waiting, f"{self._partner} has ended")
        self._on_event({"event": "lost"})
