"""Common base of both isolation modes: pods as processes on this machine.

Each pod has a first process, forked by the node's first process, which starts its containers and execs and ends them in
order. A subclass adds what differs by mode: addresses, files, environment and the rewriting of commands. Nothing is
written outside the state directory and the configured log files. Called through the protocol of interface.py, made by
detect.py.
"""

import asyncio
import contextlib
import shutil
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from raytide_sandbox.container_runtime import images, ipc_protocol, process_tags
from raytide_sandbox.container_runtime.dns import Names
from raytide_sandbox.container_runtime.handles import PodSandbox, Running, RunningContainer, RunningExec
from raytide_sandbox.container_runtime.interface import (
    Container,
    ContainerConfig,
    ContainerRuntimeError,
    ExecConfig,
    Image,
    Mode,
    PodSandboxConfig,
    Sandbox,
)
from raytide_sandbox.container_runtime.ipam import NODE_NUMBER, Addresses
from raytide_sandbox.container_runtime.ipc_client import Link
from raytide_sandbox.container_runtime.node_init_client import NodeInit
from raytide_sandbox.container_runtime.stdio import Stdio

_READY_S: Final = 20.0
_GENTLE_END_S: Final = 3.0
_FORCED_END_S: Final = 10.0
_PREFIX_LENGTH: Final = 16
_BRIDGE: Final = "br0"


