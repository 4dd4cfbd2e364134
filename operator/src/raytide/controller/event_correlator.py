"""Event correlator: deduplicates the events of a pass.

Takes the outcomes and remarks of a pass after the status write and passes new ones to the recorder (D8). A standing
remark is recorded once per generation, a rejection of the same group once a minute (SC:S3). It does not word the
events. Used by all controllers.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, Protocol

from raytide.api.actions import EventSpec, Outcome, Result
from raytide.api.meta import Key, Manifest
from raytide.runtime.clock import Clock

EVENT_INTERVAL_S: Final = 600.0
REJECTION_INTERVAL_S: Final = 60.0
MAX_EVENTS: Final = 25
"""Remarks recorded per object and pass; the next ones follow when these are resolved."""
MAX_TOPICS: Final = 100
"""Remarks, and as many rejections, remembered per object: bounds what one object can use of our memory and of etcd."""


class Recorder(Protocol):
    """Receiver of events."""

    def record(self, regarding: Manifest, *, event_type: str, reason: str, note: str, action: str) -> None:
        """Record one event."""
        ...

    def record_outcomes(self, regarding: Manifest, outcomes: Iterable[Outcome]) -> None:
        """Record the events of a pass."""
        ...


def _first(events: Iterable[EventSpec]) -> Iterator[EventSpec]:
    """The first `MAX_EVENTS` remarks, and one with the number of further ones."""
    left = iter(events)
    yield from islice(left, MAX_EVENTS)
    if (following := next(left, None)) is not None:
        more = 1 + sum(1 for _ in left)
        yield replace(
            following, message=f"{more} more events like these are not recorded; resolve the recorded ones first"
        )


@dataclass(slots=True)
class _Emitted:
    """Events recorded for one object."""

    version: tuple[str, int]
    """uid and generation of the object."""
    events: dict[tuple[str, str], float | None] = field(default_factory=dict)
    """Time since when a remark has been absent, by reason and note; None while passes make it."""
    rejections: dict[tuple[str, str], float] = field(default_factory=dict)
    """Time until which a rejection is not recorded again, by group and purpose."""


class EventCorrelator:
    """Records each event once.

    - Every successful write is recorded, in every pass.
    - A standing remark is recorded once per generation of an object, and again after an operator restart.
    - A remark that returns after ten minutes of absence is recorded again; one that returns earlier is not.
    - Of many remarks in one pass the first 25 are recorded, and the number of the others.
    - A rejection of the same group for the same purpose is recorded once a minute.
    - A hundred remarks and a hundred rejections are remembered per object; further ones are not recorded.
    """

    def __init__(self, recorder: Recorder, *, clock: Clock) -> None:
        self._recorder = recorder
        self._clock = clock
        self._reported: dict[Key, _Emitted] = {}

    def emit(self, regarding: Manifest, outcomes: Sequence[Outcome], events: Iterable[EventSpec]) -> None:
        """Record the outcomes and remarks that are new."""
        metadata = regarding["metadata"]
        key = Key(metadata.get("namespace", ""), metadata["name"])
        version = (metadata.get("uid", ""), metadata.get("generation", 0))
        reported = self._reported.setdefault(key, _Emitted(version))
        if reported.version != version:  # remarks of another generation do not count for this one
            reported.version, reported.events = version, {}
        now = self._clock.monotonic()
        for event in _due_events(reported.events, _first(events), now):
            self._recorder.record(
                regarding,
                event_type=event.event_type,
                reason=event.reason,
                note=event.message,
                action=event.action,
            )
        reported.rejections = {topic: until for topic, until in reported.rejections.items() if until > now}
        fresh_groups: dict[tuple[str, str], bool] = {}
        fresh = [outcome for outcome in outcomes if _is_due(reported.rejections, outcome, fresh_groups, now)]
        if fresh:
            self._recorder.record_outcomes(regarding, fresh)
        if not reported.events and not reported.rejections:
            self.forget(key)

    def forget(self, key: Key) -> None:
        """Drop the state of a deleted object."""
        self._reported.pop(key, None)


def _due_events(
    reported: dict[tuple[str, str], float | None], events: Iterable[EventSpec], now: float
) -> list[EventSpec]:
    """The remarks of a pass that were not recorded yet; updates `reported`, also for remarks that are absent now."""
    for topic in [
        topic for topic, gone_at in reported.items() if gone_at is not None and now - gone_at >= EVENT_INTERVAL_S
    ]:
        del reported[topic]
    made, new = set(), []
    for event in events:
        topic = (event.reason, event.message)
        if topic not in reported:
            if len(reported) >= MAX_TOPICS:
                continue
            new.append(event)
        reported[topic] = None
        made.add(topic)
    for topic, gone_at in reported.items():
        if gone_at is None and topic not in made:
            reported[topic] = now
    return new


def _is_due(
    reported: dict[tuple[str, str], float], outcome: Outcome, fresh: dict[tuple[str, str], bool], now: float
) -> bool:
    if outcome.result is Result.DONE:
        return True
    if outcome.result is not Result.REJECTED:
        return False
    topic = (outcome.action.group, outcome.action.failure_reason)
    if topic not in fresh:
        fresh[topic] = topic not in reported and len(reported) < MAX_TOPICS
        if fresh[topic]:
            reported[topic] = now + REJECTION_INTERVAL_S
    return fresh[topic]
