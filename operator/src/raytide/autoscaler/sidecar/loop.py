"""Autoscaler loop: one tick after the other.

`Autoscaler` runs a tick every few seconds, or soon after a pod changed: it reads Kubernetes and the GCS concurrently,
calls `reconcile` and executes the plan in the order of the contract: patch, drains, names, report. It makes no
decisions. It ends only when cancelled or when the GCS rejects its credentials; not even a bug in a decision ends it
(L-3). Built from a client, a GCS and a clock, so that it also runs in virtual time; wired by main.py (architecture §5
b).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.api.meta import Key
from raytide.api.node_autoscaler import Presence
from raytide.autoscaler.gcs.client import GcsClient
from raytide.autoscaler.model import Drained, GcsState, OnProgress, Report, unwatched
from raytide.autoscaler.provider.node_events import NodeEvents
from raytide.autoscaler.provider.provider import PatchResult, Provider, Submitted
from raytide.autoscaler.reporting.tick import Tick
from raytide.autoscaler.scaling.drains import by_replica
from raytide.autoscaler.sidecar.reconcile import plan_names, reconcile
from raytide.autoscaler.sidecar.skip_reconcile import can_skip_reconcile
from raytide.autoscaler.state.snapshot import (
    Answers,
    Drain,
    Level,
    LogLine,
    ReconcileResult,
    ReconcilerSettings,
    ReconcilerState,
    Snapshot,
)
from raytide.kube.client import Client
from raytide.runtime.backoff import Backoff
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

UNAUTHENTICATED: Final = 401

T = TypeVar("T")

SHORTEST_TICK_S: Final = 1.0
"""From the start of one tick to that of the next, however often pods change."""
GCS_SHARE: Final = 0.05
"""Share of the GCS's time that ticks caused by pod changes may take: it has a single thread (FD:AS-A17)."""
RAYS_INTERVAL_S: Final = 5.0
"""Interval at which Ray's own autoscaler polls, whatever the reply costs."""
GCS_S: Final = 15.0
"""Longest wait for one reply; the wire's own deadline is shorter, so that it notices timeouts and opens a new channel.
"""
DRAINS_S: Final = 5.0
OTHER_DRAINS_S: Final = 0.5
"""Longest wait for the other drain replies once one node has accepted, so that it is named soon (B-21, B-28)."""
LONGEST_BACKOFF_S: Final = 30.0
"""Longest backoff after a tick without a decision or with a failed patch."""
LEVELS: Final = {Level.DEBUG: logging.DEBUG, Level.INFO: logging.INFO, Level.WARNING: logging.WARNING}


class GcsUnauthenticatedError(Exception):
    """The GCS rejects the credentials: only a new process reads all of them again (L-6)."""


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """Settings of one sidecar."""

    tick: ReconcilerSettings = field(default_factory=ReconcilerSettings)
    interval_s: float = 5.0
    api_version: str = "v1"
    """Of RayClusters."""
    node_autoscaler: Presence = Presence.AUTO


class SkippedError(Exception):
    """No decision is possible now; `label` is the metric label, the message is for the log."""

    def __init__(self, label: str, message: str) -> None:
        super().__init__(message)
        self.label = label