class Engine(ABC):
    """A node whose pods are local processes; a subclass implements the isolation mode."""

    def __init__(
        self,
        mode: Mode,
        state_dir: Path,
        addresses: Addresses,
        *,
        now: Callable[[], datetime],
        given_images: Mapping[str, Path],
    ) -> None:
        self.mode = mode
        self._given_images = given_images
        self.state_dir = state_dir.resolve()
        self.names = Names()
        self.holding = NodeInit(self.state_dir, self._on_node_event)
        self._addresses = addresses
        self._now = now
        self._sandboxes: dict[str, PodSandbox] = {}
        self._is_stopping = False
        self._failed = asyncio.Event()

    # --- the node --------------------------------------------------------------------------------------------------

    @property
    def node_address(self) -> str:
        """Address where pods reach the sockets of `listen_inside`."""
        return self._addresses.address(NODE_NUMBER)

    async def start(self) -> None:
        """End what an earlier run has left, then start the node's first process; raises ContainerRuntimeError."""
        self._is_stopping = False
        plan = {
            "has_namespaces": self.mode is Mode.NS,
            "state_dir": str(self.state_dir),
            "gateway": self.node_address,
            "prefix_length": _PREFIX_LENGTH,
            "bridge": _BRIDGE,
        }
        await self.holding.start(plan)
        images.write_stand_ins(self.state_dir / "bin")

    async def stop(self) -> None:
        """End every pod without a grace period; no process is left."""
        self._is_stopping = True
        await self.holding.stop()

    async def wait_failed(self) -> str:
        """Return the reason when the node's first process has ended without `stop`."""
        await self._failed.wait()
        return "the node's first process has ended, and every pod with it"

    def _on_node_event(self, message: ipc_protocol.Message) -> None:
        if message["event"] == "gone":
            self._forget(message["key"])
        elif message["event"] == "lost":
            for key in list(self._sandboxes):
                self._forget(key)
            if not self._is_stopping:
                self._failed.set()

    def _forget(self, key: str) -> None:
        sandbox = self._sandboxes.pop(key, None)
        if sandbox is not None:
            self._release(sandbox.index)
            sandbox.link.hang_up()
            sandbox.end(self._now())

    def _release(self, index: int) -> None:
        self._addresses.release(index)
        self.free(index)

    def sandboxes(self) -> Sequence[PodSandbox]:
        """The sandboxes that have not ended."""
        return list(self._sandboxes.values())

    def image(self, name: str) -> Image | None:
        """The image of that name on this machine; None when it is unknown."""
        return images.find(name, stand_ins_dir=self.state_dir / "bin", given=self._given_images)

    def set_names(self, addresses_by_name: Mapping[str, Sequence[str]]) -> None:
        """Replace every name pods can resolve."""
        self.names.replace(addresses_by_name)

    async def listen_inside(self, port: int) -> socket.socket:
        """A listening socket where pods can reach it."""
        opened = await self.open_socket("stream")
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind((self.node_address, port))
            opened.listen(128)
        except OSError:
            opened.close()
            raise
        return opened

    async def connect(self, sandbox: Sandbox, port: int, timeout_s: float) -> socket.socket:
        """A connected socket to a port of the pod."""
        return await self.dial(*self.endpoint(self._live(sandbox), port), timeout_s)

    async def dial(self, address: str, port: int, timeout_s: float) -> socket.socket:
        """A connected socket to an address of the pods' network."""
        opened = await self.open_socket("stream")
        try:
            await asyncio.wait_for(asyncio.get_running_loop().sock_connect(opened, (address, port)), timeout_s)
        except BaseException:
            opened.close()
            raise
        return opened

    # --- implemented by a mode -------------------------------------------------------------------------------------

    @abstractmethod
    async def open_socket(self, kind: str) -> socket.socket:
        """A non-blocking socket ("stream" or "dgram") in the network of the pods."""

    @abstractmethod
    def endpoint(self, sandbox: PodSandbox, port: int) -> tuple[str, int]:
        """Actual address and port of `port` of the pod."""

    @abstractmethod
    def reserve(self, index: int) -> bool:
        """Reserve an index against other sandboxes of this machine until it is freed; False when it is taken."""

    @abstractmethod
    def free(self, index: int) -> None:
        """Release the index of a pod that is gone."""

    @abstractmethod
    def prepare(self, sandbox: PodSandbox) -> list[tuple[str, int | None]]:
        """Write the files a pod needs; returns the directories to mount as tmpfs, with their sizes in bytes."""

    @abstractmethod
    def root_plan(self, sandbox: PodSandbox, config: ContainerConfig) -> dict[str, Any] | None:
        """The plan of the container's root; None when it sees the host's files."""

    @abstractmethod
    def environment(self, sandbox: PodSandbox, config: ContainerConfig, image: Image) -> dict[str, str]:
        """The container's whole environment except its process mark."""

    @abstractmethod
    def argv(self, sandbox: PodSandbox, container: ContainerConfig, argv: Sequence[str]) -> list[str]:
        """A command, rewritten for this mode if necessary."""

    @abstractmethod
    def working_dir(self, sandbox: PodSandbox, wanted: str) -> str:
        """Working directory of a command."""

    def identity(self, config: ContainerConfig) -> dict[str, Any]:
        """User (None for root, always in mode plain) and privilege restriction of the container's commands."""
        user = [config.security.user, config.security.group]
        return {
            "user": user if self.mode is Mode.NS and any(user) else None,
            "has_no_new_privileges": config.security.has_no_new_privileges,
        }

    # --- sandboxes -------------------------------------------------------------------------------------------------

    async def create_sandbox(self, config: PodSandboxConfig) -> PodSandbox:
        """Create network, names and /dev/shm of a pod, held by its first process; raises ContainerRuntimeError."""
        number = self.holding.number()
        index = self._addresses.take(self.reserve)
        directory = self.state_dir / "p" / str(number)
        sandbox = PodSandbox(f"{config.uid}.{number}", index, self._addresses.address(index), directory, config)
        try:
            directory.mkdir(parents=True)
            tmpfs = self.prepare(sandbox)
            await self._start_first(sandbox, number, tmpfs)
        except BaseException as error:
            await self._abandon(sandbox)
            if isinstance(error, OSError):
                raise ContainerRuntimeError(f"sandbox of pod {config.name}: {error}") from error
            raise
        return sandbox

    async def _start_first(self, sandbox: PodSandbox, number: int, tmpfs: list[tuple[str, int | None]]) -> None:
        plan = {
            "key": sandbox.key,
            "name": sandbox.config.name,
            "hostname": sandbox.config.hostname,
            "has_namespaces": self.mode is Mode.NS,
            "state_dir": str(self.state_dir),
            "ip": sandbox.ip,
            "gateway": self.node_address,
            "prefix_length": _PREFIX_LENGTH,
            "bridge": _BRIDGE,
            "cable": f"pod{sandbox.index}",
            "tmpfs": tmpfs,
        }
        ours, theirs = ipc_protocol.pair()
        partner = f"the first process of pod {sandbox.config.name}"
        sandbox.link = Link(ours, partner, lambda message: self._on_pod_event(sandbox, message))
        with theirs:
            self._sandboxes[sandbox.key] = sandbox
            await self.holding.link.request(number, {"op": "pod", "plan": plan}, [theirs.fileno()])
        await sandbox.link.ready(_READY_S)
        sandbox.is_alive = True

    async def _abandon(self, sandbox: PodSandbox) -> None:
        """Clean up after a failed creation."""
        if sandbox.key in self._sandboxes:
            sandbox.link.hang_up()
            with contextlib.suppress(ContainerRuntimeError):
                self.holding.link.notify({"op": "kill", "id": 0, "key": sandbox.key})
            self._forget(sandbox.key)
        else:
            self._release(sandbox.index)
        await asyncio.to_thread(shutil.rmtree, sandbox.directory, ignore_errors=True)

    async def remove_sandbox(self, sandbox: Sandbox) -> None:
        """SIGKILL everything in the sandbox and return when it is gone."""
        pod = self._live(sandbox)
        pod.is_alive = False
        if pod.key in self._sandboxes:
            pod.link.hang_up()
            try:
                await asyncio.wait_for(pod.wait(), _GENTLE_END_S)
            except TimeoutError:
                await self._force_end(pod)
        await asyncio.to_thread(shutil.rmtree, pod.directory, ignore_errors=True)

    async def _force_end(self, pod: PodSandbox) -> None:
        """SIGKILL a first process that does not end by itself; raises ContainerRuntimeError when it still does not end."""
        self.holding.link.notify({"op": "kill", "id": 0, "key": pod.key})
        try:
            await asyncio.wait_for(pod.wait(), _FORCED_END_S)
        except TimeoutError:
            raise ContainerRuntimeError(f"pod {pod.config.name} did not end within {_FORCED_END_S:g} s") from None

    @staticmethod
    def _live(sandbox: Sandbox) -> PodSandbox:
        assert isinstance(sandbox, PodSandbox)  # noqa: S101 - there is no other kind here
        return sandbox

    def _on_pod_event(self, sandbox: PodSandbox, message: ipc_protocol.Message) -> None:
        if message["event"] == "exit":
            running = sandbox.commands.pop(message["id"], None)
            if running is not None:
                running.end(message["status"], self._now())
        elif message["event"] == "lost":
            sandbox.is_alive = False  # `wait` returns when the node reports the end of the pod

    # --- containers ------------------------------------------------------------------------------------------------

    async def start_container(self, sandbox: Sandbox, config: ContainerConfig) -> RunningContainer:
        """Start a container's main process."""
        pod = self._live(sandbox)
        image = self.image(config.image)
        if image is None:
            raise ContainerRuntimeError(f"nothing on this machine stands for image {config.image!r}")
        if not config.argv:
            raise ContainerRuntimeError("no command specified")
        await self._clear_own(pod, config)
        container = RunningContainer(self.holding.number(), pod, config, self._now())
        mark = process_tags.container_mark(self.state_dir, pod.key, config.name, config.attempt)
        container.env = {**self.environment(pod, config, image), process_tags.MARK_VARIABLE: mark}
        message = {
            "op": "start",
            "mark": mark,
            "root": self.root_plan(pod, config),
            "beside": None,
            "argv": self.argv(pod, config, config.argv),
            "env": container.env,
            "working_dir": self.working_dir(pod, config.working_dir or image.working_dir),
            "is_tty": config.is_tty,
            **self.identity(config),
        }
        log = config.log_path
        with Stdio.terminal() if config.is_tty else Stdio.log(log, has_stdin=config.has_stdin) as stdio:
            await self._run(pod, container, message, stdio.fds)
        container.stdin = stdio.stdin
        if stdio.stdout is not None:
            container.copying = asyncio.create_task(_copy(stdio.stdout, log))
        return container

    def own_dir(self, sandbox: PodSandbox, config: ContainerConfig) -> Path:
        """Directory for what one start of a container writes outside its volumes."""
        return sandbox.directory / f"{config.name}.{config.attempt}"

    async def _clear_own(self, sandbox: PodSandbox, config: ContainerConfig) -> None:
        for old in sandbox.directory.glob(f"{config.name}.*"):
            if old.suffix[1:].isdigit() and old.stem == config.name:
                await asyncio.to_thread(shutil.rmtree, old, ignore_errors=True)
        self.own_dir(sandbox, config).mkdir()

    async def _run(self, sandbox: PodSandbox, running: Running, message: ipc_protocol.Message, fds: list[int]) -> None:
        if not sandbox.is_alive:
            raise ContainerRuntimeError(f"the sandbox of pod {sandbox.config.name} has ended")
        sandbox.commands[running.number] = running
        try:
            answer, _ = await sandbox.link.request(running.number, message, fds)
        except BaseException:
            sandbox.commands.pop(running.number, None)
            raise
        running.pid = answer["pid"]

    async def signal(self, container: Container, signal_number: int) -> None:
        """Send a signal to the main process alone."""
        self._send(container, {"op": "signal", "signal": int(signal_number)})

    async def kill(self, container: Container) -> None:
        """SIGKILL the main process and all it ever started."""
        self._send(container, {"op": "kill"})

    def _send(self, container: Container, message: ipc_protocol.Message) -> None:
        assert isinstance(container, RunningContainer)  # noqa: S101 - there is no other kind here
        if container.exit is None and container.sandbox.is_alive:
            with contextlib.suppress(ContainerRuntimeError):  # it has just ended, so there is nothing to signal
                container.sandbox.link.notify({**message, "id": container.number})

    async def exec(self, container: Container, config: ExecConfig) -> RunningExec:
        """Run a further command in a running container."""
        assert isinstance(container, RunningContainer)  # noqa: S101 - there is no other kind here
        if container.exit is not None:
            raise ContainerRuntimeError(f"container {container.config.name} is not running")
        pod = container.sandbox
        running = RunningExec(self.holding.number(), container, config)
        image = self.image(container.config.image)
        wanted = config.working_dir or container.config.working_dir or (image.working_dir if image else "/")
        message = {
            "op": "exec",
            "root": None,
            "beside": container.pid if self.mode is Mode.NS else None,
            "argv": self.argv(pod, container.config, config.argv),
            "env": container.env,
            "working_dir": self.working_dir(pod, wanted),
            "is_tty": config.is_tty,
            **self.identity(container.config),
        }
        with Stdio.terminal() if config.is_tty else Stdio.pipes(has_stdin=config.has_stdin) as stdio:
            await self._run(pod, running, message, stdio.fds)
        assert stdio.stdout is not None  # noqa: S101 - both kinds above have one
        running.stdin, running.stdout, running.stderr = stdio.stdin, stdio.stdout, stdio.stderr
        return running


async def _copy(source: Any, log: Path) -> None:
    """Append the output of a container's terminal to its log file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab", buffering=0) as file:
        while chunk := await source.read():
            file.write(chunk)
    source.close()
