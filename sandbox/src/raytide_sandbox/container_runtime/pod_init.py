"""First process of a pod: runs its commands and ends all of them when it ends.

Forked by node_init.py. In mode ns it prepares the pod's network and mounts; then it starts containers and execs as the
kubelet requests over a socket, reaps orphans, and reports how commands have ended. The end of a container's main
process ends everything it started; the end of the kubelet's socket ends the pod. It has a single thread and keeps no
state that other processes need.
"""

import contextlib
import fcntl
import os
import resource
import select
import signal
import socket
import sys
import termios
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from raytide_sandbox.container_runtime import ipc_protocol, namespaced_rootfs, netlink, process_tags, syscalls

_COMMAND_NOT_RUN: Final = 127


@dataclass(frozen=True, slots=True)
class PodPlan:
    """Plan of a pod for its first process."""

    key: str
    """Unique per sandbox, also among those of one pod; part of the process marks."""
    name: str
    hostname: str
    has_namespaces: bool
    state_dir: str
    ip: str
    gateway: str
    prefix_length: int
    bridge: str
    cable: str
    tmpfs: tuple[tuple[str, int | None], ...]
    """(host path, size in bytes) of each tmpfs that the containers share; None is no limit."""

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> "PodPlan":
        """The plan from a message that node_init.py received."""
        plan = {name: message[name] for name in cls.__slots__}
        return cls(**{**plan, "tmpfs": tuple((path, size) for path, size in plan["tmpfs"])})


def prepare(plan: PodPlan, node_network: netlink.Netlink) -> None:
    """As PID 1 of new namespaces, connect the pod to the node's bridge and mount what its containers share."""
    with Path("/proc/thread-self/ns/net").open("rb") as own, netlink.Netlink() as network:
        node_network.add_cable(plan.cable, plan.bridge, "eth0", own.fileno())
        network.set_up("lo")
        network.add_address("eth0", plan.ip, plan.prefix_length)
        network.set_up("eth0")
        network.add_default_route(plan.gateway)
    syscalls.mount(None, "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.mount("proc", "/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC)
    for path, size_bytes in plan.tmpfs:
        options = "mode=1777" + ("" if size_bytes is None else f",size={size_bytes}")
        syscalls.mount("tmpfs", path, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
    syscalls.set_hostname(plan.hostname)


@dataclass(slots=True)
class Command:
    """A started command: a container's main process (with a mark to find its descendants) or an exec."""

    id: int
    mark: str | None


class PodInit:
    """Event loop of a pod's first process."""

    def __init__(self, plan: PodPlan, kubelet: socket.socket) -> None:
        self._plan = plan
        self._kubelet = kubelet
        self._commands: dict[int, Command] = {}
        self._is_ending = False

    def run(self) -> NoReturn:
        """Serve requests until the kubelet is gone, then end the pod."""
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_parent_death)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        while not self._is_ending:
            ready, _, _ = select.select([self._kubelet.fileno(), wake_read], [], [])
            if wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 4096)
            self._reap()
            if self._kubelet.fileno() in ready:
                self._serve()
        self._end()

    def _on_parent_death(self, *_: object) -> None:
        self._is_ending = True

    def _say(self, **message: Any) -> None:
        try:
            ipc_protocol.send(self._kubelet, message)
        except OSError:
            self._is_ending = True

    def _serve(self) -> None:
        received = ipc_protocol.receive(self._kubelet)
        if received is None:
            self._is_ending = True
            return
        message, fds = received
        try:
            getattr(self, f"_on_{message['op']}")(message, fds)
        except OSError as error:
            self._say(event="refused", id=message["id"], why=str(error))
        finally:
            for fd in fds:
                os.close(fd)

    def _on_start(self, message: dict[str, Any], fds: list[int]) -> None:
        self._spawn(message, fds, Command(message["id"], message["mark"]))

    def _on_exec(self, message: dict[str, Any], fds: list[int]) -> None:
        self._spawn(message, fds, Command(message["id"], None))

    def _on_signal(self, message: dict[str, Any], _: list[int]) -> None:
        """Signal the process alone, as container runtimes do."""
        for pid in self._pids(message["id"]):
            os.kill(pid, message["signal"])

    def _on_kill(self, message: dict[str, Any], _: list[int]) -> None:
        """SIGKILL the process group; when a container's main process is reaped, its other descendants are killed."""
        for pid in self._pids(message["id"]):
            os.killpg(pid, signal.SIGKILL)

    def _pids(self, command_id: int) -> list[int]:
        return [pid for pid, command in self._commands.items() if command.id == command_id]

    def _spawn(self, message: dict[str, Any], fds: list[int], command: Command) -> None:
        error_read, error_write = os.pipe2(os.O_CLOEXEC)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become(message, fds, error_write, parent)
        os.close(error_write)
        with os.fdopen(error_read, "rb") as file:
            error_text = file.read().decode(errors="replace")
        if error_text:
            os.waitpid(pid, 0)
            self._say(event="refused", id=command.id, why=error_text)
            return
        self._commands[pid] = command
        self._say(event="started", id=command.id, pid=pid)

    def _reap(self) -> None:
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            command = self._commands.pop(ended.si_pid, None)
            if command is not None and command.mark is not None:
                _end_family(ended.si_pid, command.mark)
            _, status = os.waitpid(ended.si_pid, 0)
            if command is not None:
                self._say(event="exit", id=command.id, status=os.waitstatus_to_exitcode(status))

    def _end(self) -> NoReturn:
        """End the pod: the kernel ends a PID namespace with its PID 1; without one, processes are killed by mark."""
        if not self._plan.has_namespaces:
            mark = process_tags.pod_mark(self._plan.state_dir, self._plan.key)
            process_tags.kill_all(lambda: process_tags.family({os.getpid()}, mark) - {os.getpid()})
        os._exit(0)


