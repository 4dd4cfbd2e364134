"""Control groups of the machine.

Reads /proc/self/mounts and /sys/fs/cgroup: the version, the controllers and the mount points. All processes of a node are in
one group per hierarchy, `/raytide-node-…`, which is created before its first process and removed after its last one. Used by
node_machine.py, node_keeper.py and node_traces.py.
"""

import contextlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

NEEDED = ("cpu", "cpuset", "memory", "pids")
"""Controllers that the kubelet requires with version 1 and 2."""
NEEDED_V1 = ("cpuacct", "devices", "freezer")
"""Controllers of version 1 that runc also requires; in version 2 they are built in."""
INHERITED = ("cpuset.cpus", "cpuset.mems")
"""Files of version 1 that are empty in a new group; until they have a value, no process can join it."""
REMOVAL_S = 10.0
_POLL_S = 0.05


@dataclass(frozen=True)
class Cgroups:
    """The machine's hierarchies."""

    version: int
    """1, 2, or 0 if none is mounted."""
    controllers: frozenset[str]
    folders: tuple[Path, ...]
    """Mount points: one per hierarchy of version 1, one for all controllers of version 2."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Required controllers that the machine does not have."""
        needed = (*NEEDED, *NEEDED_V1) if self.version == 1 else NEEDED
        return tuple(name for name in needed if name not in self.controllers)


def parse_mounts(mounts: str, unified_controllers: str) -> Cgroups:
    """Parse the text of /proc/self/mounts, and of cgroup.controllers of version 2 (empty if it is not mounted).

    A hybrid machine has both versions, with all controllers in version 1, which is then returned.
    """
    v1: dict[Path, frozenset[str]] = {}
    v2: list[Path] = []
    for line in mounts.splitlines():
        _, folder, kind, options, *_ = line.split()
        if kind == "cgroup":
            v1[Path(folder)] = frozenset(options.split(","))
        elif kind == "cgroup2":
            v2.append(Path(folder))
    known = frozenset((*NEEDED, *NEEDED_V1, "blkio", "io", "hugetlb", "net_cls", "net_prio", "perf_event"))
    if controllers := frozenset().union(*v1.values()) & known:
        return Cgroups(1, controllers, (*v1, *v2))
    if v2:
        return Cgroups(2, frozenset(unified_controllers.split()), tuple(v2[:1]))
    return Cgroups(0, frozenset(), ())


def read() -> Cgroups:
    """The hierarchies of this machine."""
    mounts = Path("/proc/self/mounts").read_text()
    unified = [line.split()[1] for line in mounts.splitlines() if line.split()[2] == "cgroup2"]
    controllers = Path(unified[0], "cgroup.controllers") if unified else Path("/nowhere")
    return parse_mounts(mounts, controllers.read_text() if controllers.exists() else "")


def delegated(folder: Path) -> frozenset[str]:
    """Controllers that are enabled for the groups in this folder; none in a hierarchy of version 1."""
    try:
        return frozenset((folder / "cgroup.subtree_control").read_text().split())
    except FileNotFoundError:
        return frozenset()


def restore(folders: Iterable[Path], before: Mapping[str, Iterable[str]]) -> None:
    """Disable the controllers that were not enabled before the node: its kubelet enables all that exist, with version 2."""
    for folder in folders:
        for name in delegated(folder) - set(before.get(str(folder), delegated(folder))):
            with contextlib.suppress(OSError):  # another program may use it now
                (folder / "cgroup.subtree_control").write_text(f"-{name}")


def create(cgroups: Cgroups, name: str) -> None:
    """Create the group `name` in each hierarchy, with all CPUs and memory nodes of the machine; raises OSError."""
    for folder in cgroups.folders:
        if cgroups.version == 2:
            wanted = " ".join(f"+{controller}" for controller in NEEDED)
            (folder / "cgroup.subtree_control").write_text(wanted)
        (folder / name).mkdir(exist_ok=True)
        for file in INHERITED:
            if cgroups.version == 1 and (folder / file).exists():
                (folder / name / file).write_text((folder / file).read_text())


def remove(folders: Iterable[Path], name: str) -> list[Path]:
    """Remove the group `name` and its children from each hierarchy; returns the groups that could not be removed.

    Retries for `REMOVAL_S`, because the kernel releases the group of an ended process with a delay.
    """
    deadline = time.monotonic() + REMOVAL_S
    while True:
        for folder in folders:
            for group in _groups(folder / name):
                with contextlib.suppress(OSError):
                    group.rmdir()
        left = [folder / name for folder in folders if (folder / name).exists()]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(_POLL_S)


def _groups(top: Path) -> list[Path]:
    """The group and all below it, children first."""
    found = [path for path in top.rglob("*") if path.is_dir()] if top.exists() else []
    return [*sorted(found, key=lambda path: len(path.parts), reverse=True), top]
