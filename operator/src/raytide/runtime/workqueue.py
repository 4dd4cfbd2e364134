"""Which key should be worked on next?

Keys go in, at once, later or backed off; workers take them out one at a time. It never holds a key twice, never gives a
key to two workers, never forgets one that was put while it was being worked on, and knows no chance. Lives in one event
loop; used by `runtime/controller` (D4).
"""

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from raytide.runtime.backoff import backoff_s

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Keys that need work.

    - A key that is put twice before it is taken is taken once.
    - A key is with one worker at most; put meanwhile, it comes again after `done`, behind the others.
    - Keys are taken in the order they became due: a key that keeps coming never passes another.
    - `put_after` keeps the earlier of two deadlines; taking a key cancels its deadline, because the pass sees it all.
    - `put_backed_off` doubles the delay with every failure in a row; `forget` starts anew.
    - After `shut_down` nothing is given out any more, and waiting workers get None.
    """

    def __init__(self) -> None:
        self._ready: deque[K] = deque()
        self._wanted: set[K] = set()
        self._running: set[K] = set()
        self._later: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_shut_down = False

    def __len__(self) -> int:
        """How many keys are due now and not with a worker."""
        return len(self._ready)

    def put(self, key: K) -> None:
        """Work on it as soon as a worker is free."""
        if self._is_shut_down or key in self._wanted:
            return
        self._wanted.add(key)
        if key not in self._running:
            self._append(key)

    def put_after(self, key: K, delay_s: float) -> None:
        """Work on it in `delay_s` seconds, unless it is put earlier."""
        if delay_s <= 0:
            self.put(key)
            return
        if self._is_shut_down:
            return
        loop = asyncio.get_running_loop()
        due_at = loop.time() + delay_s
        pending = self._later.get(key)
        if pending is not None:
            if pending.when() <= due_at:
                return
            pending.cancel()
        self._later[key] = loop.call_at(due_at, self._fall_due, key)

    def put_backed_off(
        self, key: K, *, first_s: float = 0.2, longest_s: float = 30.0, at_least_s: float = 0.0
    ) -> float:
        """Work on it after a delay that doubles with each failure in a row; returns the delay."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay_s = max(at_least_s, backoff_s(failures, first_s=first_s, longest_s=longest_s))
        self.put_after(key, delay_s)
        return delay_s

    def succeeded(self, key: K) -> None:
        """Its failures are history."""
        self._failures.pop(key, None)

    def forget(self, key: K) -> None:
        """Drop its failures and its deadline; the key itself stays if it is due."""
        self.succeeded(key)
        self._cancel_later(key)

    async def get(self) -> K | None:
        """The next key, which is the caller's until `done`; None when the queue is shut down."""
        while not self._ready and not self._is_shut_down:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._wake_one()  # we were called and cannot come: call the next
                raise
        if self._is_shut_down:
            return None
        key = self._ready.popleft()
        self._wanted.discard(key)
        self._cancel_later(key)
        self._running.add(key)
        return key

    def done(self, key: K) -> None:
        """Give the key back; put meanwhile, it queues up again."""
        self._running.discard(key)
        if key in self._wanted and not self._is_shut_down:
            self._append(key)

    def is_running(self, key: K) -> bool:
        """True while a worker has it."""
        return key in self._running

    def shut_down(self) -> None:
        """Give out nothing any more."""
        self._is_shut_down = True
        for timer in self._later.values():
            timer.cancel()
        self._later.clear()
        self._ready.clear()
        self._wanted.clear()
        while self._waiting:
            self._wake_one()

    def _append(self, key: K) -> None:
        self._ready.append(key)
        self._wake_one()

    def _wake_one(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _fall_due(self, key: K) -> None:
        del self._later[key]
        self.put(key)

    def _cancel_later(self, key: K) -> None:
        pending = self._later.pop(key, None)
        if pending is not None:
            pending.cancel()
