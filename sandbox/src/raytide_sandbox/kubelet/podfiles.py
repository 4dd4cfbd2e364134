"""Files of one pod on this machine: logs, volumes, termination messages.

Takes a directory for the pod and container names; returns paths, and reads the termination message of a container that
has ended. Paths are short, because the path of a unix socket in a volume has at most 107 characters. `remove` deletes
everything of the pod. Used by podworker.py and, for logs, by server.py.
"""

import shutil
from datetime import datetime
from pathlib import Path
from typing import Final

from raytide_sandbox.kubelet.podspec import ContainerSpec
from raytide_sandbox.streaming.logs import LogClock

_MESSAGE_BYTES: Final = 4096
_LOG_MESSAGE_BYTES: Final = 2048
_LOG_MESSAGE_LINES: Final = 80
_UID_DIGITS: Final = 8


class PodFiles:
    """The files of one pod."""

    def __init__(self, parent: Path, uid: str) -> None:
        short = parent / uid[:_UID_DIGITS]
        self.directory = parent / uid if short.exists() else short
        self._clocks: dict[tuple[str, int], LogClock] = {}

    @property
    def volumes(self) -> Path:
        """Directory with one entry per volume."""
        return self.directory / "v"

    def log(self, container: str, attempt: int) -> Path:
        """Log file of one start of a container."""
        return self.directory / "logs" / f"{container}.{attempt}"

    def clock(self, container: str, attempt: int) -> LogClock:
        """Write times of that log file."""
        return self._clocks.setdefault((container, attempt), LogClock())

    def record_log_growth(self, container: str, attempt: int, now: datetime) -> None:
        """Record the current size of a log file in its clock."""
        try:
            size = self.log(container, attempt).stat().st_size
        except OSError:
            return
        self.clock(container, attempt).note(size, now)

    def termination_message(self, container: str, attempt: int) -> Path:
        """Termination message file of one start of a container."""
        return self.directory / "term" / f"{container}.{attempt}"

    def prepare(self) -> None:
        """Make the directories."""
        for directory in (self.volumes, self.directory / "logs", self.directory / "term"):
            directory.mkdir(parents=True, exist_ok=True)

    def forget_attempt(self, container: str, attempt: int) -> None:
        """Remove log and termination message of an old start; a kubelet keeps the current start and the one before."""
        self._clocks.pop((container, attempt), None)
        self.log(container, attempt).unlink(missing_ok=True)
        self.termination_message(container, attempt).unlink(missing_ok=True)

    def prepare_message(self, container: str, attempt: int) -> Path:
        """Create an empty termination message file that every user in the container can write."""
        path = self.termination_message(container, attempt)
        path.touch()
        path.chmod(0o666)
        return path

    def read_message(self, spec: ContainerSpec, attempt: int, *, has_failed: bool) -> str:
        """The termination message, or the end of the log for FallbackToLogsOnError; empty when unreadable."""
        try:
            message = self.termination_message(spec.name, attempt).read_bytes()[-_MESSAGE_BYTES:]
            if not message and has_failed and spec.has_log_as_message:
                message = self._end_of_log(spec.name, attempt)
        except OSError:
            return ""
        return message.decode(errors="replace")

    def remove(self) -> None:
        """Remove everything of the pod."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def _end_of_log(self, container: str, attempt: int) -> bytes:
        with self.log(container, attempt).open("rb") as log:
            log.seek(0, 2)
            log.seek(max(0, log.tell() - _LOG_MESSAGE_BYTES))
            return b"".join(log.read().splitlines(keepends=True)[-_LOG_MESSAGE_LINES:])
