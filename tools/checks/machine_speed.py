"""How slow and how busy this machine is at the moment, beside the one on which bars and deadlines were set.

A processor whose neighbors are busy does less in a second of CPU time: bars of CPU time are multiplied by `slowness`, measured
before and after what they judge. A process that shares the processors waits for its turn as well: deadlines, which count wall
time, are multiplied by `patience`, measured when a level starts. Used by tests (tests/support/deadlines.py), the end-to-end
suite and the image's check.
"""

import os
import time
from typing import Final

REFERENCE_S: Final = 0.02
"""What the fixed piece of work takes on the machine on which the bars were set."""
LONGEST: Final = 20.0
"""Most that deadlines are multiplied by: on a machine that is slower than this, a hanging test must still end."""
_PIECES: Final = 10


def slowness() -> float:
    """CPU time of a fixed piece of work as a multiple of `REFERENCE_S`; at least 1."""
    started = time.thread_time()
    _work()
    return max(1.0, (time.thread_time() - started) / REFERENCE_S)


def patience() -> float:
    """Factor for deadlines in wall time, from 1 to `LONGEST`: `slowness` times the processes that share a processor.

    How many share one is the larger of two measures: wall by CPU time of the work, which also shows a quota of the container,
    and the other runnable processes by processor, which also shows load that only fills the second processor.
    """
    cpu, wall, runnable = time.thread_time(), time.monotonic(), 0
    for _ in range(_PIECES):
        _work()
        runnable += _runnable_processes() - 1  # without this one
    cpu, wall = time.thread_time() - cpu, time.monotonic() - wall
    slow = max(1.0, cpu / _PIECES / REFERENCE_S)
    return min(LONGEST, slow * max(1.0, wall / cpu, 1 + runnable / _PIECES / len(os.sched_getaffinity(0))))


def _work() -> None:
    found = {str(number): (number, number * 3) for number in range(60_000)}
    sorted(found.values(), key=lambda each: each[1] % 977)


def _runnable_processes() -> int:
    """Processes and threads that run or wait for a processor, this one included."""
    with open("/proc/loadavg", encoding="ascii") as load:  # noqa: PTH123 - read ten times while something is measured
        return max(1, int(load.read().split()[3].partition("/")[0]))
