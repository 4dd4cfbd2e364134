"""Free ports for servers that a test starts later.

`free_port` returns a free one, a different one each time. It is below the range from which the kernel
serves outgoing connections and port 0, so that it is still free when the server comes, and where it begins depends on the
process, so that workers of pytest-xdist do not meet. Used by tests, benches and what they start.
"""

import errno
import itertools
import os
import socket
from collections.abc import Iterator
from typing import Final

LOWEST: Final = 23000
"""Above where the sandbox moves Ray's ports to."""
LIMIT: Final = 30000
"""Services' node ports begin there."""
APART: Final = 100


def free_port() -> int:
    """A port that is free at every address of this machine."""
    return next(port for port in _PORTS if _is_free(port))


def _ports(pid: int) -> Iterator[int]:
    begins_at = pid * APART % (LIMIT - LOWEST)
    return (LOWEST + number % (LIMIT - LOWEST) for number in itertools.count(begins_at))


_PORTS: Final = _ports(os.getpid())


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
    return True
