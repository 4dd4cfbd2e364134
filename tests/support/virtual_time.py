"""The clocks of tests in virtual time: every loop that skips its waits is made here, and starts where the command line says.

A test marked `looptime` runs on such a loop from the setup of its fixtures to their teardown (conftest.py); a test that is no
coroutine calls `run`. The loop starts at 0 s, or at `--clock-start`, never at the uptime of the machine: a result that
depends on the uptime is red on one machine and green on the next.
"""

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

TICKS_PER_S = 1_000_000
_start_s = 0.0
_Events = list[tuple[selectors.SelectorKey, int]]


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose clock moves to the next timer as soon as no callback is ready and no I/O has happened.

    Time is an integer number of microseconds, so that sums of waits have no rounding errors. While a thread of
    `run_in_executor` works, and while there is no timer at all, the loop waits in real time.
    """

    def __init__(self, start_s: float) -> None:
        self._ticks = round(start_s * TICKS_PER_S)
        self._now_s = self._ticks / TICKS_PER_S
        self._in_threads: list[asyncio.Future[Any]] = []
        super().__init__()
        selector: selectors.BaseSelector = self._selector  # type: ignore[attr-defined]
        self._poll: Callable[[float | None], _Events] = selector.select
        self._watched = selector.get_map()
        selector.select = self._select  # type: ignore[method-assign]

    def time(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        """Like any loop does it; until the thread has ended, the loop waits in real time."""
        future = super().run_in_executor(executor, func, *args)
        self._in_threads.append(future)
        return future

    def _select(self, timeout_s: float | None) -> _Events:
        if timeout_s == 0 and len(self._watched) == 1:  # callbacks are ready, and there is only the loop's own pipe
            return []
        if timeout_s is None:
            return self._poll(None)
        if events := self._poll(0):
            return events
        if self._in_threads:
            self._in_threads = [future for future in self._in_threads if not future.done()]
            if self._in_threads and (events := self._poll(timeout_s)):
                return events
        if timeout_s:
            # A wait of less than a microsecond would be rounded to none, and asyncio would ask for it forever.
            self._ticks += round(timeout_s * TICKS_PER_S) + (timeout_s < 1 / TICKS_PER_S)
            self._now_s = self._ticks / TICKS_PER_S
        return []


def start_clocks_at(start_s: float) -> None:
    """Let this process believe for the rest of its life that its machine was started so many seconds ago.

    Virtual loops start there, and the clocks that count from the boot are moved. The machine seems to have been suspended
    for as long again, so that `CLOCK_BOOTTIME` and `CLOCK_MONOTONIC` differ.
    """
    global _start_s  # noqa: PLW0603 - one process, one set of clocks
    _start_s = start_s
    read, read_one = time.monotonic, time.clock_gettime
    moved_s = start_s - read()
    ahead_s = {time.CLOCK_MONOTONIC: 0.0, time.CLOCK_BOOTTIME: start_s}

    def clock_gettime(clock: int) -> float:
        return read_one(clock) if clock not in ahead_s else read() + moved_s + ahead_s[clock]

    time.monotonic = lambda: read() + moved_s
    time.clock_gettime = clock_gettime


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop that skips every wait for which nothing else is left to do."""
    return VirtualLoop(_start_s)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Like `asyncio.run`, in virtual time."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)


def elapsed_s() -> float:
    """Seconds since the running virtual loop began: what a test compares with a number."""
    return round(asyncio.get_running_loop().time() - _start_s, 6)
