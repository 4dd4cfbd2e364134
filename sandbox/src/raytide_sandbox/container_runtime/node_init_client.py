"""Start and stop of the first process of a node.

`start` locks the state directory, ends what an earlier run has left, starts node_init.py and keeps the link to it;
`stop` does the reverse. After `stop` no process with this sandbox's mark is alive. Used by process_runtime.py, which
requests pods and sockets through `link`.
"""

import asyncio
import contextlib
import fcntl
import os
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final

from raytide_sandbox.container_runtime import ipc_protocol, process_tags
from raytide_sandbox.container_runtime.interface import ContainerRuntimeError
from raytide_sandbox.container_runtime.ipc_client import Link

_READY_S: Final = 20.0
_GENTLE_END_S: Final = 3.0


class NodeInit:
    """Handle of the node's first process."""

    def __init__(self, state_dir: Path, on_event: Callable[[ipc_protocol.Message], None]) -> None:
        self._state_dir = state_dir
        self._on_event = on_event
        self._lock: IO[str] | None = None
        self._holder: asyncio.subprocess.Process | None = None
        self._link: Link | None = None
        self._numbers = 0

    async def start(self, plan: dict[str, Any]) -> None:
        """End what an earlier run has left, then start the first process with `plan`; raises ContainerRuntimeError."""
        self._state_dir.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        try:
            await asyncio.to_thread(self._sweep)
            (self._state_dir / "p").mkdir(mode=0o755)
            await self._start_holder(plan)
        except BaseException:
            await self.stop()
            raise

    def _take_lock(self) -> None:
        lock = (self._state_dir / "lock").open("a")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise ContainerRuntimeError(f"another sandbox is using {self._state_dir}") from None
        self._lock = lock

    def _sweep(self) -> None:
        mark = process_tags.node_mark(self._state_dir)
        left = process_tags.kill_all(lambda: process_tags.marked(mark))
        if left:
            raise ContainerRuntimeError(f"processes of an earlier sandbox do not end: {sorted(left)}")
        shutil.rmtree(self._state_dir / "p", ignore_errors=True)

    async def _start_holder(self, plan: dict[str, Any]) -> None:
        ours, theirs = ipc_protocol.pair()
        with theirs, (self._state_dir / "node.log").open("ab") as log:
            self._holder = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "raytide_sandbox.container_runtime.node_init",
                str(theirs.fileno()),
                str(os.getpid()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env={**os.environ, process_tags.MARK_VARIABLE: process_tags.node_mark(self._state_dir)},
                cwd=self._state_dir,
            )
        self._link = Link(ours, "the node's first process", self._on_event)
        self._link.notify(plan)
        await self._link.ready(_READY_S)

    async def stop(self) -> None:
        """End every process, by its mark if necessary; raises ContainerRuntimeError when one survives."""
        if self._link is not None:
            self._link.hang_up()
            self._link = None
        if self._holder is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._holder.wait(), _GENTLE_END_S)
        if self._lock is not None:
            await asyncio.to_thread(self._sweep)
            self._lock.close()
            self._lock = None
        if self._holder is not None:
            await self._holder.wait()
            self._holder = None

    def number(self) -> int:
        """A number for a request, unique in this run."""
        self._numbers += 1
        return self._numbers

    @property
    def pid(self) -> int:
        """Process id of the first process; its working directory is the state directory."""
        if self._holder is None:
            raise ContainerRuntimeError("the node does not run")
        return self._holder.pid

    @property
    def link(self) -> Link:
        """The link to the first process; raises ContainerRuntimeError when it does not run."""
        if self._link is None:
            raise ContainerRuntimeError("the node does not run")
        return self._link

    async def open_socket(self, kind: str) -> socket.socket:
        """A new non-blocking socket ("stream" or "dgram") that lives in the pods' network."""
        _, fds = await self.link.request(self.number(), {"op": "socket", "kind": kind})
        opened = socket.socket(fileno=fds[0])
        opened.setblocking(False)
        return opened
