"""How does a program end when whoever started it ends, however that happens?

Run as `python -m raytide.sandbox.tether PARENT PROGRAM [ARGUMENT…]`: asks the kernel to kill this process together with
the thread that started it, then becomes the program; the process id stays. Imports little, because it stands before every
start. Called by starter.py.
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


if __name__ == "__main__":
    main(sys.argv[1:])
