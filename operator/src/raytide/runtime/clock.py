"""What time is it?

The one place that reads a clock: `now()` is wall time in UTC for what users see, `monotonic()` is for deadlines, and
`boottime()` for those that must not stand still while the machine sleeps. All are methods of a value that tests replace by virtual time. Handed down by `main.py`; decisions get plain numbers and
datetimes (D5, architecture §4).
"""

import asyncio
import sys
import time
from datetime import UTC, datetime
from typing import Final

LONGEST_READING_S: Final = 0.001


class Clock:
    """The clock of the running event loop, so that virtual time moves everything at once."""

    def now(self) -> datetime:
        """Wall time in UTC."""
        return datetime.now(UTC)  # noqa: TID251 - this is that one clock

    def monotonic(self) -> float:
        """Seconds of the running loop; never goes back."""
        return asyncio.get_running_loop().time()

    def boottime(self) -> float:
        """Like `monotonic`, and the time that the machine was suspended counts too."""
        return self.monotonic() + _slept_s()


def _slept_s() -> float:
    """For how long this machine has been suspended since it was started, as far as its kernel tells."""
    if sys.platform != "linux":
        return 0.0
    while True:  # a process that is stopped between two readings must not believe their difference
        before = time.monotonic()
        boottime = time.clock_gettime(time.CLOCK_BOOTTIME)
        after = time.monotonic()
        if after - before < LONGEST_READING_S:
            return boottime - after
