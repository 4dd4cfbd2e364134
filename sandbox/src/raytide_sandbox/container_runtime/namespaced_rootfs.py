"""Root file system of a container in namespace mode.

Takes a plan (host paths to show, the container's own directory, its volumes) and applies it to the mount namespace of
the calling process: a new root with the host's directories read-only, /tmp, /home, /run and the like of its own, and
the volumes. On the host, only the container's own directory, the pod's files and writable volumes can be written.
Called by pod_init.py in the child that becomes the container, between fork and exec.
"""

# Paths are plain strings for system calls, because the root of this process changes in this module.
# ruff: noqa: PTH101, PTH102, PTH103, PTH106, PTH112, PTH114, PTH115, PTH120, PTH208, PTH211

import contextlib
import errno
import os
from dataclasses import dataclass
from typing import Any, Final

from raytide_sandbox.container_runtime import syscalls

HIDDEN: Final = frozenset({"proc", "tmp", "run", "home", "root", "lost+found"})
"""Top-level host directories a container does not see."""

OWN: Final = ("/tmp", "/run", "/home", "/root", "/var/tmp", "/var/log")  # noqa: S108 - names inside the container
"""Directories that are empty and writable at every start of a container."""

_OLD: Final = "/.host"


@dataclass(frozen=True, slots=True)
class RootPlan:
    """Plan of a container's root; host paths are real paths (no symbolic links)."""

    root_dir: str
    """An empty host directory where the root is built."""
    own_dir: str
    """Host directory for what the container writes outside its volumes."""
    shown: tuple[tuple[str, str], ...]
    """(host path, path in the container) shown read-only although the top-level directory is in `HIDDEN`."""
    files: tuple[tuple[str, str], ...]
    """(host path, path in the container) that replaces a file or directory of the host."""
    mounts: tuple[tuple[str, str, bool], ...]
    """(host path, path in the container, read-only): the volumes."""
    is_read_only: bool = False
    """Whether everything except `files` and `mounts` is read-only."""

    def as_message(self) -> dict[str, Any]:
        """The plan as plain JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> "RootPlan":
        """The plan from the values of `as_message`."""
        return cls(
            root_dir=message["root_dir"],
            own_dir=message["own_dir"],
            shown=tuple((host, inside) for host, inside in message["shown"]),
            files=tuple((host, inside) for host, inside in message["files"]),
            mounts=tuple((host, inside, is_read_only) for host, inside, is_read_only in message["mounts"]),
            is_read_only=message["is_read_only"],
        )


def enter(plan: RootPlan) -> None:
    """Enter a new mount namespace with the planned root; raises OSError."""
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount(None, "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.mount("tmpfs", plan.root_dir, "tmpfs", options="mode=755,size=64m")
    os.mkdir(plan.root_dir + _OLD)
    syscalls.pivot_root(plan.root_dir, plan.root_dir + _OLD)
    _show_host()
    _add_own(plan.own_dir)
    covers: list[str] = []
    for host, inside in plan.shown:
        _show(host, inside, covers, is_read_only=True)
    for host, inside in plan.files:
        if inside.startswith("/sys/") and not os.path.isdir(inside):
            continue  # sysfs allows no new directories; where this one is missing, programs do not read it
        _show(host, inside, covers, is_read_only=False)
    volumes = {os.path.realpath(inside) for _, inside, _ in plan.mounts}
    for host, inside, is_read_only in sorted(plan.mounts, key=lambda mount: mount[1].count("/")):
        _show(host, inside, covers, is_read_only=is_read_only)
    syscalls.detach(_OLD)
    os.rmdir(_OLD)
    if plan.is_read_only:  # last, because mount points are created until here
        for writable in {"/", *map(os.path.realpath, OWN), *covers} - volumes:
            syscalls.make_read_only(writable, is_recursive=False)


def _show_host() -> None:
    for name in sorted(os.listdir(_OLD)):
        source, target = f"{_OLD}/{name}", f"/{name}"
        if os.path.islink(source):
            os.symlink(os.readlink(source), target)
        elif os.path.isdir(source) and name not in HIDDEN:
            os.mkdir(target)
            syscalls.bind(source, target, is_read_only=True)
    os.mkdir("/proc")
    syscalls.bind(f"{_OLD}/proc", "/proc")


def _add_own(own_dir: str) -> None:
    for inside in OWN:
        host = own_dir + inside
        os.makedirs(_OLD + host, exist_ok=True)
        if inside.endswith("tmp"):
            os.chmod(_OLD + host, 0o1777)  # noqa: S103 - /tmp is everybody's, with the sticky bit
        _show(host, inside, [], is_read_only=False)
    os.makedirs("/home/ray", exist_ok=True)


def _show(host: str, inside: str, covers: list[str], *, is_read_only: bool) -> None:
    source = _OLD + host
    target = _provide(inside, covers, is_directory=os.path.isdir(source))
    syscalls.bind(source, target, is_read_only=is_read_only)


def _provide(inside: str, covers: list[str], *, is_directory: bool) -> str:
    """Ensure that a mount point exists at `inside`; returns it with symbolic links resolved.

    Directories that had to be covered by a tmpfs for that are added to `covers`.
    """
    target = os.path.realpath(inside)
    while not os.path.lexists(target):
        try:
            os.makedirs(target if is_directory else os.path.dirname(target), exist_ok=True)
            if not is_directory:
                os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        except OSError as error:
            if error.errno not in {errno.EROFS, errno.EACCES, errno.EPERM}:
                raise
            covers.append(_make_creatable_below(target))
    return target


def _make_creatable_below(target: str) -> str:
    """Cover the nearest existing directory above `target` by a tmpfs that shows the same entries; returns it."""
    covered = os.path.dirname(target)
    while not os.path.isdir(covered):
        covered = os.path.dirname(covered)
    if covered == "/":
        raise OSError(errno.EROFS, f"cannot create {target}")
    behind = os.open(covered, os.O_PATH | os.O_CLOEXEC)
    try:
        syscalls.mount("tmpfs", covered, "tmpfs", options="mode=755,size=16m")
        for name in os.listdir(f"/proc/self/fd/{behind}"):
            _repeat(f"/proc/self/fd/{behind}/{name}", f"{covered}/{name}")
    finally:
        os.close(behind)
    return covered


def _repeat(source: str, target: str) -> None:
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
        return
    with contextlib.suppress(FileNotFoundError):  # deleted since it was listed
        if os.path.isdir(source):
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        syscalls.bind(source, target)
