"""Current speed and load of this machine, compared with the one on which bars and deadlines were set.

On a slow or shared CPU, a second of CPU time does less work: bars of CPU time are multiplied by `slowness`, measured before and
after the process that they apply to. Other processes also delay a process: deadlines, in wall time, are multiplied by `patience`,
measured when a level starts. Used by tests (tests/support/deadlines.py), benchmarks, the end-to-end suite and image_starts.py.
"""

import os
import time
from typing import Final

REFERENCE_S: Final = 0.02
"""CPU time of the fixed work on the machine on which the bars were set."""
LONGEST: Final = 20.0
"""Highest factor for deadlines, so that a hanging test ends on any machine."""
_PIECES: Final = 10


def slowness() -> float:
    """CPU time of the fixed work as a multiple of `REFERENCE_S`; at least 1."""
    started = time.thread_time()
    _work()
    return max(1.0, (time.thread_time() - started) / REFERENCE_S)


def patience() -> float:
    """Factor for deadlines in wall time, from 1 to `LONGEST`: `slowness` times the processes that share a processor.

    The latter is the larger of two measures: wall time divided by CPU time of the work, which includes a CPU quota of the container,
    and the number of other runnable processes per CPU, which includes load on the other CPUs.
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
    """Number of threads that run or wait for a CPU, including this one."""
    with open("/proc/loadavg", encoding="ascii") as load:  # noqa: PTH123 - read ten times while something is measured
        return max(1, int(load.read().split()[3].partition("/")[0]))
