"""How slow is this machine at the moment, beside the one on which bars in seconds of CPU were set?

A processor whose neighbors are busy does less in a second of CPU time. Bars of CPU time are multiplied by `slowness`, measured
before and after what they judge. Used by the image's check and by tests of the operator under hostile objects.
"""

import time
from typing import Final

REFERENCE_S: Final = 0.02
"""What the fixed piece of work takes on the machine on which the bars were set."""


def slowness() -> float:
    """CPU time of a fixed piece of work as a multiple of `REFERENCE_S`; at least 1."""
    started = time.thread_time()
    found = {str(number): (number, number * 3) for number in range(60_000)}
    sorted(found.values(), key=lambda each: each[1] % 977)
    return max(1.0, (time.thread_time() - started) / REFERENCE_S)
