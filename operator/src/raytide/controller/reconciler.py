"""Base class of the reconcilers: what one pass does for any kind.

`BaseReconciler` reads the object live, has the subclass observe and plan, executes the plan, writes the computed status
and emits events. It contains no policy; it never changes the spec (RM:I7), writes status only when it differs and at
most every half second (D8), and emits events afterwards. Base of raycluster/reconciler.py and
trainingjob/reconciler.py; called by `controller/controller`, one reconcile per key at a time; D2, D5-D8.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from raytide.api.actions import EventSpec, Outcome
from raytide.api.base_model import ObjectMeta
from raytide.api.meta import Key, Manifest
from raytide.api.plan import Plan, earliest
from raytide.api.status_patch import status_patch
from raytide.controller.action_runner import ActionRunner
from raytide.controller.create_backoff import CreateBackoff
from raytide.controller.event_correlator import EventCorrelator
from raytide.controller.executor import ApplyResult
from raytide.controller.read_live import LiveReader
from raytide.controller.status_writer import StatusWriter
from raytide.runtime.clock import Clock


class CustomResource(Protocol):
    """Fields that the object of every kind has."""

    @property
    def key(self) -> Key:
        """Namespace and name."""

    @property
    def metadata(self) -> ObjectMeta:
        """Its metadata."""

    @property
    def status(self) -> Mapping[str, Any]:
        """Its status as read."""

    @property
    def raw(self) -> Manifest:
        """The object as received."""


R = TypeVar("R", bound=CustomResource)
S = TypeVar("S")
"""The observed state of an object's children."""
P = TypeVar("P", bound=Plan)
C = TypeVar("C", bound="ComputedStatus")
"""The status after a pass, with what the kind records besides."""


@dataclass(frozen=True, slots=True)
class ComputedStatus:
    """The status of one object after a pass."""

    status: Mapping[str, Any]
    requeue_after_s: float | None
    """Seconds until time alone changes the status; None when only a watch event can."""
    at: datetime
    """The time for which it was computed."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Dependencies of every reconciler for reads and writes."""

    clock: Clock
    live_reader: LiveReader
    shown_version: Callable[[Key], int | None]
    """The resourceVersion of the object in the informer; None when it is not there."""
    relist: Callable[[], None]
    """Ask the informer of the objects for a new list."""
    runner: ActionRunner
    status_writer: StatusWriter
    events: EventCorrelator
    ignore_resource_version: Callable[..., None]
    """Takes a key and versions whose watch events need no pass."""
    forgotten: Callable[[Key], None]
    """Takes the key of an object that is gone."""


