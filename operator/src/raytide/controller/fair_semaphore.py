"""Concurrency limits for writes: shared slots per process and a growing window per pass.

`FairSemaphore` shares a fixed number of slots round-robin among keys, so that a cluster of a thousand pods does not delay a
cluster of one pod. `Window` grows with success and shrinks with rejections. Both are independent of the requests. Used
by `controller/executor` (D7).
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager

WIDEST_WINDOW = 32
WIDEST_WHEN_CONTENDED = 8
"""Limit while other keys are being reconciled: requests of one key in flight delay those of all other keys."""


class FairSemaphore:
    """`count` slots shared by all keys.

    - At most `count` holders at a time.
    - Waiting keys take turns: one slot each, regardless of how many requests a key has waiting.
    - A cancelled waiter does not lose a slot.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def hold(self, key: Hashable) -> AsyncIterator[None]:
        """Acquire a slot for the duration of the block."""
        await self._acquire(key)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, key: Hashable) -> None:
        if self._free > 0:
            self._free -= 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._release()
            raise

    def _release(self) -> None:
        while self._waiting:
            key, waiters = self._waiting.popitem(last=False)
            waiter = waiters.popleft()
            if waiters:
                self._waiting[key] = waiters  # behind the other keys
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1


class Window:
    """Limit of the requests of one pass in flight.

    - It starts at `width` (1 for a new key) and doubles with every success up to 32.
    - It halves with every failure, down to 1.
    - While other keys are being reconciled at most 8 are in flight, regardless of the width.
    """

    def __init__(self, width: int = 1, *, is_contended: Callable[[], bool] = lambda: False) -> None:
        self.width = width
        self._is_contended = is_contended
        self._in_flight = 0
        self._changed = asyncio.Event()

    async def enter(self) -> None:
        """Wait until another write of the pass may be sent, and count it as in flight."""
        while self._in_flight >= self._limit():
            self._changed.clear()
            await self._changed.wait()
        self._in_flight += 1

    def leave(self, *, is_success: bool) -> None:
        """End a write that was answered, and adjust the width."""
        self._in_flight -= 1
        self.width = min(WIDEST_WINDOW, self.width * 2) if is_success else max(1, self.width // 2)
        self._changed.set()

    def withdraw(self) -> None:
        """End a write without a result; the width stays."""
        self._in_flight -= 1
        self._changed.set()

    def _limit(self) -> int:
        return min(self.width, WIDEST_WHEN_CONTENDED) if self._is_contended() else self.width
