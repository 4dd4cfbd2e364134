"""Linux system calls that pods need and Python 3.11 does not offer.

Thin wrappers over libc: namespaces, mounts, the root of a mount namespace, the signal at a parent's death. Each raises
OSError with the kernel's reason. No program such as `unshare`, `nsenter` or `mount` is needed. Called by node_init.py,
pod_init.py and namespaced_rootfs.py, always in a process with a single thread.
"""

import ctypes
import os
import platform
import signal
from typing import Final

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWUTS: Final = 0x04000000
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000

MS_RDONLY: Final = 1
MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_BIND: Final = 4096
MS_REC: Final = 16384
MS_PRIVATE: Final = 1 << 18

_MNT_DETACH: Final = 2
_AT_FDCWD: Final = -100
_AT_RECURSIVE: Final = 0x8000
_MOUNT_ATTR_RDONLY: Final = 1
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_SET_NO_NEW_PRIVS: Final = 38
_SYS_MOUNT_SETATTR: Final = 442
_SYS_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41}

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Move this process into new namespaces of the types in `flags` (a PID namespace begins with the next child)."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def setns(fd: int, kind: int) -> None:
    """Join the namespace `fd` of type `kind`."""
    _check(_libc.setns(ctypes.c_int(fd), ctypes.c_int(kind)), "setns")


def mount(source: str | None, target: str, kind: str | None = None, flags: int = 0, options: str | None = None) -> None:
    """Mount a file system at `target`, or `source` with MS_BIND."""
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    result = _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])
    _check(result, f"mount {source or kind} on {target}")


def bind(source: str, target: str, *, is_read_only: bool = False) -> None:
    """Bind-mount the existing `source`, with all mounts below it, on the existing `target`."""
    mount(source, target, flags=MS_BIND | MS_REC)
    if is_read_only:
        make_read_only(target)


def make_read_only(target: str, *, is_recursive: bool = True) -> None:
    """Make the mount at `target` read-only, with `is_recursive` also all below it (needs Linux 5.12)."""
    attributes = (ctypes.c_uint64 * 4)(_MOUNT_ATTR_RDONLY, 0, 0, 0)
    result = _libc.syscall(
        ctypes.c_long(_SYS_MOUNT_SETATTR),
        ctypes.c_int(_AT_FDCWD),
        ctypes.c_char_p(os.fsencode(target)),
        ctypes.c_uint(_AT_RECURSIVE if is_recursive else 0),
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
    )
    _check(result, f"mount_setattr {target}")


def pivot_root(new_root: str, old_root: str) -> None:
    """Make the mount at `new_root` the root of this mount namespace; the old one appears at `old_root` below it."""
    number = _SYS_PIVOT_ROOT.get(platform.machine())
    if number is None:
        raise OSError(0, f"pivot_root is not known on {platform.machine()}")
    _check(_libc.syscall(ctypes.c_long(number), os.fsencode(new_root), os.fsencode(old_root)), "pivot_root")
    os.chdir("/")


def detach(target: str) -> None:
    """Unmount `target` and all mounts below it lazily."""
    _check(_libc.umount2(os.fsencode(target), ctypes.c_int(_MNT_DETACH)), f"umount {target}")


def set_hostname(name: str) -> None:
    """Set the hostname of this UTS namespace."""
    encoded = name.encode()
    _check(_libc.sethostname(encoded, ctypes.c_size_t(len(encoded))), "sethostname")


def die_with_parent(signal_number: int = signal.SIGKILL) -> None:
    """Receive `signal_number` when the parent dies; check the parent afterwards, it may have died before this call."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal_number), 0, 0, 0), "prctl PDEATHSIG")


def set_no_new_privileges() -> None:
    """Forbid this process and its children to gain privileges by exec, e.g. by a set-user-id bit."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0), "prctl NO_NEW_PRIVS")


def adopt_orphans() -> None:
    """Become the subreaper: the new parent of orphaned descendants."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0), "prctl CHILD_SUBREAPER")


def map_to_self(uid: int, gid: int, *, inner_uid: int = 0, inner_gid: int = 0) -> None:
    """Map `inner_uid` and `inner_gid` of a new user namespace to `uid` and `gid` outside, and no other ids."""
    maps = (("setgroups", "deny"), ("uid_map", f"{inner_uid} {uid} 1"), ("gid_map", f"{inner_gid} {gid} 1"))
    for name, text in maps:
        fd = os.open(f"/proc/self/{name}", os.O_WRONLY)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)


def set_title(name: str) -> None:
    """Set the short name that `ps -e` and `top` show for this process."""
    _check(_libc.prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]), 0, 0, 0), "prctl NAME")
