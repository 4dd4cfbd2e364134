#!/usr/bin/python3 -IS
"""Execute runc with a specification without the capabilities that this process does not have.

Docker requests all capabilities of the kernel for a privileged container, and runc fails at the first that is not in its bounding
set, such as CAP_SYS_RESOURCE in many containers. So these are removed from the specifications of `runc create` and `runc exec`.
Imports the standard library only: Docker calls it as its runtime, in the root of docker_supervisor.py, with Debian's Python.
"""

import json
import os
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

NAMES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO",
    "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME",
    "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG",
    "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE",
)  # fmt: skip
"""Capabilities in the order of their numbers (linux/capability.h)."""
RUNC = "/usr/sbin/runc"


def missing(status: str) -> frozenset[str]:
    """Capabilities that are not in the bounding set, from the text of /proc/self/status."""
    bounding = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapBnd:"))
    return frozenset(f"CAP_{name}" for number, name in enumerate(NAMES) if not bounding >> number & 1)


def specification(arguments: list[str]) -> Path | None:
    """The file with the specification in these arguments of runc; None if they have none."""
    for option, value in pairwise(arguments):
        if option in {"--bundle", "-b"} and "create" in arguments:
            return Path(value, "config.json")
        if option in {"--process", "-p"} and "exec" in arguments:
            return Path(value)
    return None


def without(specified: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The specification of a container or of a process, without these capabilities."""
    removed = frozenset(names)
    process = specified.get("process", specified)
    sets = process.get("capabilities") or {}
    for kind, given in sets.items():
        sets[kind] = [name for name in given or () if name not in removed]
    return specified


def main() -> None:
    """Change the specification and execute runc."""
    arguments = sys.argv[1:]
    missing_names = missing(Path("/proc/self/status").read_text())
    file = specification(arguments)
    if missing_names and file is not None:
        file.write_text(json.dumps(without(json.loads(file.read_text()), missing_names)))
    os.execv(RUNC, [RUNC, *arguments])


if __name__ == "__main__":
    main()
