"""Would a restart help?

Takes the streams and queues of a process, and a way to ask the other side a plain question; gives the checks of liveness
and readiness. A stream that is stale while plain questions are answered is dead, and a restart helps; a silent other side
is nobody's fault here, and a restart would only make it worse (D9). Wired in main.py.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from raytide.runtime.endpoints import Check

STALE: Final = 1.25
"""A stream that is well gives a sign of life at least once in the silence that is allowed; this many of it are too many."""
STUCK_S: Final = 120.0
LOOKS_PER_SILENCE: Final = 6
LOOKS_UNTIL_DEAD: Final = 4
"""After an outage a stream may still rest for 10 s and then has to list; red no later than 120 s after its end (SC:S18)."""


class Stream(Protocol):
    """Something that is followed."""

    @property
    def age_s(self) -> float:
        """Seconds since its last sign of life."""

    @property
    def is_synced(self) -> bool:
        """Whether all of it has been seen once."""

    @property
    def trouble(self) -> str:
        """What is in its way, in words; empty when nothing is."""


class Vitals:
    """The signs of life of one process.

    - A stream is dead when it was stale (75 s old) at four looks in a row, ten seconds apart, while a plain question was
      answered at each; shorter where `silence_s` is.
    - A pass that has been running for more than two minutes is stuck.
    - Ready is who has seen everything once and can follow it; an API that does not answer makes nobody dead.
    - A stream that nobody needs, because its kind is not served, keeps nobody from being ready and makes nobody dead.
    - Every check says what it looks at and how old that is.
    """

    def __init__(
        self,
        *,
        streams: Mapping[str, Stream],
        is_answered: Callable[[], Awaitable[bool]],
        oldest_pass_s: Callable[[], float],
        waiting: Callable[[], int],
        silence_s: float = 60.0,
        also_alive: Mapping[str, Check] | None = None,
        also_ready: Mapping[str, Check] | None = None,
        is_needed: Callable[[str], bool] = lambda _stream: True,
    ) -> None:
        """`is_needed` says of a stream whether anybody follows it now: of others nothing is asked."""
        self._is_needed = is_needed
        self._streams = streams
        self._is_answered = is_answered
        self._oldest_pass_s = oldest_pass_s
        self._waiting = waiting
        self._silence_s = silence_s
        self._also_alive = also_alive or {}
        self._also_ready = also_ready or {}
        self._is_api_away = False
        self._stale_looks: dict[str, int] = dict.fromkeys(streams, 0)

    async def run(self) -> None:
        """Look every ten seconds, or as often in a shorter silence."""
        while True:
            await asyncio.sleep(self._silence_s / LOOKS_PER_SILENCE)
            await self.look()

    async def look(self) -> None:
        """One look; asks the plain question only when a stream is stale."""
        allowed_s = STALE * self._silence_s
        stale = {name for name, stream in self._streams.items() if stream.age_s > allowed_s and self._is_needed(name)}
        is_answered = await self._is_answered() if stale else True
        self._is_api_away = not is_answered
        for name in self._stale_looks:
            self._stale_looks[name] = self._stale_looks[name] + 1 if name in stale and is_answered else 0

    def liveness(self) -> Mapping[str, Check]:
        """Checks for `/healthz`."""
        streams = {f"stream-{name}": self._alive(name) for name in self._streams}
        return {**streams, "queue": self._queue_check, **self._also_alive}

    def readiness(self) -> Mapping[str, Check]:
        """Checks for `/readyz`."""
        streams = {f"stream-{name}": self._followed(name) for name in self._streams}
        api: Mapping[str, Check] = {
            "api": lambda: (not self._is_api_away, "does not answer" if self._is_api_away else "answers")
        }
        return {**streams, **api, "queue": lambda: (True, self._queue_words()), **self._also_ready}

    def _alive(self, name: str) -> Check:
        return lambda: (
            self._stale_looks[name] < LOOKS_UNTIL_DEAD,
            f"last heard of {self._streams[name].age_s:.0f} s ago",
        )

    def _followed(self, name: str) -> Check:
        def check() -> tuple[bool, str]:
            stream = self._streams[name]
            words = stream.trouble or ("listed" if stream.is_synced else "still listing")
            if not self._is_needed(name):
                return True, f"not needed: {stream.trouble or 'its kind is not served'}"
            return stream.is_synced and not stream.trouble, f"{words}, last heard of {stream.age_s:.0f} s ago"

        return check

    def _queue_check(self) -> tuple[bool, str]:
        return self._oldest_pass_s() <= STUCK_S, self._queue_words()

    def _queue_words(self) -> str:
        return f"{self._waiting()} keys wait, oldest pass running for {max(0.0, self._oldest_pass_s()):.1f} s"
