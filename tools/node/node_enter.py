"""Runs a program in the root of a node: `node_enter.py DESCRIPTOR PROGRAM ARGUMENT…`.

DESCRIPTOR is a path that leads to the node's mount namespace, such as /proc/2/fd/5. Imports little, because it delays
every start. Called by node_supervisor.py with Python's options -I and -S.
"""

import os
import sys

sys.path[:0] = os.environ.pop("RAYTIDE_PACKAGES").split(os.pathsep)
from raytide_sandbox.container_runtime import syscalls  # noqa: E402 - found only now


def main() -> None:
    """Exec the program; exits with one line if that fails."""
    namespace, *command = sys.argv[1:]
    try:
        descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
        syscalls.setns(descriptor, syscalls.CLONE_NEWNS)  # also moves to the root of the namespace
        os.execv(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started: {error.strerror}")


if __name__ == "__main__":
    main()
