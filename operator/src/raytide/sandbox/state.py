"""Is a sandbox running here, and what did it leave behind?

Takes a directory and answers from three things in it: a lock held by the running sandbox (the kernel lets go of it
however the process ends), a record of who that is, and the files and scratch space to clear away afterwards. It never
signals a process that is not the recorded one, by process id *and* start time. Used by the sandbox to claim its place
and by the commands that look at it from outside.
"""

import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

DIRECTORY_VARIABLE: Final = "RAYTIDE_SANDBOX_DIR"
LONGEST_SCRATCH: Final = 60
_START_TIME_FIELD: Final = 19  # `starttime`, counted after the command's closing bracket (proc(5))


class AlreadyRunning(Exception):  # noqa: N818 - an answer, not an error of ours
    """Another sandbox holds this state directory."""


@dataclass(frozen=True, slots=True)
class Record:
    """Who runs here; written once when the sandbox is ready."""

    pid: int
    start_ticks: int
    version: str
    server: str
    isolation: str
    isolation_reason: str
    nodes: int
    scratch: str
    api: str = "embedded"
    audit_log: str = ""

    @property
    def is_alive(self) -> bool:
        """True when that very process, not a later one with its number, exists."""
        return start_ticks(self.pid) == self.start_ticks


@dataclass(frozen=True, slots=True)
class StateDirectory:
    """The files of one sandbox; creating the value touches nothing."""

    path: Path

    @classmethod
    def default(cls, environ: Mapping[str, str]) -> Self:
        """From `RAYTIDE_SANDBOX_DIR`, else `$XDG_CACHE_HOME/raytide/sandbox`, else `~/.cache/raytide/sandbox`."""
        if chosen := environ.get(DIRECTORY_VARIABLE):
            return cls(Path(chosen).absolute())
        home = Path(environ.get("HOME") or Path.home())
        cache = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
        return cls(cache.absolute() / "raytide" / "sandbox")

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the running sandbox."""
        return self.path / "kubeconfig"

    @property
    def log(self) -> Path:
        """What the sandbox says; kept after its end."""
        return self.path / "sandbox.log"

    @property
    def record(self) -> Path:
        """Who runs here, as JSON."""
        return self.path / "sandbox.json"

    @property
    def plane(self) -> Path:
        """Everything of a real control plane; gone after `down`."""
        return self.path / "plane"

    @property
    def scratch(self) -> Path:
        """Pod directories and sockets: in the state directory, or in the temporary one where that path is long.

        Paths of sockets end at 107 characters. The record's, where there is one: whoever clears up may have another
        TMPDIR than whoever started.
        """
        record = self.read_record()
        if record is not None:
            return Path(record.scratch)
        near = self.path / "pods"
        if len(str(near)) <= LONGEST_SCRATCH:
            return near
        digest = hashlib.sha256(str(self.path).encode()).hexdigest()[:8]
        return Path(tempfile.gettempdir()).resolve() / f"rt{os.getuid()}-{digest}"

    def create(self) -> None:
        """Make the directory, for its owner only."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path.chmod(0o700)

    def create_scratch(self) -> Path:
        """Make the scratch directory, for its owner only; raises PermissionError when it is somebody else's."""
        scratch = self.scratch
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(scratch):
            raise PermissionError(f"{scratch} belongs to somebody else; set TMPDIR to a directory of yours")
        return scratch

    def read_record(self) -> Record | None:
        """The record, or None when there is none that can be read."""
        try:
            return Record(**json.loads(self.record.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def write_record(self, record: Record) -> None:
        """Say who runs here, whole or not at all."""
        temporary = self.record.with_suffix(".new")
        temporary.write_text(json.dumps(asdict(record), indent=1))
        temporary.replace(self.record)

    def is_claimed(self) -> bool:
        """True while some sandbox holds the lock."""
        try:
            with self.claim():
                return False
        except AlreadyRunning:
            return True
        except FileNotFoundError:
            return False

    def claim(self) -> "Claim":
        """Take the lock; raises `AlreadyRunning` when it is held, FileNotFoundError without a directory."""
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise AlreadyRunning(str(self.path)) from None
        return Claim(descriptor)

    def clear(self) -> None:
        """Remove all that is only true while the sandbox runs; the log stays. Call it with the lock held."""
        scratch = self.scratch
        if _is_ours(scratch):
            shutil.rmtree(scratch, ignore_errors=True)
        shutil.rmtree(self.plane, ignore_errors=True)
        self.record.unlink(missing_ok=True)
        self.kubeconfig.unlink(missing_ok=True)


class Claim:
    """The held lock; closing it, or the end of the process, lets go."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Let go now; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


def _is_ours(directory: Path) -> bool:
    """A real directory of this user's, not a link somebody put there."""
    try:
        found = directory.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when there is none, or only its remains."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {"Z", "X"} else int(fields[_START_TIME_FIELD])


def uptime_s(record: Record) -> float:
    """How long the recorded process has been running, by the kernel's clock."""
    since_boot_s = float(Path("/proc/uptime").read_text().split()[0])
    return max(0.0, since_boot_s - record.start_ticks / os.sysconf("SC_CLK_TCK"))
