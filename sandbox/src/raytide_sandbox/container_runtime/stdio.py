"""Standard streams of a command.

Makes the three descriptors of a command and the ends that the kubelet keeps: pipes, a terminal, a log file or
/dev/null. The command's descriptors are closed here after the start, also after a failed one; the kept ends close
themselves. Used by process_runtime.py for every start.
"""

import os
import pty
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from raytide_sandbox.container_runtime.async_streams import FdReader, FdWriter


@dataclass(slots=True)
class Stdio:
    """Three descriptors for a command; `stdin`, `stdout`, `stderr` are the kubelet's ends, None where there is none."""

    fds: list[int] = field(default_factory=list)
    stdin: FdWriter | None = None
    stdout: FdReader | None = None
    stderr: FdReader | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in set(self.fds):
            os.close(fd)
        self.fds = []

    @classmethod
    def terminal(cls) -> "Stdio":
        """One terminal for all three streams."""
        ours, theirs = pty.openpty()
        return cls([theirs] * 3, stdin=FdWriter(os.dup(ours), is_tty=True), stdout=FdReader(ours))

    @classmethod
    def pipes(cls, *, has_stdin: bool) -> "Stdio":
        """A pipe for each output stream and, with `has_stdin`, one for the input."""
        made = cls()
        made._read(has_stdin=has_stdin)
        for name in ("stdout", "stderr"):
            ours, theirs = os.pipe()
            made.fds.append(theirs)
            setattr(made, name, FdReader(ours))
        return made

    @classmethod
    def log(cls, path: Path, *, has_stdin: bool) -> "Stdio":
        """A log file to which both output streams are appended."""
        made = cls()
        made._read(has_stdin=has_stdin)
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        made.fds += [file, file]
        return made

    def _read(self, *, has_stdin: bool) -> None:
        if has_stdin:
            theirs, ours = os.pipe()
            self.stdin = FdWriter(ours, is_tty=False)
        else:
            theirs = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self.fds.append(theirs)
