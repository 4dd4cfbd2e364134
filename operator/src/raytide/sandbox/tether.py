"""How does a program end when whoever started it ends, however that happens?

Takes the parent's process id and a command line, in a new Python that does nothing else: asks the kernel to kill this
process together with the thread that started it, then becomes the program; the process id stays. Imports little, because
it stands before every start. Called in the child that starter.py makes.
"""

import os
import sys
from collections.abc import Sequence

from raytide.sandbox.node.linux import die_with_parent


def main(arguments: Sequence[str]) -> None:
    """Become the program; ends with one line when that cannot be, or at once when the parent is gone already."""
    parent, *command = arguments
    die_with_parent()
    if os.getppid() != int(parent):
        return
    try:
        os.execv(command[0], command)  # noqa: S606 - the point of this module
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started: {error.strerror}")
