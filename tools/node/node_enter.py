"""Execute a program in the root of a node: `node_enter.py DESCRIPTOR PROGRAM ARGUMENT…`.

DESCRIPTOR is the path of an open descriptor of the mount namespace, such as /proc/2/fd/5. Imports few modules, because it delays
each start. Called by node_supervisor.py with Python's options -I and -S.
"""

import os
import sys

sys.path[:0] = os.environ.pop("RAYTIDE_PACKAGES").split(os.pathsep)
from raytide_sandbox.container_runtime import syscalls  # noqa: E402 - the path first


def main() -> None:
    """Execute the program; exit with one line if that fails."""
    namespace, *command = sys.argv[1:]
    try:
        descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
        syscalls.setns(descriptor, syscalls.CLONE_NEWNS)  # also changes the root to that of the namespace
        os.execv(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started: {error.strerror}")


if __name__ == "__main__":
    main()
