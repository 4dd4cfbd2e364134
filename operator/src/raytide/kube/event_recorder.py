"""Event recorder: posts events in the background.

Takes outcomes of a pass, or single remarks. A hundred pods created in one pass are one event; repeats become a series
of the first. It never blocks its caller and never fails: an event that cannot be posted is dropped. Called by the
controllers after the status write (D8).

Events use core/v1, like client-go's recorder for controllers: events.k8s.io/v1 rejects `lastTimestamp`, by which
clients sort, and `count` ("needs to be unset"). They also carry the newer fields.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2s
from typing import Final, TypeAlias

from cachetools import TTLCache

from raytide.api.actions import Create, Delete, Outcome, Patch, Result
from raytide.api.conditions import timestamp
from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.api.meta import EVENTS, Key, Manifest, micro_time
from raytide.api.printable import escaped_within
from raytide.kube.client import Client
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

NORMAL: Final = "Normal"
WARNING: Final = "Warning"
QUEUE_LENGTH: Final = 1000
MAX_OF_ONE: Final = 100
"""Limit per object within the queue: a burst about one object must not drop events about others."""
NOTE_LENGTH: Final = 1024
FINISH_S: Final = 2.0
"""Wait for an event in flight at the end of a term: an unknown outcome would delay the next leader."""
SERIES_S: Final = 360.0
"""A repeat within this time belongs to the same series (as in client-go)."""
PATCH_INTERVAL_S: Final = 60.0

_Topic: TypeAlias = tuple[str, ...]


@dataclass(slots=True)
class _RecordedEvent:
    """An event that was posted or is queued."""

    manifest: Manifest
    count: int = 1
    last_at: datetime | None = None
    sent_at: float | None = None
    """Monotonic moment of the last successful POST or PATCH."""
    is_queued: bool = False


class Recorder:
    """Posts each event once.

    - A pass makes one event per (reason, group), with the count, the first and the last name.
    - Done actions are Normal events with their `success_reason`, rejected ones Warnings with their `failure_reason` and the API
      server's message; an empty reason, or any other result, makes no event.
    - A repeat within six minutes is counted in a series of the first event, patched at most once a minute; rejections
      count as repeats even if the message names another object.
    - `firstTimestamp`, `lastTimestamp`, `count` and `source` match `eventTime`, `series` and the reporting controller,
      so that `kubectl get events --sort-by=.lastTimestamp` sorts our events correctly (FD:RC-B17).
    - `record` and `record_outcomes` never block; a thousand events may be queued, a hundred about one object; further
      ones are dropped.
    - A note is escaped, so it is one line whatever a tenant wrote, and cut to 1,024 bytes (FD:SEC3-7).
    - One request at a time is in flight; a failed one is dropped, at debug level if its namespace is terminating.
    """

    def __init__(self, client: Client, *, clock: Clock, controller: str, instance: str) -> None:
        self.dropped = 0
        self._client = client
        self._clock = clock
        self._controller = controller
        self._instance = instance
        self._queue: deque[_RecordedEvent] = deque()
        self._queued_by_object: Counter[str] = Counter()
        self._has_work = asyncio.Event()
        self._post_lock = asyncio.Lock()
        self._recorded: TTLCache[_Topic, _RecordedEvent] = TTLCache(4096, SERIES_S, timer=clock.monotonic)

    def record(
        self, regarding: Manifest, *, event_type: str, reason: str, note: str, action: str = "Reconcile"
    ) -> None:
        """Record one event about an object."""
        self._enqueue(regarding, (event_type, reason, action, note), note)

    def record_outcomes(self, regarding: Manifest, outcomes: Iterable[Outcome]) -> None:
        """Record the outcomes of a pass."""
        bundles: dict[tuple[str, str, str], list[Outcome]] = {}
        for outcome in outcomes:
            is_done = outcome.result is Result.DONE
            reason = outcome.action.success_reason if is_done else outcome.action.failure_reason
            if reason and outcome.result in (Result.DONE, Result.REJECTED):
                event_type = NORMAL if is_done else WARNING
                bundles.setdefault((event_type, reason, outcome.action.group), []).append(outcome)
        for (event_type, reason, group), bundle in bundles.items():
            note = build_note(bundle)
            same = note if event_type == NORMAL else bundle[0].message.replace(f'"{bundle[0].action.name}"', "")
            self._enqueue(regarding, (event_type, reason, _verb(bundle[0])[0], group, same), note)

    async def run(self) -> None:
        """Post until cancelled; queued events are then dropped: the next leader makes its own."""
        try:
            while True:
                await self._has_work.wait()
                while self._queue:
                    event = self._queue.popleft()
                    event.is_queued = False
                    self._queued_by_object -= Counter(
                        [_object_uid(event)]
                    )  # the subtraction removes objects whose count reaches 0
                    async with self._post_lock:
                        await self._post(event)
                self._has_work.clear()
        finally:
            self._drop_queued()

    async def finish(self) -> None:
        """Drop queued events, and return when the request in flight is answered, or after two seconds.

        Called before `run` is cancelled: a write with an unknown outcome prevents releasing the lease (FD:REL-D).
        """
        self._drop_queued()
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_S), self._post_lock:
                pass

    def _drop_queued(self) -> None:
        self.dropped += len(self._queue)
        for event in self._queue:
            event.is_queued = False
        self._queue.clear()
        self._queued_by_object.clear()

    def _enqueue(self, regarding: Manifest, topic: _Topic, note: str) -> None:
        now = self._clock.now()
        key = (regarding["metadata"].get("uid", ""), *topic)
        event = self._recorded.get(key)
        if event is None:
            event = _RecordedEvent(self._build(regarding, topic, note, now))
        else:
            event.count += 1
        self._recorded[key] = event  # restarts the six minutes
        event.last_at = now
        is_early = event.sent_at is not None and self._clock.monotonic() - event.sent_at < PATCH_INTERVAL_S
        if event.is_queued or is_early:
            return
        if len(self._queue) >= QUEUE_LENGTH or self._queued_by_object[_object_uid(event)] >= MAX_OF_ONE:
            self.dropped += 1
            return
        self._queued_by_object[_object_uid(event)] += 1
        event.is_queued = True
        self._queue.append(event)
        self._has_work.set()

    def _build(self, regarding: Manifest, topic: _Topic, note: str, now: datetime) -> Manifest:
        metadata = regarding["metadata"]
        event_time = micro_time(now)
        digest = blake2s(repr((topic, event_time, self._instance, metadata.get("uid"))).encode(), digest_size=8)
        event_type, reason, action = topic[:3]
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {
                "namespace": metadata.get("namespace", "default"),
                "name": f"{metadata['name']}.{digest.hexdigest()}",
            },
            "eventTime": event_time,
            "firstTimestamp": timestamp(now),
            "lastTimestamp": timestamp(now),
            "count": 1,
            "source": {"component": self._controller},
            "reportingComponent": self._controller,
            "reportingInstance": self._instance,
            "action": action,
            "reason": reason,
            "type": event_type,
            "message": escaped_within(note, NOTE_LENGTH),
            "involvedObject": {
                "apiVersion": regarding.get("apiVersion", ""),
                "kind": regarding.get("kind", ""),
                "namespace": metadata.get("namespace", ""),
                "name": metadata["name"],
                "uid": metadata.get("uid", ""),
                "resourceVersion": metadata.get("resourceVersion", ""),
            },
        }

    async def _post(self, event: _RecordedEvent) -> None:
        try:
            if event.sent_at is None:
                await self._client.create(EVENTS, event.manifest)
            else:
                await self._patch(event)
            event.sent_at = self._clock.monotonic()
        except ApiUnavailableError as error:
            self.dropped += 1
            log.debug("event %s not recorded: %s", event.manifest["reason"], error)
        except ApiStatusError as error:
            self.dropped += 1
            level = logging.DEBUG if error.is_namespace_terminating or error.is_not_found else logging.WARNING
            log.log(level, "API server rejected event %s: %s", event.manifest["reason"], error)

    async def _patch(self, event: _RecordedEvent) -> None:
        metadata = event.manifest["metadata"]
        last_at = event.last_at or self._clock.now()
        change = {
            "series": {"count": event.count, "lastObservedTime": micro_time(last_at)},
            "count": event.count,
            "lastTimestamp": timestamp(last_at),
        }
        try:
            await self._client.patch(EVENTS, Key(metadata["namespace"], metadata["name"]), change)
        except ApiStatusError as error:
            if not error.is_not_found:
                raise
            event.count = 1  # it expired: start a new series
            event_time = timestamp(last_at)
            event.manifest |= {
                "eventTime": micro_time(last_at),
                "firstTimestamp": event_time,
                "lastTimestamp": event_time,
            }
            await self._client.create(EVENTS, event.manifest)


def build_note(outcomes: Sequence[Outcome]) -> str:
    """One sentence for outcomes that differ only in names, and possibly in reasons."""
    first, last = outcomes[0].action, outcomes[-1].action
    verb, done = _verb(outcomes[0])
    what = first.resource.kind.lower()
    names = f"{what} {first.name}" if len(outcomes) == 1 else f"{len(outcomes)} {what}s {first.name} … {last.name}"
    if outcomes[0].result is Result.REJECTED:
        return f"Failed to {verb.lower()} {names}: {outcomes[0].message or outcomes[0].reason}"
    reasons = dict.fromkeys(
        o.action.message for o in outcomes if isinstance(o.action, Delete | Patch) and o.action.message
    )
    return f"{done} {names}" + (f": {'; '.join(reasons)}" if reasons else "")


def _object_uid(event: _RecordedEvent) -> str:
    uid: str = event.manifest["involvedObject"]["uid"]
    return uid


def _verb(outcome: Outcome) -> tuple[str, str]:
    if isinstance(outcome.action, Create):
        return "Create", "Created"
    return ("Delete", "Deleted") if isinstance(outcome.action, Delete) else ("Patch", "Patched")
