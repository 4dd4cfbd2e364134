"""Deadlines of tests know the machine: each is multiplied by `PATIENCE`, and so is the time-out of pytest.

It is measured once, when the process starts that runs or distributes the tests of a level (tools/checks/machine_speed.py);
workers of pytest-xdist and programs that tests start find it in `RAYTIDE_TEST_PATIENCE`. A value of that variable from outside is
a minimum, for levels that start on a quiet machine and then share it.
"""

import os
from typing import Final

import machine_speed

VARIABLE: Final = "RAYTIDE_TEST_PATIENCE"


def _patience() -> float:
    least = float(os.environ.get(VARIABLE) or 1)
    return least if "PYTEST_XDIST_WORKER" in os.environ else round(max(least, machine_speed.patience()), 1)


PATIENCE: Final = _patience()
"""Factor of deadlines, and of bars in seconds of wall time."""
os.environ[VARIABLE] = str(PATIENCE)
