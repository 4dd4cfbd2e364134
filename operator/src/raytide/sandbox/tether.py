"""How does a program end when whoever started it ends, however that happens?

Run as `python -m raytide.sandbox.tether PARENT PROGRAM [ARGUMENT…]`: asks the kernel to kill this process with the thread
that started it, then becomes the program; the process id stays. `Starter` starts programs that way from a thread that
lives as long as its process, because the kernel means the *thread*, and a worker of a pool is gone long before. No code
of ours runs between fork and exec, so it is safe in a process with threads. Used by plane_component.py.
"""

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Final

from raytide.sandbox.node.linux import die_with_parent


class Starter:
    """One thread that starts programs; it ends with the process."""

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def start(
        self, command: Sequence[str], *, log: Path, directory: Path, environ: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """The program in a session of its own, what it says appended to `log`; it dies with this process."""
        started: Future[subprocess.Popen[bytes]] = Future()

        def order() -> None:
            try:
                started.set_result(_spawn(command, log, directory, environ))
            except OSError as error:
                started.set_exception(error)

        self._run_thread()
        self._orders.put(order)
        return started.result()

    def _run_thread(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="starter", daemon=True)
                self._thread.start()

    def _serve(self) -> None:
        while True:
            self._orders.get()()


STARTER: Final = Starter()
"""The one of this process."""


def _spawn(command: Sequence[str], log: Path, directory: Path, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    tethered = [sys.executable, "-P", "-m", "raytide.sandbox.tether", str(os.getpid()), *command]
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - our own interpreter and module
            tethered,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=directory,
            env=dict(environ),
            start_new_session=True,
        )


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
