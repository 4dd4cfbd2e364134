"""Watchdog for a stuck process.

Dumps a traceback and ends the process, unless the event loop keeps running or a decision reports progress. A decision
blocks the event loop, and a large one on a small CPU share takes longer than the limit for a stuck loop: without the
progress reports a restarted process would face the same decision and be ended again. Wired by main.py.
"""

import asyncio
import faulthandler
from collections.abc import Callable
from typing import Final

from raytide.runtime.clock import Clock

HEARTBEAT_S: Final = 10.0
STUCK_S: Final = 60.0
"""An event loop without an iteration for so long, and without a decision in progress, is stuck."""
MIN_RESET_INTERVAL_S: Final = 1.0
"""Resetting the watchdog starts a thread, and a decision reports progress up to a million times a second."""


def _end_in(seconds: float) -> None:
    faulthandler.dump_traceback_later(seconds, exit=True)


class Watchdog:
    """Ends the process `STUCK_S` after its last reset."""

    def __init__(self, clock: Clock, end_in: Callable[[float], None] = _end_in) -> None:
        self._clock = clock
        self._end_in = end_in
        self._reset_at_s: float | None = None

    async def beat(self) -> None:
        """Reset the watchdog as long as the event loop runs; runs until cancelled, then disables the watchdog."""
        try:
            while True:
                self._reset()
                await asyncio.sleep(HEARTBEAT_S)
        finally:
            self._reset_at_s = None
            faulthandler.cancel_dump_traceback_later()

    def report_progress(self) -> None:
        """Reset the watchdog because a decision makes progress."""
        if self._reset_at_s is not None and self._clock.monotonic() - self._reset_at_s >= MIN_RESET_INTERVAL_S:
            self._reset()

    def _reset(self) -> None:
        self._reset_at_s = self._clock.monotonic()
        self._end_in(STUCK_S)
