"""The clocks of tests in virtual time: every loop that skips its waits is made here, and starts where the command line says.

A test marked `looptime` runs on such a loop from the setup of its fixtures to their teardown (conftest.py); a test that is no
coroutine calls `run`. The loop starts at 0 s, or at `--clock-start`, never at the uptime of the machine: a result that
depends on the uptime is red on one machine and green on the next.
"""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import looptime

T = TypeVar("T")

_start_s = 0.0


def start_clocks_at(start_s: float) -> None:
    """Set the uptime that this process reads from now on, in seconds.

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
    loop: asyncio.AbstractEventLoop = looptime.new_event_loop(start=_start_s, noop_cycles=1)
    return loop


def run(main: Coroutine[Any, Any, T]) -> T:
    """Like `asyncio.run`, in virtual time."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)


def elapsed_s() -> float:
    """Seconds since the running virtual loop began: what a test compares with a number."""
    return round(asyncio.get_running_loop().time() - _start_s, 6)
