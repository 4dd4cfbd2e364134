"""Spawner: starts the components of a control plane so that none outlives this process.

`Starter` starts a program tethered (parent_death.py), in a session of its own, with its output appended to a log. All
starts run in one thread that lives as long as this process, because the kernel ends a tethered program with the
*thread* that started it, and a worker of a pool ends earlier. No code of Raytide runs between fork and exec, so it is
safe in a process with threads. Used by component.py.
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


class Starter:
    """One thread that starts programs."""

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def start(
        self, command: Sequence[str], *, log: Path, directory: Path, environ: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start the program in a session of its own, with its output appended to `log`; it dies with this process."""
        started: Future[subprocess.Popen[bytes]] = Future()

        def order() -> None:
            try:
                started.set_result(_spawn(command, log, directory, environ))
            except Exception as error:  # noqa: BLE001 - the caller gets it
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


_PACKAGES: Final = str(Path(__file__).resolve().parents[2])
_TETHER: Final = f"""\
import sys
sys.path.insert(0, {_PACKAGES!r})
from raytide_sandbox.controlplane import parent_death
parent_death.main(sys.argv[1:])
"""
"""Without Python's `site`, which makes the start three times as fast; it imports the package that runs here."""

STARTER: Final = Starter()
"""The starter of this process."""


def _spawn(command: Sequence[str], log: Path, directory: Path, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    tethered = [sys.executable, "-I", "-S", "-c", _TETHER, str(os.getpid()), *command]
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - our own interpreter and code
            tethered,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=directory,
            env=dict(environ),
            start_new_session=True,
        )
