"""Where on this machine are the files of one pod, and what does a container leave in them?

Takes a directory for the pod and names of containers; gives paths of logs, volumes and termination messages, and reads
the message of a container that ended. Paths are short, because a unix socket in a volume may not be longer than 107
characters. Everything of a pod goes with `remove`. Used by podworker.py and, for logs, by server.py.
"""

import shutil
from datetime import datetime
from pathlib import Path
from typing import Final

from raytide.sandbox.kubelet.podspec import ContainerSpec
from raytide.sandbox.serving.logs import LogClock

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
        """One entry per volume."""
        return self.directory / "v"

    def log(self, container: str, attempt: int) -> Path:
        """The output of one start of a container."""
        return self.directory / "logs" / f"{container}.{attempt}"

    def clock(self, container: str, attempt: int) -> LogClock:
        """When which part of that log was written."""
        return self._clocks.setdefault((container, attempt), LogClock())

    def note_log(self, container: str, attempt: int, now: datetime) -> None:
        """Look at the size of a log."""
        try:
            size = self.log(container, attempt).stat().st_size
        except OSError:
            return
        self.clock(container, attempt).note(size, now)

    def termination_message(self, container: str, attempt: int) -> Path:
        """The file a container may leave its last words in."""
        return self.directory / "term" / f"{container}.{attempt}"

    def prepare(self) -> None:
        """Make the directories."""
        for directory in (self.volumes, self.directory / "logs", self.directory / "term"):
            directory.mkdir(parents=True, exist_ok=True)

    def forget_attempt(self, container: str, attempt: int) -> None:
        """Remove what an old start left; a kubelet keeps the current one and the one before."""
        self._clocks.pop((container, attempt), None)
        self.log(container, attempt).unlink(missing_ok=True)
        self.termination_message(container, attempt).unlink(missing_ok=True)

    def prepare_message(self, container: str, attempt: int) -> Path:
        """An empty file for the last words, writable by anybody in the container."""
        path = self.termination_message(container, attempt)
        path.touch()
        path.chmod(0o666)
        return path

    def read_message(self, spec: ContainerSpec, attempt: int, *, has_failed: bool) -> str:
        """The last words, or the end of the log where the container asks for that; never raises."""
        try:
            said = self.termination_message(spec.name, attempt).read_bytes()[-_MESSAGE_BYTES:]
            if not said and has_failed and spec.has_log_as_message:
                said = self._end_of_log(spec.name, attempt)
        except OSError:
            return ""
        return said.decode(errors="replace")

    def remove(self) -> None:
        """Remove everything of the pod."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def _end_of_log(self, container: str, attempt: int) -> bytes:
        with self.log(container, attempt).open("rb") as log:
            log.seek(0, 2)
            log.seek(max(0, log.tell() - _LOG_MESSAGE_BYTES))
            return b"".join(log.read().splitlines(keepends=True)[-_LOG_MESSAGE_LINES:])