def _end_family(pid: int, mark: str) -> None:
    """Kill the descendants of a container's main process, while its zombie keeps the process id from being reused."""
    process_tags.kill_all(lambda: process_tags.family({pid}, mark) - {pid})


def _become(message: dict[str, Any], fds: list[int], error_fd: int, parent: int) -> NoReturn:
    """In the forked child, exec the command, or write the reason of a failure to `error_fd`."""
    try:
        _take_stdio(fds, is_tty=message["is_tty"])
        syscalls.die_with_parent()
        if os.getppid() != parent:
            os._exit(_COMMAND_NOT_RUN)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        if message.get("root") is not None:
            namespaced_rootfs.enter(namespaced_rootfs.RootPlan.from_message(message["root"]))
        if message.get("beside") is not None:
            _join(message["beside"], has_user=message["user"] is not None)
        elif message["user"] is not None:
            _become_user(*message["user"])
        syscalls.die_with_parent()  # a change of user namespace resets it
        if message["has_no_new_privileges"]:
            syscalls.set_no_new_privileges()
        os.umask(0o022)
        os.chdir(message["working_dir"])
        argv = _within_limits(message["argv"])
        os.execvpe(argv[0], argv, message["env"])  # noqa: S606 - running commands is the point
    except OSError as error:
        os.write(error_fd, _explain(error, message).encode())
    finally:
        os._exit(_COMMAND_NOT_RUN)


def _explain(error_text: OSError, message: dict[str, Any]) -> str:
    place = error_text.filename if error_text.filename is not None else message["argv"][0]
    return f"{message['argv'][0]}: {error_text.strerror or error_text}: {place}"


def _take_stdio(fds: list[int], *, is_tty: bool) -> None:
    os.setsid()
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
    if is_tty:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _within_limits(argv: list[str]) -> list[str]:
    """Lower `ulimit -n 65536` of Ray's start command to the machine's hard limit, so that it does not fail."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= 65536:
        return argv
    return [word.replace("ulimit -n 65536", f"ulimit -n {hard}") for word in argv]


def _join(pid: int, *, has_user: bool) -> None:
    """Join the mount namespace of process `pid` and, with `has_user`, its user namespace."""
    with Path(f"/proc/{pid}/ns/mnt").open("rb") as mounts, Path(f"/proc/{pid}/ns/user").open("rb") as users:
        syscalls.setns(mounts.fileno(), syscalls.CLONE_NEWNS)
        if has_user:
            syscalls.setns(users.fileno(), syscalls.CLONE_NEWUSER)


def _become_user(uid: int, gid: int) -> None:
    """Enter a user namespace with these ids, and thereby without root's capabilities over the container."""
    outer = os.geteuid(), os.getegid()
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    syscalls.map_to_self(*outer, inner_uid=uid, inner_gid=gid)


def main(plan: PodPlan, kubelet: socket.socket, node_network: netlink.Netlink | None) -> NoReturn:
    """Run the first process of the pod; never returns."""
    syscalls.set_title(f"pod {plan.name}")
    syscalls.adopt_orphans()
    try:
        if node_network is not None:
            prepare(plan, node_network)
            node_network.close()
    except OSError as error:
        print(f"{plan.name}: {error}", file=sys.stderr, flush=True)  # noqa: T201 - stderr is the holder's log file
        ipc_protocol.send(kubelet, {"event": "failed", "why": str(error)})
        os._exit(1)
    ipc_protocol.send(kubelet, {"event": "ready"})
    PodInit(plan, kubelet).run()
