"""Control-plane component: one process and its log.

Input: a name, a command and a log file. Starts the command tethered to this process (spawner.py), reports whether it
runs, and ends it by SIGTERM or SIGKILL. Only the process that it started itself is ever signalled. `ControlPlaneError`, the
one error of a control plane, contains the name of the component and the relevant lines of its log. Used by
processes.py.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from raytide_sandbox.controlplane.spawner import STARTER
from raytide_sandbox.state_dir import cpu_ticks

TAIL_LINES: Final = 8
TAIL_LINE_LENGTH: Final = 400
ADDRESS_TAKEN: Final = "address already in use"
_TAIL_BYTES: Final = 64 * 1024
_INHERITED: Final = ("HOME", "PATH", "TMPDIR")


class ControlPlaneError(Exception):
    """A control plane is missing, does not start, or lost a component; the text is the reason."""


class Component:
    """One program of the control plane."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def is_running(self) -> bool:
        """True from `start` until it has ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._process.pid if self._process is not None and self.is_running else None

    @property
    def activity(self) -> tuple[int, int]:
        """CPU time in clock ticks and the size of its log: while one of them grows, it makes progress."""
        log = self.log.stat().st_size if self.log.exists() else 0
        return (cpu_ticks(self.pid) if self.pid is not None else 0), log

    def start(self, command: Sequence[str], *, directory: Path, variables: Mapping[str, str]) -> None:
        """Start it with these variables and few inherited ones, so that the user's settings do not affect it."""
        if self.is_running:
            raise ControlPlaneError(f"{self.name} runs already")
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        self._process = STARTER.start(command, log=self.log, directory=directory, environ={**inherited, **variables})

    def send(self, number: signal.Signals) -> None:
        """Signal it, if it runs."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def wait(self, patience_s: float) -> bool:
        """Wait up to that long; True once it has ended."""
        if self._process is None:
            return True
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self, patience_s: float) -> None:
        """SIGTERM, then SIGKILL; returns when it is gone."""
        self.send(signal.SIGTERM)
        if not self.wait(patience_s):
            self.kill()

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self.send(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def log_tail(self) -> str:
        """The end of its log since its last start."""
        try:
            with self.log.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start, size - _TAIL_BYTES))
                return log.read().decode(errors="replace")
        except OSError:
            return ""

    @property
    def met_taken_address(self) -> bool:
        """Whether it ended because another program has its port."""
        return not self.is_running and ADDRESS_TAKEN in self.log_tail()

    def error(self, what: str) -> ControlPlaneError:
        """An error: `what` went wrong, with the component's last log lines."""
        lines = [line[:TAIL_LINE_LENGTH] for line in self.log_tail().splitlines() if line.strip()]
        if len(lines) > TAIL_LINES:  # an unknown flag is reported in the first line, before a long usage text
            lines = [lines[0], "…", *lines[1 - TAIL_LINES :]]
        words = "\n".join(lines) or "(it wrote nothing)"
        return ControlPlaneError(f"{self.name} {what}; from {self.log}:\n{words}")

    def how_it_ended(self) -> str:
        """The exit code or the signal, for messages."""
        code = self._process.returncode if self._process is not None else None
        if code is None:
            return "has not been started"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
