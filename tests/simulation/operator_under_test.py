"""Operator process of the simulation: started, killed and restarted like the container of a Deployment.

Wired like `main.py`, without kopf, sockets and threads: the controllers over a client over the given transport and, with
several replicas, leader election whose write gate the client asks (D10). `kill` drops all memory at any instant; a moment
later it starts again, as the same pod or as another one. An operator that exits by itself is a violation.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, Protocol

from raytide.api import constants
from raytide.api.config import ClusterConfig
from raytide.api.lease import LeaseTiming
from raytide.api.meta import Key
from raytide.kube.client import Client
from raytide.kube.leader_election import Elector
from raytide.kube.transport import Response, Transport
from raytide.raycluster.controller import RayClusterController, RayClusterControllerOptions
from raytide.runtime.clock import Clock

RESTART_S = 1.0
CONFIG = ClusterConfig()
LEASE = Key("default", "raytide-leader")


class SimulatedClock(Clock):
    """Wall time of the simulated cluster, monotonic time of the virtual loop; the node is never suspended."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.now = now  # type: ignore[method-assign]
        self.monotonic = asyncio.get_running_loop().time  # type: ignore[method-assign]

    def boottime(self) -> float:
        """Virtual time, too."""
        return self.monotonic()


class ProcessTransport:
    """Transport of one process: sends nothing after the process was killed, while its tasks are still being cancelled."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.is_killed = False

    async def request(self, method: str, path: str, **rest: Any) -> Response:
        """One call, cancelled if the process was killed."""
        if self.is_killed:
            raise asyncio.CancelledError
        return await self._inner.request(method, path, **rest)

    def stream(self, path: str, **rest: Any) -> AsyncIterator[bytes]:
        """One watch, cancelled if the process was killed."""
        if self.is_killed:
            raise asyncio.CancelledError
        return self._inner.stream(path, **rest)

    async def close(self) -> None:
        """Close the inner transport."""
        await self._inner.close()


class Controllers(Protocol):
    """The controllers of the process."""

    async def run(self) -> None:
        """Run informers and reconcilers until stopped."""

    async def run_informers(self) -> None:
        """Run the informers."""

    async def run_reconcilers(self) -> None:
        """Run the reconcilers for one term of leadership."""

    async def stop(self) -> None:
        """Stop in order."""


class OperatorUnderTest:
    """One replica of a Deployment.

    - With `is_elected` it leads only while it holds the lease, as `identity`.
    - `kill` is SIGKILL for the process; the container starts again in the same pod.
    - `replace` replaces the pod: the process that starts a moment later has another identity.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        rng: random.Random,
        on_crash: Callable[[str], None],
        *,
        config: ClusterConfig = CONFIG,
        identity: str = "operator",
        is_elected: bool = False,
    ) -> None:
        self.identity = identity
        self.config = config
        self._transport = transport
        self._clock = clock
        self._rng = rng
        self._on_crash = on_crash
        self._is_elected = is_elected
        self._process_transport: ProcessTransport | None = None
        self._controllers: Controllers | None = None
        self._elector: Elector | None = None
        self._task: asyncio.Task[None] | None = None
        self._restarting: asyncio.TimerHandle | None = None
        self._replaced = 0

    def _name(self, prefix: str) -> str:
        return prefix + "".join(self._rng.choice(constants.REPLICA_ALPHABET) for _ in range(5))

    def start(self) -> None:
        """Start a new process with empty memory."""
        transport = self._process_transport = ProcessTransport(self._transport)
        elector = self._elector = self._new_elector(transport) if self._is_elected else None
        client = Client(transport, clock=self._clock, write_gate=elector.may_write_s if elector else None)
        self._controllers = self._new_controllers(client)
        self._task = asyncio.get_running_loop().create_task(self._run(self._controllers, elector, client))
        self._task.add_done_callback(lambda task: self._on_exit(task, transport))

    def _new_controllers(self, client: Client) -> Controllers:
        options = RayClusterControllerOptions(namer=self._name)
        return RayClusterController(client, clock=self._clock, config=self.config, options=options)

    def _new_elector(self, transport: ProcessTransport) -> Elector:
        timing = LeaseTiming()
        client = Client(transport, clock=self._clock, timeout_s=timing.call_timeout_s)
        return Elector(client, LEASE, identity=self.identity, clock=self._clock, timing=timing)

    @staticmethod
    async def _run(controllers: Controllers, elector: Elector | None, client: Client) -> None:
        if elector is None:
            await controllers.run()
            return
        async with asyncio.TaskGroup() as tasks:
            leading = tasks.create_task(elector.run(controllers.run_reconcilers, unanswered_s=client.unanswered_s))
            await elector.has_attempted.wait()
            following = tasks.create_task(controllers.run_informers())
            await leading
            following.cancel()

    @property
    def controllers(self) -> Controllers:
        """The controllers of the current process."""
        assert self._controllers is not None
        return self._controllers

    @property
    def is_leading(self) -> bool:
        """Whether this replica is the leader."""
        return self._elector is None or self._elector.is_leading

    def _on_exit(self, task: asyncio.Task[None], transport: ProcessTransport) -> None:
        """A process that exits with an error by itself is a violation, unless it was killed."""
        if not task.cancelled() and (error := task.exception()) and not transport.is_killed:
            self._on_crash(repr(error))
            self._restart()

    def kill(self) -> None:
        """SIGKILL: nothing is finished and all memory is lost; the next process starts a moment later."""
        if self._process_transport is not None:
            self._process_transport.is_killed = True
        if self._task is not None:
            self._task.cancel()
        self._restart()

    def fail_component(self) -> None:
        """A component fails: the process stops in order and exits."""
        assert self._task is not None
        self._task.cancel()

    def replace(self) -> None:
        """The pod is deleted and replaced by another one."""
        self._replaced += 1
        self.identity = f"{self.identity.partition('+')[0]}+{self._replaced}"
        self.kill()

    def _restart(self) -> None:
        if self._restarting:
            self._restarting.cancel()
        self._restarting = asyncio.get_running_loop().call_later(RESTART_S, self.start)

    def enqueue(self, namespace: str, name: str) -> None:
        """Enqueue the key without a watch event."""
        queue: Any = getattr(self.controllers, "reconcile_loop", self.controllers)  # of one controller, or of several
        queue.enqueue(Key(namespace, name))

    async def stop(self) -> None:
        """SIGTERM: stop in order and wait for it."""
        assert self._controllers is not None
        assert self._task is not None
        if self._elector is not None:
            self._elector.stop()
        await self._controllers.stop()
        with suppress(asyncio.CancelledError):
            await self._task
