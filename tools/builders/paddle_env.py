"""Virtual environment with PaddlePaddle and its parameter servers, as `requirements/paddle.txt` locks it.

2.6 is the last series whose wheels have the parameter server, and its pins conflict with Ray's. As a program it prints the folder,
which is created at the first call; where no such wheel runs, it prints "not run" with the reason, and the exit code is 0, with
--require 1. Called by `make test-ray` and `make demo-elastic`.
"""

import hashlib
import platform
import subprocess
import sys
from pathlib import Path

from build_cache import cache_folder, print_provided
from environments import provide

LOCK = Path(__file__).resolve().parents[2] / "requirements" / "paddle.txt"
PYTHON = (3, 11)
MACHINE = ("Linux", "x86_64")
IMAGE = "paddlepaddle/paddle"
"""Image in the samples, for which the sandbox takes this environment."""


class PaddleMissingError(Exception):
    """There is no PaddlePaddle with parameter servers for this Python or machine."""


def check(version: tuple[int, ...] = sys.version_info[:2], machine: tuple[str, str] | None = None) -> None:
    """Raise PaddleMissingError where the locked wheels do not run."""
    found = machine or (platform.system(), platform.machine())
    if version != PYTHON or found != MACHINE:
        here = f"Python {'.'.join(map(str, version))} on {' '.join(found)}"
        raise PaddleMissingError(
            f"PaddlePaddle with parameter servers needs Python 3.11 on Linux x86_64; this is {here}"
        )


def folder() -> Path:
    """The folder of the environment, named after a hash of the lock; it need not exist."""
    return cache_folder("paddle") / hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]


def provide_paddle() -> Path:
    """The folder of the environment, created at the first call; raises PaddleMissingError."""
    check()
    wanted = folder()
    try:
        provide(wanted, "--require-hashes", "-r", LOCK)
    except subprocess.CalledProcessError as error:
        raise PaddleMissingError("PaddlePaddle could not be installed; uv has printed why") from error
    return wanted


def main() -> int:
    """Print what there is, or why there is none; returns the exit code."""
    return print_provided(__doc__, provide_paddle, PaddleMissingError)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted")