class Autoscaler:
    """The sidecar's loop.

    - One tick per `interval_s`, sooner if a pod changed or the plan asks for it; never two within `shortest_tick_s`.
    - Per tick at most two GETs and two patches, and no LIST unless a pod is unschedulable (node_events.py); the second
      patch follows the accepted drains within half a second.
    - An API server that does not answer is retried with backoff, a GCS in every tick; both are logged once.
    - `run` ends only when cancelled, or with `GcsUnauthenticatedError`.
    """

    def __init__(
        self,
        client: Client,
        gcs: GcsClient,
        *,
        clock: Clock,
        key: Key,
        settings: LoopSettings | None = None,
        on_tick: Sequence[Callable[[Tick], None]] = (),
        on_progress: OnProgress = unwatched,
    ) -> None:
        self._gcs = gcs
        self._clock = clock
        self._settings = settings or LoopSettings()
        self._on_tick = tuple(on_tick)
        self._on_progress = on_progress
        self._pods_changed = asyncio.Event()
        self.provider = Provider(
            client, key, clock=clock, on_pods_changed=self._pods_changed.set, api_version=self._settings.api_version
        )
        self._node_events = NodeEvents(client, key.namespace, clock=clock, presence=self._settings.node_autoscaler)
        self._state = ReconcilerState()
        self._decided: tuple[Snapshot, ReconcileResult] | None = None
        """The last complete tick that was reported to Ray; it need not be repeated while nothing changes."""
        self._reported: tuple[str, int] | None = None
        """Session, and the version of the report its GCS held at the first contact (B-5)."""
        self._skip_backoff = Backoff(first_s=self._settings.interval_s, longest_s=LONGEST_BACKOFF_S)
        self._write_backoff = Backoff(first_s=SHORTEST_TICK_S, longest_s=LONGEST_BACKOFF_S)
        self._last_skip_message = ""
        self._is_gcs_away = False
        self._answered_in_s = 0.0
        """Duration of the last state call to the GCS, successful or not."""
        self._invalid_kinds: frozenset[str] = frozenset()
        """Kinds of invalid entries in Ray's last reply."""
        self._began_s: float | None = None
        """When the current tick began."""

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.provider.run())
            tasks.create_task(self._run_ticks())

    def running_s(self) -> float:
        """For how long the current tick has been running; 0 between ticks."""
        return 0.0 if self._began_s is None else self._clock.monotonic() - self._began_s

    async def _run_ticks(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.interval_s):
                await self.provider.wait_synced()
        while True:
            began_s = self._clock.monotonic()
            self._pods_changed.clear()
            tick = await self.tick()
            await self._wait(self._next_tick_in_s(tick), not_before_s=began_s + shortest_tick_s(self._answered_in_s))

    async def _wait(self, longest_s: float, *, not_before_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                await self._pods_changed.wait()
        await asyncio.sleep(max(0.0, not_before_s - self._clock.monotonic()))

    def _next_tick_in_s(self, tick: Tick) -> float:
        """Longest time until the next tick; a pod that changes makes it earlier."""
        if tick.plan is None:
            return self._skip_backoff.next_s()
        self._skip_backoff.reset()
        if tick.patch_result is PatchResult.APPLIED:
            self._write_backoff.reset()
        elif tick.patch_result is not None:
            return self._write_backoff.next_s()
        delays_s = (tick.plan.requeue_after_s, self._node_events.requeue_after_s)
        delay_s = min((delay_s for delay_s in delays_s if delay_s is not None), default=self._settings.interval_s)
        return max(0.0, min(delay_s, self._settings.interval_s))

    # --- one tick ----------------------------------------------------------------------------------------------------

    async def tick(self) -> Tick:
        """Observe, decide, execute; after any failure the next tick starts afresh."""
        began_s = self._began_s = self._clock.monotonic()
        try:
            tick = await self._tick(began_s)
            self._log_recovery()
        except SkippedError as error:
            self._log_skipped(str(error), error.label)
            tick = Tick(self._clock.monotonic() - began_s, skipped=error.label)
        except GcsUnauthenticatedError:
            raise
        except Exception:
            log.exception("unexpected error in this tick, the next one starts from scratch")
            tick = Tick(self._clock.monotonic() - began_s, skipped="bug")
        finally:
            self._began_s = None
        self._notify_listeners(tick)
        return tick

    def _notify_listeners(self, tick: Tick) -> None:
        """Call the listeners; their errors must not affect decisions."""
        for note in self._on_tick:
            try:
                note(tick)
            except Exception:
                log.exception("metrics, log files or events of this tick are incomplete")

    async def _tick(self, began_s: float) -> Tick:
        snapshot = await self._read_inputs()
        if self._decided is not None and can_skip_reconcile(*self._decided, snapshot):
            return Tick(self._clock.monotonic() - began_s, self._decided[1], snapshot.gcs)
        self._decided = None
        plan = reconcile(snapshot, self._state, self._on_progress)
        self._state = plan.state
        _write_log(plan.log)
        submitted = await self.provider.submit(plan.patch) if plan.patch else None
        answers: Answers = {}
        try:
            if plan.drains and await self._may_drain(snapshot, submitted):
                answers = await self._drain(plan.drains)
                written = submitted.cluster if submitted else None
                await self._name_drained_pods(replace(snapshot, cluster=written or snapshot.cluster), plan, answers)
            if plan.report is not None and snapshot.gcs is not None:
                is_reported = await self._report(plan.report)
                self._decided = (snapshot, replace(plan, log=(), events=())) if is_reported else None
        except asyncio.CancelledError:
            # The patch is written, so the next process has nothing to do, and no event for drivers.
            self._notify_listeners(self._executed(began_s, snapshot, plan, submitted, answers))
            raise
        return self._executed(began_s, snapshot, plan, submitted, answers)

    def _executed(
        self, began_s: float, snapshot: Snapshot, plan: ReconcileResult, submitted: Submitted | None, answers: Answers
    ) -> Tick:
        patch_result = submitted.patch_result if submitted else None
        return Tick(self._clock.monotonic() - began_s, plan, snapshot.gcs, patch_result=patch_result, answers=answers)

    async def _read_inputs(self) -> Snapshot:
        """Read both sides concurrently; a missing GCS state is tolerated, a missing RayCluster raises `SkippedError`."""
        if not self.provider.is_synced:
            raise SkippedError("pods", f"the pods have not been listed yet: {self.provider.error or 'still listing'}")
        async with asyncio.TaskGroup() as tasks:
            reading_cluster = tasks.create_task(_outcome(self.provider.cluster()))
            reading_gcs = tasks.create_task(_outcome(self._read_gcs_state()))
        cluster, gcs = reading_cluster.result(), reading_gcs.result()
        if isinstance(gcs, ApiStatusError) and gcs.status == UNAUTHENTICATED:
            raise GcsUnauthenticatedError(str(gcs))
        if isinstance(cluster, Exception):
            raise SkippedError("kubernetes", f"cannot read RayCluster {self.provider.key}: {cluster}")
        if cluster is None:
            raise SkippedError("gone", f"RayCluster {self.provider.key} does not exist")
        self._record_gcs_result(gcs)
        pods = self.provider.pods()
        node_autoscaler = await self._node_events.refresh(pods)
        return Snapshot(
            cluster=cluster,
            pods=pods,
            gcs=None if isinstance(gcs, Exception) else gcs,
            now=self._clock.now(),
            monotonic_s=self._clock.monotonic(),
            settings=self._settings.tick,
            node_autoscaler=node_autoscaler,
            reported_version=self._reported[1] if self._reported else 0,
        )

    async def _read_gcs_state(self) -> GcsState:
        began_s = self._clock.monotonic()
        try:
            state = await _with_timeout(GCS_S, self._gcs.state())
        finally:
            self._answered_in_s = self._clock.monotonic() - began_s
        if self._reported is None or self._reported[0] != state.session:
            self._reported = state.session, await _with_timeout(GCS_S, self._gcs.reported_version())
        return state

    # --- execution ---------------------------------------------------------------------------------------------------

    async def _may_drain(self, snapshot: Snapshot, submitted: Submitted | None) -> bool:
        """Whether the spec is still the one the drains are based on: a written patch tested that, else it is read."""
        if submitted is not None:
            return submitted.patch_result is PatchResult.APPLIED
        is_current = await _outcome(self.provider.is_current(snapshot.cluster))
        if is_current is not True:
            log.info("no node is drained in this tick: the RayCluster has changed, or cannot be read")
        return is_current is True

    async def _drain(self, drains: Sequence[Drain]) -> Answers:
        """Drain the first host of each replica, then the others of those whose first one accepted (FD:AS-A12).

        Once a raylet has accepted, it terminates, regardless of the other answers. Work on a TPU slice starts on the first host or on
        all of them, so a slice that has become busy is detected before it loses a host. Hosts that were not asked are
        not in the answers.
        """
        replicas = by_replica(drains)
        answers = await self._send_drains([hosts[0] for hosts in replicas])
        others = [drain for hosts in replicas if _is_accepted(answers[hosts[0].node_id]) for drain in hosts[1:]]
        return {**answers, **await self._send_drains(others)} if others else answers

    async def _send_drains(self, drains: Sequence[Drain]) -> Answers:
        """Send all drains at once (B-21); one without a reply in time is left to a later tick."""
        answers: dict[str, Drained | None] = dict.fromkeys(drain.node_id for drain in drains)
        requests = {asyncio.create_task(_outcome(self._send_drain(drain))): drain.node_id for drain in drains}
        pending: set[asyncio.Task[Drained | Exception]] = set(requests)
        ends_at = self._clock.monotonic() + DRAINS_S
        try:
            while pending and (left_s := ends_at - self._clock.monotonic()) > 0:
                done, pending = await asyncio.wait(pending, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    answers[requests[task]] = _drain_result(task.result(), requests[task])
                if any(_is_accepted(answer) for answer in answers.values()):
                    ends_at = min(ends_at, self._clock.monotonic() + OTHER_DRAINS_S)
        finally:
            for task in pending:
                task.cancel()
        return answers

    async def _send_drain(self, drain: Drain) -> Drained:
        return await self._gcs.drain(
            drain.node_id, reason=drain.reason, message=drain.message, deadline_ms=drain.deadline_ms
        )

    async def _name_drained_pods(self, snapshot: Snapshot, plan: ReconcileResult, answers: Answers) -> None:
        """Name the pods of accepted drains at once: they terminate within a second (B-28)."""
        naming = plan_names(snapshot, plan, answers)
        self._state = naming.state
        _write_log(naming.log)
        if naming.patch:
            await self.provider.submit(naming.patch)

    async def _report(self, report: Report) -> bool:
        """Whether the report reached Ray."""
        error = await _outcome(_with_timeout(GCS_S, self._gcs.report(report)))
        if isinstance(error, Exception):
            log.info("the autoscaling state was not reported to Ray, the next tick reports it: %s", error)
            return False
        return True

    # --- logging -----------------------------------------------------------------------------------------------------

    def _record_gcs_result(self, found: GcsState | Exception) -> None:
        """Log once when the GCS stops answering and once when it is back."""
        is_away = isinstance(found, Exception)
        if is_away != self._is_gcs_away:
            self._is_gcs_away = is_away
            if is_away:
                log.warning("the GCS does not return the cluster state, retrying: %s", found)
            else:
                log.info("the GCS answers again")
        if not isinstance(found, Exception):
            self._log_invalid_state(found.problems)

    def _log_invalid_state(self, problems: Sequence[str]) -> None:
        """Log each kind once for as long as it lasts; counts and examples change with every reply."""
        sentences = {problem.partition(":")[0]: problem for problem in problems}
        for kind in sentences.keys() - self._invalid_kinds:
            log.warning("ignoring invalid entries in the cluster state from the GCS: %s", sentences[kind])
        self._invalid_kinds = frozenset(sentences)

    def _log_skipped(self, message: str, label: str) -> None:
        """Log once per kind of failure."""
        if label != self._last_skip_message:
            log.warning("no decision is possible, retrying: %s", message)
        self._last_skip_message = label

    def _log_recovery(self) -> None:
        if self._last_skip_message:
            log.info("decisions are possible again")
        self._last_skip_message = ""


def shortest_tick_s(answered_in_s: float) -> float:
    """Minimum time from the start of one tick to the next, given the duration of the GCS call.

    The reply contains every node, so both its cost and this time grow with the cluster.
    """
    return min(max(SHORTEST_TICK_S, answered_in_s / GCS_SHARE), RAYS_INTERVAL_S)


def _write_log(lines: Sequence[LogLine]) -> None:
    for line in lines:
        values = "".join(f" {name}={value}" for name, value in line.values)
        log.log(LEVELS[line.level], "%s%s", line.message, values)


def _is_accepted(answer: Drained | None) -> bool:
    return answer is not None and answer.is_accepted


def _drain_result(outcome: Drained | Exception, node_id: str) -> Drained | None:
    if isinstance(outcome, Exception):
        log.info("no answer to the drain request for node %s: %s", node_id, outcome)
        return None
    return outcome


async def _with_timeout(seconds: float, call: Coroutine[Any, Any, T]) -> T:
    try:
        async with asyncio.timeout(seconds):
            return await call
    except TimeoutError as error:
        raise ApiUnavailableError(f"no answer in {seconds:g} s") from error


async def _outcome(call: Coroutine[Any, Any, T]) -> T | Exception:
    """The result, or the error if it is one of the two expected kinds."""
    try:
        return await call
    except (ApiUnavailableError, ApiStatusError) as error:
        return error
