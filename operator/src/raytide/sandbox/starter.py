"""Who starts the components of a control plane, so that none outlives its owner?

`Starter` starts a program tethered (tether.py), in a session of its own, with its words appended to a log. It does so from
one thread that lives as long as this process, because the kernel ends a tethered program with the *thread* that started
it, and a worker of a pool is gone long before. No code of ours runs between fork and exec, so it is safe in a process
with threads. Used by plane_component.py.
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
        """The program in a session of its own, what it says appended to `log`; it dies with this process."""
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
from raytide.sandbox import tether
tether.main(sys.argv[1:])
"""
"""Without Python's site: it starts in a third of the time, and it is the very package that runs here."""

STARTER: Final = Starter()
"""The one of this process."""


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
