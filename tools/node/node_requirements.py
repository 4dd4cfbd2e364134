"""Requirements of a node, compared with the machine, and the settings that depend on the machine.

Input: a Machine (node_machine.py). Output: one line per requirement with the state of the machine, and with the fix if it is
not met; and settings. Does no I/O. Used by node_check.py, node.py and kind_docker.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from node_cgroups import NEEDED, NEEDED_V1
from node_machine import Machine

GIB = 1 << 30
NEEDED_DISK_BYTES = 6 * GIB
"""Free space for images in containerd and for what pods write."""
BUILD_DISK_BYTES = 6 * GIB
"""Additional space until Go has built the programs: its module and build caches, and both images."""
NEEDED_MEMORY_BYTES = 4 * GIB
"""For a control plane, the operator, a head and four workers."""
REPORTED_CPUS = 8
"""Least number of CPUs that a node reports: the pods of the suite request five, and are idle most of the time."""
NEEDED_CAPABILITIES = ("CAP_MKNOD", "CAP_NET_ADMIN", "CAP_SETPCAP", "CAP_SYS_ADMIN")
PRIVILEGED = "use the machine itself, or a container with --privileged"
PACKAGES_REMEDY = "use Debian or Ubuntu, with a network and the component main in /etc/apt/sources.list"


@dataclass(frozen=True)
class Requirement:
    """One requirement and the state of the machine."""

    name: str
    found: str
    fix: str = ""
    """Empty if it is met."""

    @property
    def line(self) -> str:
        """The line of `make e2e CHECK=1`."""
        return f"{self.name + ':':<18} {self.found}{'; ' + self.fix if self.fix else ''}"


def requirements(machine: Machine) -> list[Requirement]:
    """All requirements, met or not."""
    return list(_requirements(machine))


def unmet(machine: Machine) -> list[Requirement]:
    """The requirements that are not met."""
    return [requirement for requirement in requirements(machine) if requirement.fix]


def in_one_line(unmet: list[Requirement]) -> str:
    """These requirements in one line for an error message."""
    return "; ".join(f"{each.name}: {each.found}: {each.fix}" for each in unmet)


def _requirements(machine: Machine) -> Iterator[Requirement]:
    if machine.uid == 0:
        yield Requirement("root", "yes")
        yield _capabilities(machine)
        yield from _trials(machine)
    else:
        yield Requirement("root", "no", "run `sudo make e2e ON=node`")
    yield _cgroups(machine)
    yield _packages(machine)
    yield _programs(machine)
    yield _disk(machine)
    yield _memory(machine)
    reported = f"; the node reports {REPORTED_CPUS}" if machine.cpus < REPORTED_CPUS else ""
    yield Requirement("processors", f"{machine.cpus}{reported}")


def _capabilities(machine: Machine) -> Requirement:
    missing = [name for name in NEEDED_CAPABILITIES if name not in machine.capabilities]
    if missing:
        return Requirement("capabilities", f"no {', '.join(missing)}", PRIVILEGED)
    lowered = "" if "CAP_SYS_RESOURCE" in machine.capabilities else " (no CAP_SYS_RESOURCE: OOM scores are not lowered)"
    return Requirement("capabilities", f"enough{lowered}")


def _trials(machine: Machine) -> Iterator[Requirement]:
    trials = machine.trials
    names = ("mount", "net", "pid", "ipc", "uts")
    failed = [f"{name} ({trials.get(name, 'not tried')})" for name in names if trials.get(name, "not tried")]
    yield Requirement(
        "namespaces", f"no {', '.join(failed)}" if failed else ", ".join(names), PRIVILEGED if failed else ""
    )
    if not failed:
        yield from _network_trials(machine)
    if error := trials.get("kmsg", "not tried"):
        yield Requirement("/dev/kmsg", f"no ({error})", f"the kubelet reads it: {PRIVILEGED}")
    error = trials.get("overlay", "not tried")
    yield Requirement("overlay", f"no ({error}): images are copied instead" if error else "yes")


def _network_trials(machine: Machine) -> Iterator[Requirement]:
    if error := machine.trials.get("bridge", "not tried"):
        yield Requirement("bridge netfilter", f"no ({error})", "run `modprobe br_netfilter`")
    else:
        yield Requirement("bridge netfilter", "yes")
    backend = iptables_backend(machine)
    if backend or machine.root is None:
        yield Requirement("iptables", backend or "not tried without the packages")
    else:
        error = machine.trials.get("iptables-nft", "not tried")
        yield Requirement("iptables", f"no ({error})", "run `modprobe -a nf_tables nft_compat nf_nat`")


def _cgroups(machine: Machine) -> Requirement:
    cgroups = machine.cgroups
    if not cgroups.version:
        return Requirement("cgroups", "none", f"mount them at /sys/fs/cgroup; {PRIVILEGED}")
    found = f"version {cgroups.version}"
    if cgroups.missing:
        fix = "boot with cgroup_enable=memory" if "memory" in cgroups.missing else "enable them in the kernel"
        return Requirement("cgroups", f"{found} without {', '.join(cgroups.missing)}", fix)
    return Requirement("cgroups", f"{found} with {', '.join(NEEDED + (NEEDED_V1 if cgroups.version == 1 else ()))}")


def _packages(machine: Machine) -> Requirement:
    if machine.packages_error:
        return Requirement("Debian packages", machine.packages_error, PACKAGES_REMEDY)
    return Requirement("Debian packages", f"unpacked in {machine.root}" if machine.root else "not tried without root")


def _programs(machine: Machine) -> Requirement:
    if machine.are_programs_built:
        return Requirement("Go programs", "built")
    if machine.go_error:
        return Requirement("Go programs", machine.go_error, "install it (https://go.dev/dl)")
    return Requirement("Go programs", "not built yet")


def _disk(machine: Machine) -> Requirement:
    needed = NEEDED_DISK_BYTES + (0 if machine.are_programs_built else BUILD_DISK_BYTES)
    found = f"{machine.free_bytes / GIB:.0f} GiB free in {machine.cache}"
    if machine.free_bytes < needed:
        fix = f"free up {needed // GIB} GiB, or set XDG_CACHE_HOME to a folder on another disk"
        return Requirement("disk", found, fix)
    return Requirement("disk", found)


def _memory(machine: Machine) -> Requirement:
    found = f"{machine.memory_bytes / GIB:.0f} GiB available"
    is_enough = machine.memory_bytes >= NEEDED_MEMORY_BYTES
    return Requirement(
        "memory", found, "" if is_enough else f"{NEEDED_MEMORY_BYTES // GIB} GiB are needed: end other programs"
    )


# --- settings --------------------------------------------------------------------------------------------------------------


def iptables_backend(machine: Machine) -> str:
    """`nft` or `legacy`, the first that the kernel supports; empty if it supports neither."""
    return next((name for name in ("nft", "legacy") if machine.trials.get(f"iptables-{name}") == ""), "")


def snapshotter(machine: Machine) -> str:
    """Snapshotter of containerd."""
    return "native" if machine.trials.get("overlay", "not tried") else "overlayfs"


def may_lower_oom_scores(machine: Machine) -> bool:
    """Whether runc may set OOM scores below its own, which requires CAP_SYS_RESOURCE."""
    return "CAP_SYS_RESOURCE" in machine.capabilities


def reported_cpus(machine: Machine) -> int:
    """Number of CPUs that the node reports."""
    return max(machine.cpus, REPORTED_CPUS)
