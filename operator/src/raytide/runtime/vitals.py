"""Would a restart help?

Takes the ages of streams, a way to ask the other side a plain question, and the age of the oldest running pass; gives
checks for liveness and readiness. A stream that is stale while plain questions are answered is dead and a restart helps; a
silent other side is nobody's fault here, and a restart would only make it worse (D9). Wired in main.py.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from raytide.runtime.endpoints import Check

STALE_S: Final = 90.0
STUCK_S: Final = 120.0
LOOK_EVERY_S: Final = 10.0
LOOKS_UNTIL_DEAD: Final = 6
"""After an outage a stream may still rest for 30 s of back-off, and then has to list: a minute is patience enough."""


class Vitals:
    """The signs of life of one process.

    - A stream is dead when it was stale for a minute of looks in a row while a plain question was answered at each.
    - A pass that has been running for more than two minutes is stuck.
    - An API that does not answer makes nobody dead, but nobody ready either.
    """

    def __init__(
        self,
        *,
        stream_ages: Mapping[str, Callable[[], float]],
        is_answered: Callable[[], Awaitable[bool]],
        is_synced: Callable[[], bool],
        oldest_pass_s: Callable[[], float],
    ) -> None:
        self._stream_ages = stream_ages
        self._is_answered = is_answered
        self._is_synced = is_synced
        self._oldest_pass_s = oldest_pass_s
        self._is_api_away = False
        self._stale_looks: dict[str, int] = dict.fromkeys(stream_ages, 0)

    async def run(self) -> None:
        """Look every ten seconds."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self.look()

    async def look(self) -> None:
        """One look; asks the plain question only when a stream is stale."""
        stale = {name for name, age_s in self._stream_ages.items() if age_s() > STALE_S}
        is_answered = await self._is_answered() if stale else True
        self._is_api_away = not is_answered
        for name in self._stale_looks:
            self._stale_looks[name] = self._stale_looks[name] + 1 if name in stale and is_answered else 0

    def liveness(self) -> Mapping[str, Check]:
        """Checks for `/healthz`."""
        streams = {f"stream-{name}": self._stream_check(name) for name in self._stream_ages}
        return {**streams, "passes": self._passes_check}

    def readiness(self) -> Mapping[str, Check]:
        """Checks for `/readyz`."""
        return {
            "synced": lambda: (self._is_synced(), "everything listed" if self._is_synced() else "still listing"),
            "api": lambda: (not self._is_api_away, "does not answer" if self._is_api_away else "answers"),
        }

    def _stream_check(self, name: str) -> Check:
        def check() -> tuple[bool, str]:
            return self._stale_looks[name] < LOOKS_UNTIL_DEAD, f"last heard of {self._stream_ages[name]():.0f} s ago"

        return check

    def _passes_check(self) -> tuple[bool, str]:
        oldest_s = max(0.0, self._oldest_pass_s())
        return oldest_s <= STUCK_S, f"oldest running for {oldest_s:.1f} s"
