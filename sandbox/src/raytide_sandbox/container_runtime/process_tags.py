"""Process marks: find and kill the processes of a sandbox, a pod or a container.

Every process of the sandbox has a mark in its environment, which its children inherit: state directory, pod sandbox,
container and start number. A scan of /proc for marks, sessions and children finds processes that outlived their parent,
daemons that detached twice included. Processes without the mark or the descent are never touched. Used by pod_init.py
at a container's end, by node_init.py at a pod's, and by node_init_client.py when a sandbox starts and stops.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

MARK_VARIABLE: Final = "RAYTIDE_SANDBOX_MARK"
_PAUSE_S: Final = 0.005


def node_mark(state_dir: str | Path) -> str:
    """Prefix of the marks of every process of one sandbox."""
    return f"{state_dir}:"


def pod_mark(state_dir: str | Path, key: str) -> str:
    """Prefix of the marks of every container of one pod sandbox."""
    return f"{state_dir}:{key}/"


def container_mark(state_dir: str | Path, key: str, container: str, attempt: int) -> str:
    """The mark of one start of one container."""
    return f"{state_dir}:{key}/{container}/{attempt}/"


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def marked(mark: str) -> set[int]:
    """Live processes whose mark begins with `mark`, except this one."""
    needle = b"\0" + f"{MARK_VARIABLE}={mark}".encode()
    found = set()
    for pid in _pids():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if needle in b"\0" + environment:
            found.add(pid)
    return found - {os.getpid()}


def _parents_and_sessions() -> dict[int, tuple[int, int]]:
    table = {}
    for pid in _pids():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] not in "ZX":
            table[pid] = int(fields[1]), int(fields[3])
    return table


def family(roots: Collection[int], mark: str | None = None) -> set[int]:
    """Live processes below `roots` or in their sessions, marked ones and those below them; never this process."""
    table = _parents_and_sessions()
    members = (marked(mark) if mark else set()) & set(table)
    while True:
        more = {
            pid
            for pid, (parent, session) in table.items()
            if pid not in members and (parent in members or parent in roots or session in roots)
        }
        if not more:
            return members - {os.getpid()}
        members |= more


def kill_all(find: Callable[[], Collection[int]], *, timeout_s: float = 5.0) -> set[int]:
    """SIGKILL what `find` returns until it returns nothing; returns the processes that are left after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while left := set(find()):
        if time.monotonic() > deadline:
            return left
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_S)
    return set()
