"""Debian's package `redis-server`, unpacked in the cache folder with its libraries; nothing is installed on the machine.

Prints the folder, or why there is none: `make test-ray` runs the tests of GCS fault tolerance with it.
"""

import sys
from pathlib import Path

import debian_root
from build_cache import print_provided
from debian_packages import DebianError, missing_programs


def provide_redis() -> Path:
    """The root folder of the package; raises DebianError or OSError."""
    if missing := missing_programs():
        raise DebianError(f"there is no {' and no '.join(missing)} on PATH, which Debian and Ubuntu have")
    return debian_root.provide(("redis-server",))


def main() -> int:
    """Print what there is, or why there is none; returns the exit code."""
    return print_provided(__doc__, provide_redis, (DebianError, OSError))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted")
