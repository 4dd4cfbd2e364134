"""Work queue of keys with delays and backoff.

Keys are added at once, after a delay, or with backoff; workers take them one at a time. A key is queued at most once,
is held by at most one worker, and is queued again if it was added while being processed. Delays have no jitter. Bound
to one event loop; used by `controller/controller` (D4).
"""

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from raytide.runtime.backoff import backoff_s

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """FIFO queue of keys without duplicates.

    - A key that is added twice before it is taken is taken once.
    - At most one worker holds a key; a key added meanwhile is appended again after `done`.
    - Keys are taken in the order in which they became due: a frequently added key does not overtake others.
    - `put_after` keeps the earlier of two deadlines; taking a key cancels its deadline.
    - `put_backed_off` doubles the delay with every consecutive failure; `forget` resets it.
    - After `shut_down` no key is returned, and waiting workers get None.
    """

    def __init__(self) -> None:
        self._queue: deque[K] = deque()
        self._dirty: set[K] = set()
        self._processing: set[K] = set()
        self._delayed: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_shut_down = False

    def __len__(self) -> int:
        """Number of keys that are due and that no worker holds."""
        return len(self._queue)

    def put(self, key: K) -> None:
        """Enqueue the key now."""
        if self._is_shut_down or key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._processing:
            self._append(key)

    def put_after(self, key: K, delay_s: float) -> None:
        """Enqueue the key in `delay_s` seconds, unless it is enqueued earlier."""
        if delay_s <= 0:
            self.put(key)
            return
        if self._is_shut_down:
            return
        loop = asyncio.get_running_loop()
        due_at = loop.time() + delay_s
        pending = self._delayed.get(key)
        if pending is not None:
            if pending.when() <= due_at:
                return
            pending.cancel()
        self._delayed[key] = loop.call_at(due_at, self._fall_due, key)

    def put_backed_off(
        self, key: K, *, first_s: float = 0.2, longest_s: float = 30.0, at_least_s: float = 0.0
    ) -> float:
        """Enqueue the key after a delay that doubles with each consecutive failure; returns the delay in seconds."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay_s = max(at_least_s, backoff_s(failures, first_s=first_s, longest_s=longest_s))
        self.put_after(key, delay_s)
        return delay_s

    def succeeded(self, key: K) -> None:
        """Reset the failure count."""
        self._failures.pop(key, None)

    def forget(self, key: K) -> None:
        """Reset the failure count and cancel the deadline; a due key stays queued."""
        self.succeeded(key)
        self._cancel_later(key)

    async def get(self) -> K | None:
        """Take the next key, held by the caller until `done`; None when the queue is shut down."""
        while not self._queue and not self._is_shut_down:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._wake_one()  # woken but cancelled: wake the next waiter
                raise
        if self._is_shut_down:
            return None
        key = self._queue.popleft()
        self._dirty.discard(key)
        self._cancel_later(key)
        self._processing.add(key)
        return key

    def done(self, key: K) -> None:
        """Release the key; it is appended again if it was added meanwhile."""
        self._processing.discard(key)
        if key in self._dirty and not self._is_shut_down:
            self._append(key)

    def is_running(self, key: K) -> bool:
        """Whether a worker holds the key."""
        return key in self._processing

    def shut_down(self) -> None:
        """Return no more keys."""
        self._is_shut_down = True
        for timer in self._delayed.values():
            timer.cancel()
        self._delayed.clear()
        self._queue.clear()
        self._dirty.clear()
        while self._waiting:
            self._wake_one()

    def _append(self, key: K) -> None:
        self._queue.append(key)
        self._wake_one()

    def _wake_one(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _fall_due(self, key: K) -> None:
        del self._delayed[key]
        self.put(key)

    def _cancel_later(self, key: K) -> None:
        pending = self._delayed.pop(key, None)
        if pending is not None:
            pending.cancel()
