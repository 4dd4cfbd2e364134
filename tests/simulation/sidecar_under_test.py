"""Autoscaler process of the simulation: started and killed like the sidecar container.

Wired like its own `main.py`, without sockets, log files and a supervisor: the real loop over a client over the given
transport, with the simulated GCS. `kill` drops all memory at any instant, and the loop restarts a moment later, as its
supervisor would; it ends with its container. The input of each decision is kept, so that each decision can be computed twice
(RM:I23). A loop that exits by itself is a violation.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from raytide.api.meta import Key
from raytide.autoscaler.gcs.client import GcsClient
from raytide.autoscaler.reporting.tick import Tick
from raytide.autoscaler.sidecar.loop import Autoscaler
from raytide.autoscaler.sidecar.main import loop_settings
from raytide.autoscaler.sidecar.reconcile import reconcile
from raytide.autoscaler.sidecar.settings import SidecarSettings, read_settings
from raytide.autoscaler.state.snapshot import ReconcileResult, ReconcilerState, Snapshot
from raytide.kube.client import Client
from raytide.kube.transport import Transport
from raytide.runtime.clock import Clock

from simulation.operator_under_test import RESTART_S, ProcessTransport

SETTINGS = read_settings({"RAYTIDE_OPERATOR_VERSION": "dev"})
RECOMPUTED_EVERY = 5
"""One of so many decisions without patch or drain is computed twice; the others all are."""


class _RecordingAutoscaler(Autoscaler):
    """Autoscaler that keeps the input of the current decision."""

    decision_input: tuple[Snapshot, ReconcilerState] | None = None

    async def _look(self) -> Snapshot:
        snapshot = await super()._look()
        self.decision_input = snapshot, self._state
        return snapshot


class SidecarUnderTest:
    """The container `autoscaler` of one head.

    - `start` and `end` start and end the container; `kill` is SIGKILL for the loop, which restarts a moment later.
    - `note` is called with each violation.
    """

    def __init__(
        self,
        transport: Transport,
        gcs: GcsClient,
        clock: Clock,
        key: Key,
        *,
        head: str,
        on_violation: Callable[[str], None],
        settings: SidecarSettings = SETTINGS,
    ) -> None:
        self._settings = settings
        self._transport = transport
        self._gcs = gcs
        self._clock = clock
        self._key = key
        self._head = head
        self._on_violation = on_violation
        self._process_transport: ProcessTransport | None = None
        self._task: asyncio.Task[None] | None = None
        self._restarting: asyncio.TimerHandle | None = None
        self._has_ended = False
        self._autoscaler: _RecordingAutoscaler | None = None
        self._decisions = 0
        self.has_raylet = 0
        """Number of starts of the loop."""

    def start(self) -> None:
        """Start a new loop with empty memory."""
        transport = self._process_transport = ProcessTransport(self._transport)
        self._autoscaler = _RecordingAutoscaler(
            Client(transport, clock=self._clock, timeout_s=self._settings.api.timeout_s),
            self._gcs,
            clock=self._clock,
            key=self._key,
            settings=loop_settings(replace(self._settings, head_pod=self._head)),
            on_tick=(self._check_determinism,),
        )
        self.has_raylet += 1
        self._task = asyncio.get_running_loop().create_task(self._autoscaler.run())
        self._task.add_done_callback(lambda task: self._on_exit(task, transport))

    def _on_exit(self, task: asyncio.Task[None], transport: ProcessTransport) -> None:
        if not task.cancelled() and (error := task.exception()) and not transport.is_killed:
            self._on_violation(f"the autoscaler exited by itself: {error!r}")

    def _check_determinism(self, tick: Tick) -> None:
        """The same snapshot gives the same decision, also where the product skipped the computation (RM:I23)."""
        assert self._autoscaler is not None
        if tick.plan is None or self._autoscaler.decision_input is None:
            return
        self._decisions += 1
        has_orders = bool(tick.plan.patch or tick.plan.drains)
        if not has_orders and self._decisions % RECOMPUTED_EVERY:
            return
        again = reconcile(*self._autoscaler.decision_input)
        if _decision(again) != _decision(tick.plan):
            self._on_violation(
                f"the same snapshot gives two decisions: {_decision(tick.plan)}, then {_decision(again)}"
            )

    def kill(self) -> None:
        """SIGKILL for the loop: nothing is finished and all memory is lost; the next loop starts a moment later."""
        self._terminate()
        if not self._has_ended:
            self._restarting = asyncio.get_running_loop().call_later(RESTART_S, self.start)

    def end(self) -> None:
        """The container has ended."""
        self._has_ended = True
        self._terminate()

    def _terminate(self) -> None:
        if self._process_transport is not None:
            self._process_transport.is_killed = True
        if self._task is not None:
            self._task.cancel()
        if self._restarting is not None:
            self._restarting.cancel()

    async def stop(self) -> None:
        """End the container and wait for it."""
        self.end()
        if self._task is not None:
            with suppress(asyncio.CancelledError):
                await self._task


def _decision(plan: ReconcileResult) -> tuple[object, ...]:
    return plan.patch, plan.drains, plan.decisions