class BaseReconciler(ABC, Generic[R, S, P, C]):
    """Reconciler of one kind.

    - An object that is not found is forgotten once the informer does not have it either; nothing is created for it
      meanwhile. A read older than the informer's version is discarded.
    - The snapshot is taken and the plan made without an await in between.
    - Status is computed after the writes and patched only if it differs: at the earliest half a second after the last
      patch, or after the pass that wrote.
    - A spec that cannot be parsed is reported in its status; other objects are not affected.

    Subclasses parse, observe and plan in `_reconcile_object`, and call `_carry_out` or `_report_unreadable` with the
    result.
    """

    def __init__(self, deps: Dependencies, create_backoff: CreateBackoff[Any]) -> None:
        self._deps = deps
        self._clock = deps.clock
        self._create_backoff = create_backoff

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile once; returns the seconds to requeue after, None when only a watch event matters."""
        deps = self._deps
        obj = await deps.live_reader.read(key, shown=partial(deps.shown_version, key), relist=deps.relist)
        if obj is None:
            self._forget(key)
            return None
        return await self._reconcile_object(obj, key)

    # --- what differs between kinds ----------------------------------------------------------------------------------

    @abstractmethod
    async def _reconcile_object(self, obj: Manifest, key: Key) -> float | None:
        """Reconcile the object as it was read."""

    @abstractmethod
    def _observe(self, obj: R, seen_at: datetime) -> S:
        """The observed state at one instant: no await in here. `seen_at` is the same for the whole pass."""

    @abstractmethod
    def _compute_status(self, obj: R, observed: S, planned: P, outcomes: Sequence[Outcome], now: datetime) -> C:
        """The status after the writes of a plan."""

    @abstractmethod
    def _record_status(self, obj: R, computed: C, *, is_written: bool) -> None:
        """Update metrics with the computed status."""

    def _status_events(self, obj: R, computed: C) -> Iterable[EventSpec]:  # noqa: ARG002 - for subclasses
        """The events for changes from the stored status to one that was just written."""
        return ()

    def _record_outcomes(self, obj: R, planned: P, outcomes: Sequence[Outcome]) -> None:  # noqa: ARG002 - for subclasses
        """Record the outcomes of the plan's writes before the status is computed."""
        metadata = obj.metadata
        self._create_backoff.record_outcomes(
            obj.key, metadata.uid, metadata.generation, outcomes, self._clock.monotonic()
        )

    def _deadlines_s(self, obj: R, outcomes: Iterable[Outcome]) -> Iterable[float | None]:  # noqa: ARG002 - for subclasses
        """Requeue delays besides those of the plan and the status."""
        return ()

    # --- shared ------------------------------------------------------------------------------------------------------

    async def _carry_out(self, obj: R, seen_at: datetime, planned: P) -> float | None:
        """Send the writes of the plan and report; returns the seconds to requeue after."""
        key, uid, runner = obj.key, obj.metadata.uid, self._deps.runner
        if not planned.is_reported:
            self._deps.ignore_resource_version(key, obj.metadata.resource_version)
            return None
        again = await runner.due_retries(key, uid, planned.actions, planned.unwanted, may_create=planned.may_create)
        applied = await runner.apply(key, uid, planned.actions, again)
        self._record_outcomes(obj, planned, applied.outcomes)
        status_delay_s = await self._report(obj, seen_at, planned, applied)
        deadlines_s = (status_delay_s, planned.requeue_after_s, *self._deadlines_s(obj, applied.outcomes))
        return runner.requeue_after_s(
            key, applied, deadlines_s, is_continued=planned.is_continued, has_more=planned.has_more
        )

    async def _report(self, obj: R, seen_at: datetime, planned: P, applied: ApplyResult) -> float | None:
        """Patch the status if it differs, then emit events; returns the requeue delay of the status in seconds."""
        key, writer, now = obj.key, self._deps.status_writer, self._clock.now()
        computed = self._compute_status(obj, self._observe(obj, seen_at), planned, applied.outcomes, now)
        patch = status_patch(obj, writer.storable(obj.status, computed.status))
        wait_s = writer.wait_s(key, has_acted=bool(applied.outcomes)) if patch else 0.0
        if not patch:
            writer.mark_up_to_date(key, obj.metadata.resource_version)
        is_written, events = False, tuple(planned.events)
        try:
            if patch and wait_s <= 0:
                await writer.write(obj.raw, key, patch)
                # First: they are made once, and of many events in a pass only the first are recorded.
                is_written, events = True, (*self._status_events(obj, computed), *events)
        finally:  # emit events for the writes even if the status patch failed
            self._deps.events.emit(obj.raw, applied.outcomes, events)
        self._record_status(obj, computed, is_written=is_written)
        next_step_s = 0.0 if is_written and planned.is_status_gated else wait_s if wait_s > 0 else None
        return earliest(next_step_s, computed.requeue_after_s)

    async def _report_unreadable(
        self, obj: Manifest, key: Key, patch: Mapping[str, Any] | None, events: Iterable[EventSpec]
    ) -> None:
        """Write the status patch of an object that cannot be parsed, None when it is up to date; then emit the events."""
        writer = self._deps.status_writer
        try:
            if patch:
                await writer.write(obj, key, patch)
            else:
                writer.mark_up_to_date(key, obj["metadata"].get("resourceVersion", ""))
        finally:  # if even the status patch is rejected, the event is the user's only report
            self._deps.events.emit(obj, (), events)

    def _forget(self, key: Key) -> None:
        """Drop all state of a deleted object; garbage collection removes its children (RC:TR-5)."""
        self._deps.runner.forget(key)
        self._deps.events.forget(key)
        self._deps.status_writer.forget(key)
        self._create_backoff.forget(key)
        self._deps.forgotten(key)
