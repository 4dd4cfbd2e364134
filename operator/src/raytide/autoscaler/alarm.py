"""Is the process stuck?

An alarm that says where the process stands and ends it, put off as long as the event loop turns or a decision goes on.
A decision runs in one piece, and a large one on a small share of a CPU takes longer than any patience with a stuck loop:
its successor would meet the same question and end the same way, for ever. Wired by main.py.
"""

import asyncio
import faulthandler
from collections.abc import Callable
from typing import Final

from raytide.runtime.clock import Clock

HEARTBEAT_S: Final = 10.0
STUCK_S: Final = 60.0
"""An event loop that has not turned for so long, without a decision that goes on, never will."""
SELDOM_S: Final = 1.0
"""Putting it off starts a thread, and a decision goes on a million times a second."""


def _end_in(seconds: float) -> None:
    faulthandler.dump_traceback_later(seconds, exit=True)


class Alarm:
    """Ends the process `STUCK_S` after it was put off last."""

    def __init__(self, clock: Clock, end_in: Callable[[float], None] = _end_in) -> None:
        self._clock = clock
        self._end_in = end_in
        self._put_off_s: float | None = None

    async def beat(self) -> None:
        """As long as the event loop turns, put it off; without end, and no alarm any more when cancelled."""
        try:
            while True:
                self._put_off()
                await asyncio.sleep(HEARTBEAT_S)
        finally:
            self._put_off_s = None
            faulthandler.cancel_dump_traceback_later()

    def note_progress(self) -> None:
        """Put it off, because a decision goes on."""
        if self._put_off_s is not None and self._clock.monotonic() - self._put_off_s >= SELDOM_S:
            self._put_off()

    def _put_off(self) -> None:
        self._put_off_s = self._clock.monotonic()
        self._end_in(STUCK_S)
