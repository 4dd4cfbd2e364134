"""What does the kubelet hold while a pod, a container or a further command lives?

The live objects behind the protocols of runtime.py: each knows how to end itself in the eyes of whoever waits, once. They
start nothing; engine.py makes them and tells them what happened. A sandbox that ends takes its containers along, as
killed, so that nobody waits for an answer that cannot come.
"""

import asyncio
from datetime import datetime
from pathlib import Path

from raytide.sandbox.node.link import Link
from raytide.sandbox.node.runtime import ContainerConfig, ExecConfig, Exit, PodSandboxConfig
from raytide.sandbox.node.streams import FdReader, FdWriter


class Running:
    """Something with a process id that ends once."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pid = 0
        self.exit: Exit | None = None
        self._ended = asyncio.Event()

    def end(self, status: int, at: datetime) -> None:
        """It ended with `status`, negative when a signal ended it."""
        if self.exit is None:
            self.exit = Exit(status, 0, at) if status >= 0 else Exit(128 - status, -status, at)
            self._ended.set()

    async def wait(self) -> Exit:
        """Return how it ended, when it has."""
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
        """Carries a terminal's output to the log file."""


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
            self.container.sandbox.link.tell({"op": "kill", "id": self.number})


class PodSandbox:
    """A pod's surroundings."""

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
        """Return when nothing of it is left."""
        await self._gone.wait()

    def end(self, at: datetime) -> None:
        """Its first process has ended, and with it everything else."""
        self.is_alive = False
        for running in list(self.commands.values()):
            running.end(-9, at)
        self.commands.clear()
        self._gone.set()
