"""Health checks: liveness and readiness of a process.

Takes the streams and queues of a process and a probe request to the API server; returns the checks of both endpoints. A
stream that is stale while the probe is answered is dead, and a restart helps; if the API server does not answer, a
restart would make it worse (D9). Wired in manager/main.py.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from raytide.runtime.http_endpoints import Check

STALE: Final = 1.25
"""Tolerance: a healthy stream is active at least once per allowed silence; it is stale after this multiple of it."""
STUCK_S: Final = 120.0
PROBES_PER_SILENCE: Final = 6
STALE_PROBES_UNTIL_DEAD: Final = 4
"""A stream may back off for 10 s after an outage and then has to list; liveness fails at most 120 s later (SC:S18)."""


class Stream(Protocol):
    """A watched collection."""

    @property
    def age_s(self) -> float:
        """Seconds since its last activity."""

    @property
    def is_synced(self) -> bool:
        """Whether it has been listed once."""

    @property
    def error(self) -> str:
        """Error that prevents listing or watching; empty when there is none."""


class HealthChecker:
    """Health of one process.

    - A stream is dead when it was stale (75 s old) in four consecutive looks, ten seconds apart, while the probe
      request was answered each time; proportionally sooner with a shorter `silence_s`.
    - A pass that has been running for more than two minutes is stuck.
    - The process is ready when every stream is synced and watched; an unanswered API server fails no liveness check.
    - A stream of a kind that is not served is not needed: it affects neither readiness nor liveness.
    - Every check reports what it covers and its age.
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
        """`is_needed` returns whether a stream is in use now; other streams are not checked."""
        self._is_needed = is_needed
        self._streams = streams
        self._is_answered = is_answered
        self._oldest_pass_s = oldest_pass_s
        self._waiting = waiting
        self._silence_s = silence_s
        self._also_alive = also_alive or {}
        self._also_ready = also_ready or {}
        self._is_api_away = False
        self._stale_probes: dict[str, int] = dict.fromkeys(streams, 0)

    async def run(self) -> None:
        """Look every ten seconds, more often with a shorter `silence_s`."""
        while True:
            await asyncio.sleep(self._silence_s / PROBES_PER_SILENCE)
            await self.probe()

    async def probe(self) -> None:
        """One look; sends the probe request only when a stream is stale."""
        allowed_s = STALE * self._silence_s
        stale = {name for name, stream in self._streams.items() if stream.age_s > allowed_s and self._is_needed(name)}
        is_answered = await self._is_answered() if stale else True
        self._is_api_away = not is_answered
        for name in self._stale_probes:
            self._stale_probes[name] = self._stale_probes[name] + 1 if name in stale and is_answered else 0

    def liveness(self) -> Mapping[str, Check]:
        """Checks for `/healthz`."""
        streams = {f"stream-{name}": self._alive(name) for name in self._streams}
        return {**streams, "queue": self._queue_check, **self._also_alive}

    def readiness(self) -> Mapping[str, Check]:
        """Checks for `/readyz`."""
        streams = {f"stream-{name}": self._followed(name) for name in self._streams}
        api: Mapping[str, Check] = {
            "api": lambda: (not self._is_api_away, "does not respond" if self._is_api_away else "answers")
        }
        return {**streams, **api, "queue": lambda: (True, self._queue_text()), **self._also_ready}

    def _alive(self, name: str) -> Check:
        return lambda: (
            self._stale_probes[name] < STALE_PROBES_UNTIL_DEAD,
            f"last activity {self._streams[name].age_s:.0f} s ago",
        )

    def _followed(self, name: str) -> Check:
        def check() -> tuple[bool, str]:
            stream = self._streams[name]
            text = stream.error or ("listed" if stream.is_synced else "still listing")
            if not self._is_needed(name):
                return True, f"not needed: {stream.error or 'its kind is not served'}"
            return stream.is_synced and not stream.error, f"{text}, last activity {stream.age_s:.0f} s ago"

        return check

    def _queue_check(self) -> tuple[bool, str]:
        return self._oldest_pass_s() <= STUCK_S, self._queue_text()

    def _queue_text(self) -> str:
        return f"{self._waiting()} keys queued, oldest pass running for {max(0.0, self._oldest_pass_s()):.1f} s"
