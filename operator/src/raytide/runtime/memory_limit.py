"""Memory limit of this process: that of its container, which the kubelet sets in the container's cgroup.

Reads the file of the cgroup each time, because a limit can change while the container runs (in-place resize). Works with
cgroup v2 and v1. Without a limit, or outside a container, it is 0. Called by manager/main.py for `/metrics`.
"""

from pathlib import Path
from typing import Final

FILES: Final = ("memory.max", "memory/memory.limit_in_bytes")
"""In a container, the root of the mounted cgroup file system is the container's own cgroup: v2, v1."""
UNLIMITED_BYTES: Final = 1 << 60
"""Without a limit v2 has the word `max`, v1 a number near 2^63."""


def memory_limit_bytes(cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """The limit in bytes; 0 if there is none or it cannot be read."""
    for name in FILES:
        try:
            limit = int((cgroups / name).read_text())
        except (OSError, ValueError):
            continue
        return limit if limit < UNLIMITED_BYTES else 0
    return 0
