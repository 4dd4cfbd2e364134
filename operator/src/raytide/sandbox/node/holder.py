"""What holds a sandbox's pods, and takes them along when it goes?

The first process of the node, started by engine.py with a socket and a mode. With namespaces it becomes process 1 of an
unprivileged user, mount, network and PID namespace with a bridge in it, so that its death is, by the kernel, the death
of every pod; without, it adopts orphans and sweeps up after pods by their marks. It forks pods' first processes, hands
out sockets made in its network, and tells when a pod has ended. It ends when the sandbox does.
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

from raytide.sandbox.node import linux, marks, podinit, rtnetlink, wire

_POD_NAMESPACES: Final = (
    linux.CLONE_NEWNET | linux.CLONE_NEWNS | linux.CLONE_NEWPID | linux.CLONE_NEWUTS | linux.CLONE_NEWIPC
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
    """The loop of the node's first process."""

    def __init__(self, control: socket.socket, state_dir: str, *, has_namespaces: bool) -> None:
        self._control = control
        self._state_dir = state_dir
        self._has_namespaces = has_namespaces
        self._key_by_pid: dict[int, str] = {}

    def run(self) -> None:
        """Serve until the sandbox is gone."""
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
        received = wire.receive(self._control)
        if received is None:
            return False
        message, fds = received
        try:
            getattr(self, f"_on_{message['op']}")(message, fds)
        except OSError as trouble:
            wire.send(self._control, {"event": "refused", "id": message["id"], "why": str(trouble)})
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _on_socket(self, message: dict[str, Any], _: list[int]) -> None:
        kind = socket.SOCK_DGRAM if message["kind"] == "dgram" else socket.SOCK_STREAM
        with socket.socket(socket.AF_INET, kind) as opened:
            wire.send(self._control, {"event": "done", "id": message["id"]}, [opened.fileno()])

    def _on_pod(self, message: dict[str, Any], fds: list[int]) -> None:
        plan = podinit.PodPlan.from_message(message["plan"])
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
        wire.send(self._control, {"event": "done", "id": message["id"], "pid": int(answer)})

    def _on_kill(self, message: dict[str, Any], _: list[int]) -> None:
        """End a pod whose first process does not end by itself."""
        for pid, key in self._key_by_pid.items():
            if key == message["key"]:
                os.kill(pid, signal.SIGKILL)

    def _become_pod(self, plan: podinit.PodPlan, kubelet_fd: int, pid_fd: int, holder: int) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            network = None
            if self._has_namespaces:
                network = rtnetlink.Netlink()
                linux.unshare(_POD_NAMESPACES)
                child = os.fork()
                if child:
                    os.write(pid_fd, str(child).encode())
                    os._exit(0)
            else:
                linux.die_with_parent(signal.SIGTERM)
                if os.getppid() != holder:
                    os._exit(1)
                os.write(pid_fd, str(os.getpid()).encode())
            os.close(pid_fd)
            self._control.close()
            podinit.main(plan, socket.socket(fileno=os.dup(kubelet_fd)), network)
        except OSError as trouble:
            os.write(pid_fd, str(trouble).encode())
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
                    mark = marks.pod_mark(self._state_dir, key)
                    marks.kill_all(lambda mark=mark: marks.family((), mark))  # type: ignore[misc]
                wire.send(self._control, {"event": "gone", "key": key})

    def end(self) -> None:
        """Without a PID namespace: leave nothing behind."""
        if not self._has_namespaces:
            mark = marks.node_mark(self._state_dir)
            marks.kill_all(lambda: marks.family({os.getpid()}, mark))


def _enter_namespaces() -> None:
    """Return as process 1 of new namespaces; the process that was started waits for it and dies with it or it with it."""
    uid, gid = os.geteuid(), os.getegid()
    linux.unshare(linux.CLONE_NEWUSER)
    linux.map_to_self(uid, gid)
    linux.die_with_parent()
    linux.unshare(linux.CLONE_NEWNS | linux.CLONE_NEWNET | linux.CLONE_NEWPID)
    child = os.fork()
    if child:
        os.closerange(3, 1024)
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    linux.die_with_parent()
    linux.mount(None, "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    linux.mount("proc", "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)


def _make_bridge(name: str, address: str, prefix_length: int) -> None:
    with rtnetlink.Netlink() as network:
        network.set_up("lo")
        network.add_bridge(name)
        network.add_address(name, address, prefix_length)
        network.set_up(name)


def _explain(trouble: OSError) -> str:
    hint = _HINTS.get(trouble.errno or 0)
    return f"{trouble.strerror}; {hint}" if hint else str(trouble)


def _raise_open_files() -> None:
    """`ulimit -n 65536` of Ray's start command should work; who may not raise the limit keeps what there is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, max(hard, _OPEN_FILES)))


def main(control: socket.socket, plan: dict[str, Any], sandbox_pid: int) -> None:
    """Be the first process of the node that `plan` describes."""
    linux.die_with_parent(signal.SIGKILL if plan["has_namespaces"] else signal.SIGTERM)
    if os.getppid() != sandbox_pid:
        return
    _raise_open_files()
    try:
        if plan["has_namespaces"]:
            _enter_namespaces()
            _make_bridge(plan["bridge"], plan["gateway"], plan["prefix_length"])
        linux.adopt_orphans()
    except OSError as trouble:
        wire.send(control, {"event": "failed", "why": _explain(trouble)})
        return
    linux.set_title("raytide-node")
    holder = Holder(control, plan["state_dir"], has_namespaces=plan["has_namespaces"])
    signal.signal(signal.SIGTERM, lambda *_: control.shutdown(socket.SHUT_RDWR))
    gc.freeze()
    wire.send(control, {"event": "ready"})
    try:
        holder.run()
    finally:
        holder.end()


if __name__ == "__main__":
    _control = socket.socket(fileno=int(sys.argv[1]))
    _first = wire.receive(_control)
    if _first is not None:
        main(_control, _first[0], int(sys.argv[2]))
