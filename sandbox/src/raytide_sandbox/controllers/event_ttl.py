"""Deletion of expired Events.

Takes changes of Events and deletes each one hour after its last write, as a real API server does, so that a
long-running sandbox does not fill its memory. Keeps one queue in order of time. One of the sandbox's controllers, and
the only one that returns a time to be called again.
"""

from collections import deque
from datetime import datetime, timedelta
from typing import Final

from raytide_sandbox.apiserver.store import ObjectKey, Store
from raytide_sandbox.controllers.base import Noted, attempt

EVENT_LIFETIME: Final = timedelta(hours=1)


class EventExpiry:
    """Deletes Events one hour after their last write."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._written: list[tuple[ObjectKey, int]] = []
        self._queue: deque[tuple[datetime, ObjectKey, int]] = deque()

    def on_change(self, noted: Noted) -> None:
        """Record a written Event."""
        if noted.key.resource == "events" and not noted.is_gone:
            self._written.append((noted.key, noted.change.version))

    def act(self, now: datetime) -> datetime | None:
        """Delete expired Events; returns when the next one expires."""
        self._queue.extend((now + EVENT_LIFETIME, key, version) for key, version in self._written)
        self._written.clear()
        while self._queue and self._queue[0][0] <= now:
            _, key, version = self._queue.popleft()
            entry = self._store.find(*key)
            if entry is not None and entry.version == version:
                attempt(lambda key=key: self._store.delete(*key))  # type: ignore[misc]
        return self._queue[0][0] if self._queue else None
