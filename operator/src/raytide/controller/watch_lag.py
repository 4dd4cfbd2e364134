"""Watch lag: how far kopf's watch is behind our own informer.

Takes keys and versions that the informer holds and that kopf reports; returns the age of the oldest version that kopf
has not reported. Drops deleted objects and starts no tasks. Used by `manager/kopf_source` per kind (D1).
"""

from raytide.api.meta import Key
from raytide.runtime.clock import Clock


class WatchLag:
    """Versions that the informer has received and kopf has not.

    - A version received by the informer is pending until kopf reports it or a later one.
    - A deleted object is not pending. Its state is dropped once both have reported the deletion, or when kopf restarts:
      kopf reports every existing object again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pending: dict[Key, tuple[str, float]] = {}
        self._delivered: dict[Key, str] = {}

    def informer_saw(self, key: Key, version: str) -> None:
        """Record a version received by the informer."""
        if not _is_at_least(self._delivered.get(key, ""), version):
            self._pending[key] = (version, self._pending.get(key, ("", self._clock.monotonic()))[1])

    def informer_lost(self, key: Key) -> None:
        """Record a deletion received by the informer."""
        self._pending.pop(key, None)
        self._delivered.pop(key, None)

    def kopf_delivered(self, key: Key, version: str, *, is_gone: bool = False) -> None:
        """Record a version, or a deletion, reported by kopf."""
        if is_gone:
            self._delivered.pop(key, None)
        else:
            self._delivered[key] = version
        pending = self._pending.get(key)
        if pending is not None and _is_at_least(version, pending[0]):
            del self._pending[key]

    def reset(self) -> None:
        """Restart all pending times because kopf restarts."""
        now = self._clock.monotonic()
        self._pending = {key: (version, now) for key, (version, _) in self._pending.items()}
        self._delivered.clear()

    def __len__(self) -> int:
        """Number of objects with state."""
        return len(self._pending.keys() | self._delivered.keys())

    @property
    def has_pending_versions(self) -> bool:
        """Whether any version is pending."""
        return bool(self._pending)

    def lag_s(self) -> float:
        """Age of the oldest pending version in seconds; 0 when there is none."""
        now = self._clock.monotonic()
        return now - min((since for _, since in self._pending.values()), default=now)


def _is_at_least(version: str, other: str) -> bool:
    if version.isdigit() and other.isdigit():
        return int(version) >= int(other)
    return version == other
