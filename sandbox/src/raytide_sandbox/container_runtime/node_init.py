"""First process of a node: forks the pods of a sandbox and ends them when it ends.

Started by node_init_client.py with a socket, over which it receives its plan. In mode ns it becomes PID 1 of
unprivileged user, mount, network and PID namespaces with a bridge, so that the kernel ends every pod with it; in mode
plain it adopts orphans and kills what pods leave by their marks. It forks the first processes of pods, passes out
sockets of its network, and reports pods that have ended. It ends when the sandbox does.
"""

import contextlib
import errno
import gc
import os
import resource
import select
import signal
import socket
import sys
from typing import Any, Final, NoReturn

from raytide_sandbox.container_runtime import ipc_protocol, netlink, pod_init, process_tags, syscalls

_POD_NAMESPACES: Final = (
    syscalls.CLONE_NEWNET | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWPID | syscalls.CLONE_NEWUTS | syscalls.CLONE_NEWIPC
)
_OPEN_FILES: Final = 65536
_POLICY: Final = "the system's policy forbids it (AppArmor, seccomp or a sysctl)"
_HINTS: Final = {
    errno.EPERM: _POLICY,
    errno.EACCES: _POLICY,
    errno.ENOSPC: "the sysctl user.max_user_namespaces allows no more",
    errno.ENOSYS: "the kernel is too old or built without it",
}


class Holder:
    """Event loop of the node's first process."""

    def __init__(self, control: socket.socket, state_dir: str, *, has_namespaces: bool) -> None:
        self._control = control
        self._state_dir = state_dir
        self._has_namespaces = has_namespaces
        self._key_by_pid: dict[int, str] = {}

    def run(self) -> None:
        """Serve requests until the sandbox closes the socket."""
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        while True:
            ready, _, _ = select.select([self._control.fileno(), wake_read], [], [])
            if wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 4096)
            self._reap()
            if self._control.fileno() in ready and not self._serve():
                return

    def _serve(self) -> bool:
        received = ipc_protocol.receive(self._control)
        if received is None:
            return False
        message, fds = received
        try:
            getattr(self, f"_on_{message['op']}")(message, fds)
        except OSError as error:
            ipc_protocol.send(self._control, {"event": "refused", "id": message["id"], "why": str(error)})
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _on_socket(self, message: dict[str, Any], _: list[int]) -> None:
        kind = socket.SOCK_DGRAM if message["kind"] == "dgram" else socket.SOCK_STREAM
        with socket.socket(socket.AF_INET, kind) as opened:
            ipc_protocol.send(self._control, {"event": "done", "id": message["id"]}, [opened.fileno()])

    def _on_pod(self, message: dict[str, Any], fds: list[int]) -> None:
        plan = pod_init.PodPlan.from_message(message["plan"])
        pid_read, pid_write = os.pipe2(os.O_CLOEXEC)
        holder = os.getpid()
        child = os.fork()
        if child == 0:
            self._become_pod(plan, fds[0], pid_write, holder)
        os.close(pid_write)
        with os.fdopen(pid_read, "rb") as file:
            answer = file.read().decode()
        if not answer.isdigit():
            raise OSError(0, answer or "the pod's first process ended at once")
        self._key_by_pid[int(answer)] = plan.key
        ipc_protocol.send(self._control, {"event": "done", "id": message["id"], "pid": int(answer)})

    def _on_kill(self, message: dict[str, Any], _: list[int]) -> None:
        """SIGKILL the first process of a pod that does not end by itself."""
        for pid, key in self._key_by_pid.items():
            if key == message["key"]:
                os.kill(pid, signal.SIGKILL)

    def _become_pod(self, plan: pod_init.PodPlan, kubelet_fd: int, pid_fd: int, holder: int) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            network = None
            if self._has_namespaces:
                network = netlink.Netlink()
                syscalls.unshare(_POD_NAMESPACES)
                child = os.fork()
                if child:
                    os.write(pid_fd, str(child).encode())
                    os._exit(0)
            else:
                syscalls.die_with_parent(signal.SIGTERM)
                if os.getppid() != holder:
                    os._exit(1)
                os.write(pid_fd, str(os.getpid()).encode())
            os.close(pid_fd)
            self._control.close()
            pod_init.main(plan, socket.socket(fileno=os.dup(kubelet_fd)), network)
        except OSError as error:
            os.write(pid_fd, str(error).encode())
        finally:
            os._exit(1)

    def _reap(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            key = self._key_by_pid.pop(pid, None)
            if key is not None:
                if not self._has_namespaces:
                    mark = process_tags.pod_mark(self._state_dir, key)
                    process_tags.kill_all(lambda mark=mark: process_tags.family((), mark))  # type: ignore[misc]
                ipc_protocol.send(self._control, {"event": "gone", "key": key})

    def end(self) -> None:
        """Without a PID namespace, kill every remaining process."""
        if not self._has_namespaces:
            mark = process_tags.node_mark(self._state_dir)
            process_tags.kill_all(lambda: process_tags.family({os.getpid()}, mark))


def _enter_namespaces() -> None:
    """Return as PID 1 of new namespaces; the original process waits for it, and each ends with the other."""
    uid, gid = os.geteuid(), os.getegid()
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    syscalls.map_to_self(uid, gid)
    syscalls.die_with_parent()
    syscalls.unshare(syscalls.CLONE_NEWNS | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWPID)
    child = os.fork()
    if child:
        os.closerange(3, 1024)
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    syscalls.die_with_parent()
    syscalls.mount(None, "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.mount("proc", "/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC)


def _make_bridge(name: str, address: str, prefix_length: int) -> None:
    with netlink.Netlink() as network:
        network.set_up("lo")
        network.add_bridge(name)
        network.add_address(name, address, prefix_length)
        network.set_up(name)


def _explain(error: OSError) -> str:
    hint = _HINTS.get(error.errno or 0)
    return f"{error.strerror}; {hint}" if hint else str(error)


def _raise_open_files() -> None:
    """Raise the hard limit of open files, if permitted, for `ulimit -n 65536` of Ray's start command."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, max(hard, _OPEN_FILES)))


def main(control: socket.socket, plan: dict[str, Any], sandbox_pid: int) -> None:
    """Run the first process of the node that `plan` describes."""
    syscalls.die_with_parent(signal.SIGKILL if plan["has_namespaces"] else signal.SIGTERM)
    if os.getppid() != sandbox_pid:
        return
    _raise_open_files()
    try:
        if plan["has_namespaces"]:
            _enter_namespaces()
            _make_bridge(plan["bridge"], plan["gateway"], plan["prefix_length"])
        syscalls.adopt_orphans()
    except OSError as error:
        ipc_protocol.send(control, {"event": "failed", "why": _explain(error)})
        return
    syscalls.set_title("raytide-node")
    holder = Holder(control, plan["state_dir"], has_namespaces=plan["has_namespaces"])
    signal.signal(signal.SIGTERM, lambda *_: control.shutdown(socket.SHUT_RDWR))
    gc.freeze()
    ipc_protocol.send(control, {"event": "ready"})
    try:
        holder.run()
    finally:
        holder.end()


if __name__ == "__main__":
    _control = socket.socket(fileno=int(sys.argv[1]))
    _first = ipc_protocol.receive(_control)
    if _first is not None:
        main(_control, _first[0], int(sys.argv[2]))
