"""Live objects behind the protocols of interface.py: sandboxes, containers, execs.

Each object records its end once and wakes every caller of `wait`. They start nothing: process_runtime.py makes them and
reports to them what has happened. The end of a sandbox ends its containers as killed (137), so that no caller waits for
an exit that cannot be reported any more.
"""

import asyncio
from datetime import datetime
from pathlib import Path

from raytide_sandbox.container_runtime.async_streams import FdReader, FdWriter
from raytide_sandbox.container_runtime.interface import ContainerConfig, ExecConfig, Exit, PodSandboxConfig
from raytide_sandbox.container_runtime.ipc_client import Link


class Running:
    """A started command: its process id and its exit."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pid = 0
        self.exit: Exit | None = None
        self._ended = asyncio.Event()

    def end(self, status: int, at: datetime) -> None:
        """Record the end with `status`, negative for a signal; only the first call counts."""
        if self.exit is None:
            self.exit = Exit(status, 0, at) if status >= 0 else Exit(128 - status, -status, at)
            self._ended.set()

    async def wait(self) -> Exit:
        """Wait for the end and return it."""
        await self._ended.wait()
        assert self.exit is not None  # noqa: S101 - for the type checker; set before the event
        return self.exit


class RunningContainer(Running):
    """One start of one container."""

    def __init__(self, number: int, sandbox: "PodSandbox", config: ContainerConfig, started_at: datetime) -> None:
        super().__init__(number)
        self.sandbox = sandbox
        self.config = config
        self.started_at = started_at
        self.id = f"process://{sandbox.config.uid}/{config.name}/{config.attempt}"
        self.stdin: FdWriter | None = None
        self.env: dict[str, str] = {}
        self.copying: asyncio.Task[None] | None = None
        """Copies a terminal's output to the log file."""


class RunningExec(Running):
    """A further command in a container."""

    def __init__(self, number: int, container: RunningContainer, config: ExecConfig) -> None:
        super().__init__(number)
        self.container = container
        self.config = config
        self.stdin: FdWriter | None = None
        self.stdout: FdReader
        self.stderr: FdReader | None = None

    def kill(self) -> None:
        """SIGKILL to it and its process group."""
        if self.exit is None and self.container.sandbox.is_alive:
            self.container.sandbox.link.notify({"op": "kill", "id": self.number})


class PodSandbox:
    """Sandbox of one pod: its address, directory and running commands."""

    link: Link

    def __init__(self, key: str, index: int, ip: str, directory: Path, config: PodSandboxConfig) -> None:
        self.key = key
        self.index = index
        self.ip = ip
        self.directory = directory
        self.config = config
        self.commands: dict[int, Running] = {}
        self.is_alive = False
        self._gone = asyncio.Event()

    async def wait(self) -> None:
        """Return when no process of the sandbox is left."""
        await self._gone.wait()

    def end(self, at: datetime) -> None:
        """Record that the first process has ended, and with it every other one."""
        self.is_alive = False
        for running in list(self.commands.values()):
            running.end(-9, at)
        self.commands.clear()
        self._gone.set()
