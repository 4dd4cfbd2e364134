"""Feed of the page: the current lanes with their history, and messages about what changes.

`update` takes the lanes of the cluster at a time and puts one message into the queue of every reader. A queue is bounded: a reader
that does not keep up is dropped, and reconnects. Reads no clock and does no I/O. Called by serve.py and app.py.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from raytide.cli.lane_watch import Problem
from raytide.explain.cluster_capacity import CapacityView
from raytide.explain.cluster_capacity import as_json as capacity_as_json
from raytide.explain.encode import API_VERSION
from raytide.explain.history import WINDOW_S, History, Key, key_of
from raytide.explain.overview import GroupSize, Lane, lane_as_json
from raytide.explain.transfers import Transfer, transfers_of
from raytide.explain.transfers import as_json as transfers_as_json

KIND: Final = "LaneHistory"
MAX_READERS: Final = 32
MAX_QUEUED: Final = 30
"""Messages that wait for one reader; there is at most one per second."""
HEARTBEAT_S: Final = 5
"""A message is sent this often although nothing changes, so that the page can tell silence from a lost connection."""
POINTS: Final = 600
"""Steps of a lane that the page receives at most: a chart has about as many pixels."""
MIN_WINDOW_S: Final = 60
LANES_AT_ONCE: Final = 20


@dataclass(eq=False)
class Reader:
    """One open page; `drop` closes its connection."""

    drop: Callable[[], None]
    queue: asyncio.Queue[bytes | None] = field(default_factory=lambda: asyncio.Queue(MAX_QUEUED))
    """Encoded messages; None ends the stream."""


class TooManyReadersError(Exception):
    """As many pages are open as may be."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Workloads that the caller may not see, as numbers only."""

    workloads: int = 0
    wanted: int = 0
    ready: int = 0


class Recording:
    """The history of all lanes, to which every feed adds what it shows: the same lane at the same time counts once."""

    def __init__(self) -> None:
        self.history = History()
        self.since: datetime | None = None
        """When the history begins."""
        self._now: datetime | None = None

    def add(self, changed: Iterable[Lane], removed: Iterable[Key], now: datetime) -> None:
        """Record these lanes, and forget those that are gone."""
        if self._now is not None and self.since is not None and now < self._now:
            self.since -= self._now - now  # the history moves its steps, too
        self._now, self.since = now, self.since or now
        for lane in changed:
            self.history.record(lane, now)
        for key in removed:
            self.history.remove(key)


