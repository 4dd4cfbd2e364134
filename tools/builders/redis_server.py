"""Debian's package `redis-server`, unpacked in the cache folder with its libraries; nothing is installed on the machine.

Prints the folder, or why there is none: `make test-ray` runs the tests of GCS fault tolerance with it.
"""

import argparse
import sys
from pathlib import Path

import debian_root
from debian_packages import DebianError, missing_programs


def provide_redis() -> Path:
    """The root folder of the package; raises DebianError or OSError."""
    if missing := missing_programs():
        raise DebianError(f"there is no {' and no '.join(missing)} on PATH, which Debian and Ubuntu have")
    return debian_root.provide(("redis-server",))


def main() -> int:
    """Print the folder, or why there is none; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--require", action="store_true", help="fail where it is not available")
    is_required = parser.parse_args().require
    try:
        print(provide_redis())
    except (DebianError, OSError) as error:
        print(f"not run: no Redis: {error}", file=sys.stderr)
        return 1 if is_required else 0
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted")
