"""State of this machine as far as a node depends on it.

Reads /proc and /sys, unpacks the packages (debian_root.py) and runs node_trial.py, which tests what the kernel allows.
node_requirements.py compares the result with the requirements. Used by node_check.py, node.py and tools/kind.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import debian_root
import go_build
import node_cgroups
import node_programs
from build_cache import cache_folder
from debian_packages import DebianError
from node_cgroups import Cgroups

PACKAGES = ("conntrack", "containerd", "containernetworking-plugins", "iptables", "mount", "runc")
"""Debian packages of a node: their programs are not in the Go module proxy, or require cgo."""
CAPABILITIES = {"CAP_SETPCAP": 8, "CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21, "CAP_SYS_RESOURCE": 24, "CAP_MKNOD": 27}
"""Capabilities that root in a container may not have, with their numbers (linux/capability.h)."""


@dataclass(frozen=True)
class Machine:
    """State of the machine."""

    uid: int
    capabilities: frozenset[str]
    trials: dict[str, str]
    """Error of each trial of node_trial.py, empty if it succeeded. No trials without root."""
    cgroups: Cgroups
    cpus: int
    memory_bytes: int
    """Available memory."""
    cache: Path
    free_bytes: int
    """Free space of the disk of the cache folder."""
    packages_error: str = ""
    go_error: str = ""
    are_programs_built: bool = False
    root: Path | None = field(default=None, compare=False)
    """Folder of the unpacked packages."""


def read() -> Machine:
    """The state now; takes seconds, about ten if packages have to be downloaded."""
    cache = cache_folder("node")
    cache.mkdir(parents=True, exist_ok=True)
    is_root = os.geteuid() == 0
    root, packages_error = _packages() if is_root else (None, "")  # the files have to be owned by root
    return Machine(
        uid=os.geteuid(),
        capabilities=parse_capabilities(Path("/proc/self/status").read_text()),
        trials=_trials(cache, root) if is_root else {},
        cgroups=node_cgroups.read(),
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=parse_available_memory(Path("/proc/meminfo").read_text()),
        cache=cache,
        free_bytes=shutil.disk_usage(cache).free,
        packages_error=packages_error,
        go_error=_go_error(),
        are_programs_built=node_programs.are_built(),
        root=root,
    )


def parse_capabilities(status: str) -> frozenset[str]:
    """The effective ones of `CAPABILITIES`, from the text of /proc/self/status."""
    mask = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:"))
    return frozenset(name for name, number in CAPABILITIES.items() if mask >> number & 1)


def parse_available_memory(meminfo: str) -> int:
    """MemAvailable of /proc/meminfo in bytes."""
    return next(int(line.split()[1]) * 1024 for line in meminfo.splitlines() if line.startswith("MemAvailable:"))


def _packages() -> tuple[Path | None, str]:
    try:
        return debian_root.provide(PACKAGES), ""
    except (DebianError, OSError) as error:
        return None, str(error)


def _go_error() -> str:
    try:
        go_build.go_version(node_programs.MODULE)
    except go_build.GoMissingError as error:
        return str(error)
    return ""


def _trials(folder: Path, root: Path | None) -> dict[str, str]:
    command = [sys.executable, Path(__file__).with_name("node_trial.py"), folder, *([root] if root else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found: dict[str, str] = json.loads(done.stdout) if done.returncode == 0 else {"mount": done.stderr.strip()[-200:]}
    return found