class Feed:
    """Lanes of one namespace (empty: of all), and the pages that follow them."""

    def __init__(self, namespace: str, recording: Recording | None = None, *, max_readers: int = MAX_READERS) -> None:
        self._namespace, self._max_readers = namespace, max_readers
        self._recording = recording or Recording()
        self._lanes: dict[Key, Lane] = {}
        self._transfers: dict[Key, tuple[Transfer, ...]] = {}
        self._problems: list[Problem] = []
        self._capacity = CapacityView()
        self._elsewhere: Elsewhere | None = None
        self._now: datetime | None = None
        self._lost_since: datetime | None = None
        """Since when the API server cannot be reached."""
        self._readers: set[Reader] = set()
        self._sent_at = 0.0

    # --- from the cluster ----------------------------------------------------------------------------------------------

    @property
    def has_readers(self) -> bool:
        """Whether any page follows it."""
        return bool(self._readers)

    def update(
        self,
        lanes: Iterable[Lane],
        problems: list[Problem],
        now: datetime,
        capacity: CapacityView | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """Record these lanes, and send what differs from the last ones; no capacity is the last one."""
        capacity = self._capacity if capacity is None else capacity
        current = {key_of(lane): lane for lane in lanes}
        changed = [key for key, lane in current.items() if self._lanes.get(key) != lane]
        removed = [key for key in self._lanes if key not in current]
        transfers = transfers_of(current.values()) if changed or removed else self._transfers
        marked = [key for key in current if transfers.get(key) != self._transfers.get(key)]
        is_new = bool(changed or removed) or self._now is None
        is_new = is_new or (problems, capacity, elsewhere) != (self._problems, self._capacity, self._elsewhere)
        self._recording.add((current[key] for key in changed), removed, now)
        is_lost = any(not problem.is_rejected for problem in problems)
        self._lost_since = (self._lost_since or now) if is_lost else None
        self._lanes, self._transfers, self._problems, self._capacity = current, transfers, problems, capacity
        self._now, self._elsewhere = now, elsewhere
        if is_new or abs(now.timestamp() - self._sent_at) >= HEARTBEAT_S:
            self._sent_at = now.timestamp()
            self._send(
                {
                    **self._state(now),
                    "changed": [
                        _item(current[key], transfers.get(key, ())) for key in dict.fromkeys((*changed, *marked))
                    ],
                    "removed": [key._asdict() for key in removed],
                }
            )

    # --- to the pages --------------------------------------------------------------------------------------------------

    async def snapshot(self, window_s: int) -> dict[str, Any]:
        """All lanes, with their steps in the last `window_s` seconds.

        Pauses between lanes, because six hours of a thousand busy workloads are millions of steps. What changes meanwhile is sent
        to those that subscribed before.
        """
        now = self._now
        window_s, resolution_s = self._window(window_s)
        items = []
        lanes, transfers = self._lanes, self._transfers
        for number, (key, lane) in enumerate(lanes.items()):
            steps = self._recording.history.steps(key, now, window_s=window_s, resolution_s=resolution_s) if now else []
            items.append({**_item(lane, transfers.get(key, ())), "steps": steps})
            if number % LANES_AT_ONCE == 0:
                await asyncio.sleep(0)
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            **self._state(now),
            "namespace": self._namespace,
            "windowSeconds": window_s,
            "resolutionSeconds": resolution_s,
            "recordedSince": _seconds(self._recording.since),
            "items": items,
        }

    def groups(self, key: Key, window_s: int) -> list[dict[str, Any]] | None:
        """The worker groups or roles of a workload with their steps; None if it is not shown."""
        lane, now = self._lanes.get(key), self._now
        if lane is None or now is None:
            return None
        window_s, resolution_s = self._window(window_s)
        return [
            {
                **_group(group),
                "steps": self._recording.history.steps(
                    key, now, group=group.name, window_s=window_s, resolution_s=resolution_s
                ),
            }
            for group in lane.groups
        ]

    def _window(self, window_s: int) -> tuple[int, int]:
        """The window that is shown for the one that was asked for, and its resolution, both in seconds."""
        window_s = min(max(window_s, MIN_WINDOW_S), WINDOW_S)
        since = self._recording.since
        recorded_s = int((self._now - since).total_seconds()) if self._now and since else 0
        return window_s, max(1, -(-min(window_s, recorded_s) // POINTS))

    def subscribe(self, drop: Callable[[], None]) -> Reader:
        """A reader of all messages from now on; raises TooManyReadersError."""
        if len(self._readers) >= self._max_readers:
            raise TooManyReadersError
        reader = Reader(drop)
        self._readers.add(reader)
        return reader

    def unsubscribe(self, reader: Reader) -> None:
        """Send nothing more to that reader."""
        self._readers.discard(reader)

    def close(self) -> None:
        """End every stream."""
        for reader in tuple(self._readers):
            self._put(reader, None)

    def _state(self, now: datetime | None) -> dict[str, Any]:
        return {
            "at": _seconds(now),
            "isListed": now is not None,
            "disconnectedSince": _seconds(self._lost_since),
            "problems": [
                {"kind": problem.kind, "message": problem.message, "rejected": problem.is_rejected}
                for problem in self._problems
            ],
            "capacity": capacity_as_json(self._capacity),
            "elsewhere": None if self._elsewhere is None else asdict(self._elsewhere),
        }

    def _send(self, message: dict[str, Any]) -> None:
        if not self._readers:
            return
        encoded = event("changes", message)
        for reader in tuple(self._readers):
            self._put(reader, encoded)

    def _put(self, reader: Reader, message: bytes | None) -> None:
        try:
            reader.queue.put_nowait(message)
        except asyncio.QueueFull:
            self.unsubscribe(reader)
            reader.drop()


def event(name: str, message: dict[str, Any]) -> bytes:
    """One server-sent event; JSON has no line breaks."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(message))


def _item(lane: Lane, transfers: Iterable[Transfer]) -> dict[str, Any]:
    """A lane without its steps."""
    groups = [_group(group) for group in lane.groups]
    return {**lane_as_json(lane), "groups": groups, "marks": transfers_as_json(transfers)}


def _group(group: GroupSize) -> dict[str, Any]:
    return {"name": group.name, "wanted": group.wanted, "ready": group.ready, "reason": group.reason}


def _seconds(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp())
