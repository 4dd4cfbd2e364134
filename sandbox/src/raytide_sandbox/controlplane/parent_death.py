"""Parent-death tether: runs a program that is killed when its parent ends for any reason.

Input: the parent's process id and a command line, in a new Python process that does nothing else. Asks the kernel to
kill this process together with the thread that started it, then replaces it with the program; the process id stays.
Imports little, because it delays every start. Called in the child that spawner.py makes.
"""

import os
import sys
from collections.abc import Sequence

from raytide_sandbox.container_runtime.syscalls import die_with_parent


def main(arguments: Sequence[str]) -> None:
    """Exec the program; exits with one line if that fails, and returns at once if the parent is gone already."""
    parent, *command = arguments
    die_with_parent()
    if os.getppid() != int(parent):
        return
    try:
        os.execv(command[0], command)  # noqa: S606 - the point of this module
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started: {error.strerror}")
