"""Clock: the only place that reads the time.

`now()` is UTC wall time for what users see, `monotonic()` is for deadlines, and `boottime()` for deadlines that must
advance during suspend. All are methods of an object that tests replace with virtual time. Passed down by
`manager/main.py`; decision code gets plain numbers and datetimes (D5, architecture §4).
"""

import asyncio
import sys
import time
from datetime import UTC, datetime
from typing import Final

LONGEST_READING_S: Final = 0.001


class Clock:
    """Clock of the running event loop, so that virtual time applies to everything."""

    def now(self) -> datetime:
        """Wall time in UTC."""
        return datetime.now(UTC)  # noqa: TID251 - this is that one clock

    def monotonic(self) -> float:
        """Seconds of the running event loop; never decreases."""
        return asyncio.get_running_loop().time()

    def boottime(self) -> float:
        """`monotonic` plus the time for which the machine was suspended."""
        return self.monotonic() + _slept_s()


def _slept_s() -> float:
    """Total suspend time of the machine since boot in seconds, as its kernel reports it; 0 outside Linux."""
    if sys.platform != "linux":
        return 0.0
    while True:  # repeat if the process was stopped between two readings
        before = time.monotonic()
        boottime = time.clock_gettime(time.CLOCK_BOOTTIME)
        after = time.monotonic()
        if after - before < LONGEST_READING_S:
            return boottime - after
