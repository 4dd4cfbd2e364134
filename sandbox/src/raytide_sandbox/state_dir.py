"""The state directory of a sandbox: lock, record, files.

Takes a directory and reads or writes three things in it: a lock held by the running sandbox (the kernel releases it
however the process ends), a record of that process, and the files and scratch space to remove afterwards. The record
identifies the process by process id *and* start time. Used by the sandbox to claim the directory, and by the commands
that inspect it.
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
_CPU_FIELDS: Final = slice(11, 13)  # `utime` and `stime`


class AlreadyRunningError(Exception):
    """Another sandbox holds this state directory."""


@dataclass(frozen=True, slots=True)
class Record:
    """The running sandbox process; written once when the sandbox is ready."""

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
        """True when the recorded process exists, and not a later one with the same process id."""
        return start_ticks(self.pid) == self.start_ticks


@dataclass(frozen=True, slots=True)
class StateDirectory:
    """The paths of one sandbox; creating the value touches no file."""

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
        """The sandbox's log; kept after its end."""
        return self.path / "sandbox.log"

    @property
    def record(self) -> Path:
        """The record of the running process, as JSON."""
        return self.path / "sandbox.json"

    @property
    def plane(self) -> Path:
        """All files of a real control plane; removed by `down`."""
        return self.path / "plane"

    @property
    def scratch(self) -> Path:
        """Pod directories and sockets: in the state directory, or in the temporary directory if that path is long.

        Socket paths are limited to 107 characters. If there is a record, its path is returned, because the process that
        cleans up may have another TMPDIR than the one that started.
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
        """Create the directory with mode 0700."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path.chmod(0o700)

    def create_scratch(self) -> Path:
        """Create the scratch directory with mode 0700; raises PermissionError when another user owns it."""
        scratch = self.scratch
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(scratch):
            raise PermissionError(f"{scratch} is owned by another user; set TMPDIR to a directory of yours")
        return scratch

    def read_record(self) -> Record | None:
        """The record, or None when it is missing or unreadable."""
        try:
            return Record(**json.loads(self.record.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def write_record(self, record: Record) -> None:
        """Write the record atomically."""
        temporary = self.record.with_suffix(".new")
        temporary.write_text(json.dumps(asdict(record), indent=1))
        temporary.replace(self.record)

    def is_claimed(self) -> bool:
        """True while a sandbox holds the lock."""
        try:
            with self.claim():
                return False
        except AlreadyRunningError:
            return True
        except FileNotFoundError:
            return False

    def claim(self) -> "StateLock":
        """Take the lock; raises `AlreadyRunningError` when it is held, FileNotFoundError without a directory."""
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise AlreadyRunningError(str(self.path)) from None
        return StateLock(descriptor)

    def clear(self) -> None:
        """Remove all that is valid only while the sandbox runs; the log stays. Call it with the lock held."""
        scratch = self.scratch
        if _is_ours(scratch):
            shutil.rmtree(scratch, ignore_errors=True)
        shutil.rmtree(self.plane, ignore_errors=True)
        self.record.unlink(missing_ok=True)
        self.kubeconfig.unlink(missing_ok=True)


class StateLock:
    """The held lock; released by `release` or by the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
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
    """True for a real directory of this user, not a link or another user's directory."""
    try:
        found = directory.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when it does not exist or is a zombie."""
    fields = _stat(pid)
    return None if not fields or fields[0] in {"Z", "X"} else int(fields[_START_TIME_FIELD])


def cpu_ticks(pid: int) -> int:
    """CPU time of a process in clock ticks, of user and system; 0 when it does not exist."""
    fields = _stat(pid)
    return sum(map(int, fields[_CPU_FIELDS])) if fields else 0


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat behind the name; empty when the process does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def uptime_s(record: Record) -> float:
    """How long the recorded process has been running, by the kernel's clock."""
    since_boot_s = float(Path("/proc/uptime").read_text().split()[0])
    return max(0.0, since_boot_s - record.start_ticks / os.sysconf("SC_CLK_TCK"))
