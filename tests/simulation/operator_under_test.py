"""How does the operator live in the simulation?

As `main.py` wires it, without kopf, sockets and threads: the RayCluster room over a client over the transport it is given.
It can be killed at any instant, which drops all its memory, and is started again a moment later as a Deployment would.
An operator that ends by itself is a finding.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from raytide.api import names
from raytide.api.config import ClusterConfig
from raytide.api.meta import Key
from raytide.kube.client import Client
from raytide.kube.transport import Transport
from raytide.raycluster.room import RayClusterRoom, RoomOptions
from raytide.runtime.clock import Clock

RESTART_S = 1.0


class WorldClock(Clock):
    """Wall time is the world's; monotonic time is the virtual loop's already."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.now = now  # type: ignore[method-assign]


class OperatorUnderTest:
    """One Deployment of one replica."""

    def __init__(self, transport: Transport, clock: Clock, rng: random.Random, on_crash: Callable[[str], None]) -> None:
        self._transport = transport
        self._clock = clock
        self._rng = rng
        self._on_crash = on_crash
        self._room: RayClusterRoom | None = None
        self._task: asyncio.Task[None] | None = None
        self._restarting: asyncio.TimerHandle | None = None

    def _name(self, prefix: str) -> str:
        return prefix + "".join(self._rng.choice(names.REPLICA_ALPHABET) for _ in range(5))

    def start(self) -> None:
        """A new process with nothing in its memory."""
        client = Client(self._transport, clock=self._clock)
        options = RoomOptions(namer=self._name)
        self._room = RayClusterRoom(client, clock=self._clock, config=ClusterConfig(), options=options)
        self._task = asyncio.get_running_loop().create_task(self._room.run())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (trouble := task.exception()):
            self._on_crash(repr(trouble))
            self._restart()

    def kill(self) -> None:
        """SIGKILL: nothing is finished, nothing is remembered; the next one starts in a moment."""
        if self._task:
            self._task.cancel()
        self._restart()

    def _restart(self) -> None:
        if self._restarting:
            self._restarting.cancel()
        self._restarting = asyncio.get_running_loop().call_later(RESTART_S, self.start)

    def ring(self, namespace: str, name: str) -> None:
        """Have the key looked at although nothing happened."""
        assert self._room is not None
        self._room.ring(Key(namespace, name))

    async def stop(self) -> None:
        """SIGTERM, and wait for the ordered end."""
        assert self._room is not None
        assert self._task is not None
        await self._room.stop()
        with suppress(asyncio.CancelledError):
            await self._task
