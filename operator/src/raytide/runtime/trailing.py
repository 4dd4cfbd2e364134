"""How far is one source of news behind another?

Takes what our own informer shows and what kopf rings, by key and version; says how long the oldest version has been owed.
It keeps nothing of what is gone and starts nothing. Kept by the doorbell for each kind (D1).
"""

from raytide.api.meta import Key
from raytide.runtime.clock import Clock


class Trailing:
    """How far kopf is behind the informer.

    - A version the informer has seen is owed until kopf rings with it or a later one.
    - What is deleted is owed no more, and nothing is kept of it once both have said so, or kopf starts anew: what it rang
      with before, it rings with again if it still exists.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._owed: dict[Key, tuple[str, float]] = {}
        self._rung: dict[Key, str] = {}

    def informer_saw(self, key: Key, version: str) -> None:
        """The informer shows that version."""
        if not _is_at_least(self._rung.get(key, ""), version):
            self._owed[key] = (version, self._owed.get(key, ("", self._clock.monotonic()))[1])

    def informer_lost(self, key: Key) -> None:
        """The informer says that it is gone."""
        self._owed.pop(key, None)
        self._rung.pop(key, None)

    def kopf_rang(self, key: Key, version: str, *, is_gone: bool = False) -> None:
        """Kopf has seen that version, or that the object is gone."""
        if is_gone:
            self._rung.pop(key, None)
        else:
            self._rung[key] = version
        owed = self._owed.get(key)
        if owed is not None and _is_at_least(version, owed[0]):
            del self._owed[key]

    def start_over(self) -> None:
        """Kopf starts anew and gets the full time for everything it owes."""
        now = self._clock.monotonic()
        self._owed = {key: (version, now) for key, (version, _) in self._owed.items()}
        self._rung.clear()

    def __len__(self) -> int:
        """How many objects are remembered."""
        return len(self._owed.keys() | self._rung.keys())

    @property
    def has_debts(self) -> bool:
        """Whether kopf owes anything."""
        return bool(self._owed)

    def behind_s(self) -> float:
        """Age of the oldest debt; 0 when there is none."""
        now = self._clock.monotonic()
        return now - min((since for _, since in self._owed.values()), default=now)


def _is_at_least(version: str, other: str) -> bool:
    if version.isdigit() and other.isdigit():
        return int(version) >= int(other)
    return version == other
