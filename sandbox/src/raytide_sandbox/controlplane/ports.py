"""Ports of a control plane on 127.0.0.1.

Input: the ports of the last start, or a requested one. Output: for each component one that is free now: the previous
one if possible, because kubeconfigs contain it. New ports come from below the range from which the kernel serves
outgoing connections, so that none of those takes a port while the control plane is down. Used by processes.py.
"""

import errno
import json
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
LOWEST: Final = 20000
LIMIT: Final = 30000
_TRIES: Final = 200
_LAST_PORT: Final = 65535
_TAKEN: Final = {errno.EADDRINUSE, errno.EACCES}


def is_free(port: int) -> bool:
    """Whether a server could bind this port of 127.0.0.1 now."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((HOST, port))
        except OSError as error:
            if error.errno in _TAKEN:
                return False
            raise
        return True


def next_free(port: int, is_free: Callable[[int], bool] = is_free) -> int:
    """`port` or the first free one after it."""
    return next(found for found in range(port, min(port + _TRIES, _LAST_PORT + 1)) if is_free(found))


class Ports:
    """A port per name, stored in a file so that a restart has the same ones."""

    def __init__(self, file: Path, *, wanted: dict[str, int]) -> None:
        """`wanted` are the requested ports; they override stored ones."""
        self._file = file
        self._ports = {**_read(file), **wanted}

    def __getitem__(self, name: str) -> int:
        return self._ports[name]

    def choose(self, name: str) -> int:
        """Choose a free port for `name`: the present one or the next after it; any if there is none."""
        others = {port for other, port in self._ports.items() if other != name}

        def is_ours(port: int) -> bool:
            return port not in others and is_free(port)

        start = self._ports.get(name) or random.randrange(LOWEST, LIMIT)  # noqa: S311 - spreads, hides nothing
        self._ports[name] = next_free(start, is_ours)
        self._write()
        return self._ports[name]

    def give_up(self, name: str) -> None:
        """Skip a port that another program took: the next `choose` starts after it."""
        self._ports[name] += 1

    def _write(self) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(self._ports))
        new.replace(self._file)


def _read(file: Path) -> dict[str, int]:
    try:
        return {str(name): int(port) for name, port in json.loads(file.read_text()).items()}
    except (OSError, ValueError, AttributeError):
        return {}
