"""How does one component of a control plane live, and what did it say before it failed?

Takes a name, a command and a log file; starts the command tethered to this process (starter.py), tells whether it runs,
and ends it, gently or not. Only the process that it started itself is ever signalled. `PlaneTrouble`, the one error of
a control plane, is made here with the name of the component and the lines of its log that matter. Used by kubernetes.py.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from raytide.sandbox.starter import STARTER

LINES_TOLD: Final = 8
LINE_LENGTH_TOLD: Final = 400
ADDRESS_TAKEN: Final = "address already in use"
_TAIL_BYTES: Final = 64 * 1024
_INHERITED: Final = ("HOME", "PATH", "TMPDIR")


class PlaneTrouble(Exception):  # noqa: N818 - an answer for people
    """A control plane is missing, or does not come up, or lost a component; the text says why."""


class Component:
    """One program of the control plane."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._said_before = 0

    @property
    def is_running(self) -> bool:
        """True from `start` until it has ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._process.pid if self._process is not None and self.is_running else None

    def start(self, command: Sequence[str], *, directory: Path, variables: Mapping[str, str]) -> None:
        """Start it with these variables and hardly any others, so that nothing of the user's settings reaches it."""
        if self.is_running:
            raise PlaneTrouble(f"{self.name} runs already")
        self._said_before = self.log.stat().st_size if self.log.exists() else 0
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        self._process = STARTER.start(command, log=self.log, directory=directory, environ={**inherited, **variables})

    def send(self, number: signal.Signals) -> None:
        """Signal it, if it runs."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def wait(self, patience_s: float) -> bool:
        """True once it has ended."""
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

    def said(self) -> str:
        """The end of what it wrote since its last start."""
        try:
            with self.log.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(self._said_before, size - _TAIL_BYTES))
                return log.read().decode(errors="replace")
        except OSError:
            return ""

    @property
    def met_taken_address(self) -> bool:
        """True when it ended because somebody else has its port."""
        return not self.is_running and ADDRESS_TAKEN in self.said()

    def trouble(self, what: str) -> PlaneTrouble:
        """`what` went wrong, in the component's own last words."""
        lines = [line[:LINE_LENGTH_TOLD] for line in self.said().splitlines() if line.strip()]
        if len(lines) > LINES_TOLD:  # a refused flag stands in the first line, before a long usage
            lines = [lines[0], "…", *lines[1 - LINES_TOLD :]]
        words = "\n".join(lines) or "(it wrote nothing)"
        return PlaneTrouble(f"{self.name} {what}; from {self.log}:\n{words}")

    def how_it_ended(self) -> str:
        """For people: the exit code or the signal."""
        code = self._process.returncode if self._process is not None else None
        if code is None:
            return "has not been started"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
