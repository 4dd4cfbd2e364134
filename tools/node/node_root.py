"""Root file system of a node: unpacked Debian packages, read-only, with writable folders of the node.

`enter_new` creates the mounts in a new mount namespace and makes them the root of this process. It has /var/lib/kubelet, /run,
/etc/raytide and so on; the folders of the machine are not reachable. Sysctls are read-only except those of the network, which
belong to the network namespace of the node, and the six that the kubelet writes, which are files of the node. Called by
node_supervisor.py and docker_supervisor.py in a forked process.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from node_config import CONFIGURATION, PROGRAMS
from raytide_sandbox.container_runtime import syscalls

SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""Sysctls of the whole machine that the kubelet writes at its start, with these values."""
DEVICES = ("full", "kmsg", "null", "random", "tty", "urandom", "zero")
VARIABLE = ("lib/cni", "lib/containerd", "lib/kubelet", "log/containers", "log/pods", "tmp")
"""Folders of /var that must exist."""
_SYSFS_CPU = "/sys/devices/system/cpu"
_SYSFS_NODE = "/sys/devices/system/node"


@dataclass(frozen=True)
class RootPlan:
    """Folders of the machine of which the root consists."""

    packages: Path
    programs: Path
    work: Path
    """The folder that the node writes to; its folders `etc` and `var` are mounted in the root."""
    cpus: int

    @property
    def configuration(self) -> Path:
        """The folder that is `CONFIGURATION` in the root."""
        return self.work / "etc" / Path(CONFIGURATION).name


def prepare(plan: RootPlan) -> None:
    """Create the folders and files of the root, without mounts."""
    for name in VARIABLE:
        (plan.work / "var" / name).mkdir(parents=True, exist_ok=True)
    (plan.work / "var" / "run").symlink_to("/run")
    (plan.work / "root").mkdir()
    plan.configuration.mkdir(parents=True, exist_ok=True)
    etc = plan.configuration.parent
    (etc / "hosts").write_text("127.0.0.1 localhost\n")
    (etc / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (etc / "group").write_text("root:x:0:\n")
    (etc / "machine-id").write_text("5261797469646500000000000000000a\n")
    for name, value in SYSCTLS.items():
        _write(plan.work / "sysctl" / name, f"{value}\n")
    _write_cpus(plan.work / "sys", plan.cpus, Path(_SYSFS_CPU, "online").read_text())


def _write_cpus(folder: Path, count: int, online: str) -> None:
    """Write folders of sysfs with `count` CPUs, which the kubelet counts.

    `online` is unchanged, so that no cpuset has a CPU that the machine does not have.
    """
    for number in range(count):
        _write(folder / "cpu" / f"cpu{number}" / "topology" / "core_id", f"{number}\n")
        _write(folder / "cpu" / f"cpu{number}" / "topology" / "physical_package_id", "0\n")
    _write(folder / "cpu" / "online", online)
    (folder / "node").mkdir()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def enter_new(plan: RootPlan, layers: Mapping[str, Path]) -> None:
    """Create the root in a new mount namespace and move this process into it; raises OSError.

    `layers` are folders of the machine by the path in the root where they are mounted read-only.
    """
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount(None, "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    root = str(plan.work / "root")
    syscalls.mount(str(plan.packages), root, flags=syscalls.MS_BIND)
    syscalls.make_read_only(root, is_recursive=False)
    syscalls.bind(str(plan.programs), root + PROGRAMS, is_read_only=True)
    for name in ("etc", "var"):
        syscalls.bind(str(plan.work / name), f"{root}/{name}")
    for target, source in layers.items():
        syscalls.bind(str(source), root + target, is_read_only=True)
    for name, options in (("run", "mode=755"), ("tmp", "mode=1777")):
        syscalls.mount("tmpfs", f"{root}/{name}", "tmpfs", options=options)
    _add_devices(root)
    _add_proc(root, plan.work / "sysctl")
    _add_sysfs(root, plan.work / "sys")
    old = f"{root}/run/old-root"
    Path(old).mkdir()
    syscalls.pivot_root(root, old)
    syscalls.detach("/run/old-root")
    Path("/run/old-root").rmdir()
    syscalls.mount(
        None, "/", flags=syscalls.MS_REC | MS_SHARED
    )  # the kubelet requires it for mount propagation of volumes


MS_SHARED = 1 << 20


def _add_devices(root: str) -> None:
    syscalls.mount("tmpfs", f"{root}/dev", "tmpfs", options="mode=755")
    for name in DEVICES:
        Path(f"{root}/dev/{name}").touch()
        syscalls.bind(f"/dev/{name}", f"{root}/dev/{name}")
    for name, kind, options in (
        ("pts", "devpts", "newinstance,ptmxmode=0666,mode=0620"),
        ("shm", "tmpfs", "mode=1777"),
        ("mqueue", "mqueue", None),
    ):
        Path(f"{root}/dev/{name}").mkdir()
        syscalls.mount(kind, f"{root}/dev/{name}", kind, options=options)
    Path(f"{root}/dev/ptmx").symlink_to("pts/ptmx")
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        Path(f"{root}/dev/{name}").symlink_to(target)


def _add_proc(root: str, sysctls: Path) -> None:
    syscalls.mount("proc", f"{root}/proc", "proc")
    syscalls.bind(f"{root}/proc/sys", f"{root}/proc/sys", is_read_only=True)
    syscalls.bind("/proc/sys/net", f"{root}/proc/sys/net")  # writable, over the read-only mount
    for name in SYSCTLS:
        syscalls.bind(str(sysctls / name), f"{root}/proc/sys/{name}")


def _add_sysfs(root: str, copies: Path) -> None:
    syscalls.mount("sysfs", f"{root}/sys", "sysfs", flags=syscalls.MS_RDONLY)
    syscalls.bind("/sys/fs/cgroup", f"{root}/sys/fs/cgroup")
    for folder in (_SYSFS_CPU, _SYSFS_NODE):
        if Path(root + folder).exists():
            syscalls.bind(str(copies / Path(folder).name), root + folder, is_read_only=True)
