"""Which running processes belong to a sandbox, a pod or a container?

Every process of ours carries a mark in its environment, inherited by all it starts: the state directory, the sandbox
of the pod, the container and its start number. Looking through /proc for a mark, for sessions and for children finds what survived
its parent, daemons that detached twice included. It never touches a process without the mark or the descent. Used by
podinit.py at a container's end, by holder.py at a pod's, and by engine.py when a sandbox starts after a crash.
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
    """Begins the mark of everything that one sandbox runs."""
    return f"{state_dir}:"


def pod_mark(state_dir: str | Path, key: str) -> str:
    """Begins the mark of every container of one pod sandbox."""
    return f"{state_dir}:{key}/"


def container_mark(state_dir: str | Path, key: str, container: str, attempt: int) -> str:
    """The mark of one start of one container."""
    return f"{state_dir}:{key}/{container}/{attempt}/"


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def marked(mark: str) -> set[int]:
    """Living processes whose mark begins with `mark`, this one excepted."""
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
    """Living processes below `roots`, in a session that one of them leads, or marked; roots themselves only if marked."""
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
    """SIGKILL what `find` finds, again and again until it finds nothing; returns what did not go in time."""
    deadline = time.monotonic() + timeout_s
    while left := set(find()):
        if time.monotonic() > deadline:
            return left
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_S)
    return set()
