"""What time is it?

The one place that reads a clock: `now()` is wall time in UTC for what users see, `monotonic()` is for deadlines. Both
are methods of a value that tests replace by virtual time. Handed down by `main.py`; decisions get plain numbers and
datetimes (D5, architecture §4).
"""

import asyncio
from datetime import UTC, datetime


class Clock:
    """The clock of the running event loop, so that virtual time moves everything at once."""

    def now(self) -> datetime:
        """Wall time in UTC."""
        return datetime.now(UTC)  # noqa: TID251 - this is that one clock

    def monotonic(self) -> float:
        """Seconds of the running loop; never goes back."""
        return asyncio.get_running_loop().time()
