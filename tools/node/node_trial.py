"""Trials of what the kernel allows this process: namespaces, overlay mounts, a bridge, rules of iptables.

`python node_trial.py FOLDER [ROOT]` prints a JSON object: the error of each trial by its name, empty if it succeeded. FOLDER is on
the disk of the overlay mounts; ROOT has unpacked packages with iptables. The trials run in namespaces that end with this process.
Run by node_machine.py.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from raytide_sandbox.container_runtime import syscalls

NAMESPACES = {
    "mount": syscalls.CLONE_NEWNS,
    "net": syscalls.CLONE_NEWNET,
    "ipc": syscalls.CLONE_NEWIPC,
    "uts": syscalls.CLONE_NEWUTS,
}
RULE = "-t nat -A POSTROUTING -m comment --comment trial -m addrtype --dst-type LOCAL -m conntrack --ctstate NEW -j MASQUERADE"
"""The matches and the target that kube-proxy and the pod network use."""
BACKENDS = ("nft", "legacy")


def main() -> None:
    """Run all trials and print their errors."""
    folder, *root = sys.argv[1:]
    found = {name: attempt(lambda flag=flag: syscalls.unshare(flag)) for name, flag in NAMESPACES.items()}
    if not found["mount"] and not found["net"]:
        syscalls.mount(None, "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
        found["overlay"] = attempt(lambda: try_overlay(folder))
        found["bridge"] = attempt(try_bridge)
        for backend in BACKENDS if root else ():
            found[f"iptables-{backend}"] = attempt(lambda backend=backend: try_rule(root[0], backend))
    # Last: the next child is the first of the new PID namespace, and when it has ended, no other can be started.
    found["pid"] = attempt(lambda: syscalls.unshare(syscalls.CLONE_NEWPID))
    found["kmsg"] = attempt(lambda: os.close(os.open("/dev/kmsg", os.O_RDONLY)))
    print(json.dumps(found))


def attempt(action: Callable[[], object]) -> str:
    """The error of the action; empty if it succeeds."""
    try:
        action()
    except (OSError, subprocess.SubprocessError) as error:
        return str(getattr(error, "stderr", "") or getattr(error, "strerror", "") or error).strip().partition("\n")[0]
    return ""


def try_overlay(folder: str) -> None:
    """Mount an overlay whose layers are in `folder`."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".trial-") as made:
        for name in ("lower", "upper", "work", "merged"):
            Path(made, name).mkdir()
        options = f"lowerdir={made}/lower,upperdir={made}/upper,workdir={made}/work"
        syscalls.mount("overlay", f"{made}/merged", "overlay", options=options)
        syscalls.detach(f"{made}/merged")


def try_bridge() -> None:
    """Set the sysctl of br_netfilter: without this module, Services do not work between pods of a node."""
    with Path("/proc/sys/net/bridge/bridge-nf-call-iptables").open("w") as file:
        file.write("1")


def try_rule(root: str, backend: str) -> None:
    """Add `RULE` in this empty network namespace."""
    syscalls.mount("tmpfs", f"{root}/run", "tmpfs")
    try:
        command = [shutil.which("chroot") or "chroot", root, f"/usr/sbin/iptables-{backend}", *RULE.split()]
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    finally:
        syscalls.detach(f"{root}/run")


if __name__ == "__main__":
    main()
