"""Run a program with an unpacked image as its read-only root, as a kubelet does with readOnlyRootFilesystem.

`image_container.py ROOT SERVICE-ACCOUNT UID GID NAME=VALUE… PROGRAM ARGUMENT…`, as root in new mount and PID namespaces, mounts
/proc, three devices and the folder of the service account, makes the rest read-only and executes the program as this user, without
supplementary groups and with this environment only. The network is the machine's. Started by image_buildah.py where no container
runtime is installed; imports nothing of this project.
"""

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final, NoReturn

PR_SET_PDEATHSIG: Final = 1
DEVICES: Final = ("null", "zero", "urandom")
SERVICE_ACCOUNT: Final = "run/secrets/kubernetes.io/serviceaccount"


def mount(*words: str | Path) -> None:
    """Run `mount`, which prints its errors."""
    subprocess.run(["mount", *map(str, words)], check=True)


def prepare(root: Path, service_account: Path) -> None:
    """Mount the root of the program; all mounts but /proc are read-only."""
    mount("--bind", root, root)
    mount("-t", "proc", "proc", root / "proc")
    mount("-t", "tmpfs", "tmpfs", root / "dev")
    for name in DEVICES:
        (root / "dev" / name).touch()
        mount("--bind", f"/dev/{name}", root / "dev" / name)
    (root / SERVICE_ACCOUNT).mkdir(parents=True, exist_ok=True)
    mount("--bind", service_account, root / SERVICE_ACCOUNT)
    mount("-o", "remount,bind,ro", root / SERVICE_ACCOUNT)
    mount("-o", "remount,ro", root / "dev")
    mount("-o", "remount,bind,ro", root)


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")


def main(arguments: list[str]) -> NoReturn:
    """Prepare the root and execute the program."""
    root, service_account, uid, gid, *rest = arguments
    environ = {}
    while "=" in rest[0]:
        name, _, value = rest.pop(0).partition("=")
        environ[name] = value
    prepare(Path(root), Path(service_account))
    os.chroot(root)
    os.chdir("/")
    os.setgroups([])
    os.setgid(int(gid))
    os.setuid(int(uid))
    end_with_parent()  # unshare --kill-child set it, but the kernel clears it when the user changes
    os.execvpe(rest[0], rest, environ)


if __name__ == "__main__":
    main(sys.argv[1:])
