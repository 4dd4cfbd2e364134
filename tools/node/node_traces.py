"""Traces of a node on the machine: differences between a snapshot before its start and one after its end.

`snapshot` reads sysctls, packet filter rules, network links and routes, mounts, cgroups, kernel modules, default folders of the
kubelet and containerd, and processes with the node's folder in their command line or environment. `traces` returns the differences
that a node can have caused, `other_changes` those of other programs. Kernel counters and the like are left out. Called by
tools/checks/e2e.py, tests/node and tests/kind.
"""

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import node_cgroups

FOLDERS = (
    "/etc/cni", "/etc/containerd", "/opt/cni", "/opt/containerd", "/run/containerd", "/run/netns", "/run/xtables.lock",
    "/var/lib/cni", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/containers", "/var/log/pods",
)  # fmt: skip
SYSCTLS = ("kernel", "net", "vm")
CHANGING = ("kernel/ns_last_pid", "kernel/random/", "/stat", "vm/stat_refresh")
"""Sysctls that can be written and are counters or actions instead of settings."""
READ_AND_WRITTEN = 0o600
RULES = ("iptables-nft-save", "ip6tables-nft-save")
LEGACY_TABLES = ("ip_tables_names", "ip6_tables_names")
MARKS = {
    # Settings of an interface are created and deleted with it.
    "sysctls": re.compile(r"^.(?!net/ipv[46]/(?:conf|neigh)/(?!all/|default/|node0/|cni0/))"),
    "rules": re.compile(r"KUBE|CNI|cni0|node0|10\.(?:96|200|244)\."),
    "links": re.compile(r"^.(?:cni0|node0|kube-)"),
    "routes": re.compile(r"cni0|node0|00(?:C8|F4|60)0A"),  # addresses in hexadecimal, the last byte first
    "mounts": re.compile(r"kubelet|containerd|cni|raytide|/run/netns"),
    "cgroups": re.compile(r"/raytide-node|/kube|/k8s\.io|/containerd|/cri-| delegates "),
    "modules": re.compile(r"$^"),  # the kernel loads modules for rules of any program
    "folders": re.compile(""),
    "processes": re.compile(""),
}
"""Changed lines of each kind that a node can have caused."""
SHOWN = 5
Snapshot = Mapping[str, frozenset[str]]


def snapshot(name: str, packages: Path | None = None) -> Snapshot:
    """The machine now; `name` is in command lines or environments of the node, and `packages` has the programs that list rules."""
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    return {
        "sysctls": frozenset(_sysctls()),
        "rules": frozenset(_rules(packages)),
        "links": frozenset(path.name for path in Path("/sys/class/net").iterdir()),
        "routes": frozenset(Path("/proc/net/route").read_text().splitlines()),
        "mounts": frozenset(mounts),
        "cgroups": frozenset(_cgroups(mounts)),
        "modules": frozenset(line.split()[0] for line in _lines(Path("/proc/modules"))),
        "folders": frozenset(folder for folder in FOLDERS if Path(folder).exists()),
        "processes": frozenset(processes(name)),
    }


def traces(before: Snapshot, after: Snapshot) -> list[str]:
    """Differences that a node can have caused, one line per kind; empty if it left nothing."""
    return _lines_of(before, after, is_wanted=lambda kind, line: MARKS[kind].search(line) is not None)


def other_changes(before: Snapshot, after: Snapshot) -> list[str]:
    """Differences that other programs have caused, one line per kind."""
    return _lines_of(before, after, is_wanted=lambda kind, line: MARKS[kind].search(line) is None)


def _lines_of(before: Snapshot, after: Snapshot, is_wanted: Callable[[str, str], bool]) -> list[str]:
    found = []
    for kind, old in before.items():
        changes = [f"+{line}" for line in sorted(after[kind] - old)] + [
            f"-{line}" for line in sorted(old - after[kind])
        ]
        wanted = [line for line in changes if is_wanted(kind, line)]
        if wanted:
            more = f" and {len(wanted) - SHOWN} more" if len(wanted) > SHOWN else ""
            found.append(f"{kind}: {', '.join(wanted[:SHOWN])}{more}")
    return found


def _sysctls() -> Iterator[str]:
    for top in SYSCTLS:
        for path in sorted(Path("/proc/sys", top).rglob("*")):
            name = str(path.relative_to("/proc/sys"))
            if (
                path.is_file()
                and path.stat().st_mode & READ_AND_WRITTEN == READ_AND_WRITTEN
                and not any(part in name for part in CHANGING)
            ):
                yield f"{name}={' '.join(_lines(path))}"


def _rules(packages: Path | None) -> Iterator[str]:
    """Rules of the initial network namespace, without counters and timestamps."""
    for name in LEGACY_TABLES:
        yield from (f"{name}: {line}" for line in _lines(Path("/proc/net", name)))
    for program in RULES if packages else ():
        command = ["chroot", str(packages), f"/usr/sbin/{program}"]
        listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        for line in listed.splitlines():
            if not line.startswith("#"):
                yield f"{program}: {line.partition(' [')[0].strip()}"


def _cgroups(mounts: list[str]) -> Iterator[str]:
    """Groups below the root of each hierarchy, where the group of a node is, and the controllers that are enabled for them."""
    for line in mounts:
        _, folder, kind, *_ = line.split()
        if kind in {"cgroup", "cgroup2"}:
            yield from (str(path) for path in Path(folder).iterdir() if path.is_dir())
            yield from (f"{folder} delegates {name}" for name in node_cgroups.delegated(Path(folder)))


def processes(name: str) -> Iterator[str]:
    """Other processes with this text in their command line, environment or cgroup."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                # The command line last: while a program starts, its environment is the last to appear.
                found_in = (entry / "environ").read_bytes() + (entry / "cgroup").read_bytes()
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if name.encode() in words + found_in:
                yield f"{entry.name} {words.replace(bytes(1), b' ').decode(errors='replace')[:120]}"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").split("\n")
    except OSError:
        return []
