"""Whose turn is it to send a request?

A fixed number of slots for the whole process, given to waiting keys in turn, so that a cluster of a thousand pods does
not make a cluster of one pod wait; and, per pass, a window that opens with success and closes with refusal. Neither
knows what is sent. Used by `kube/apply` (D7).
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager

WIDEST_WINDOW = 32
WIDEST_IN_A_CROWD = 8
"""While other keys are at work too: what one key has under way, everybody else's next request waits for at the API server."""


class FairSlots:
    """`count` slots, shared.

    - At most `count` holders at a time.
    - Waiting keys take turns: one slot each, however many requests one of them has waiting.
    - A waiter that is cancelled loses nothing for the others.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def hold(self, key: Hashable) -> AsyncIterator[None]:
        """Wait for a slot and keep it for the block."""
        await self._acquire(key)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, key: Hashable) -> None:
        if self._free > 0:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release()
            raise

    def _release(self) -> None:
        while self._waiting:
            key, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[key] = turns  # behind the other keys
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class Window:
    """How many requests of one pass may be under way.

    - It starts at `width` (1 for a new key) and doubles with every success up to 32.
    - It halves with every refusal, and never closes.
    - In a crowd only 8 are let in, however wide it is.
    """

    def __init__(self, width: int = 1, *, is_crowded: Callable[[], bool] = lambda: False) -> None:
        self.width = width
        self._is_crowded = is_crowded
        self._under_way = 0
        self._changed = asyncio.Event()

    async def enter(self) -> None:
        """Wait until there is room, then take it."""
        while self._under_way >= self._room():
            self._changed.clear()
            await self._changed.wait()
        self._under_way += 1

    def leave(self, *, is_success: bool) -> None:
        """Give the room back and learn."""
        self._under_way -= 1
        self.width = min(WIDEST_WINDOW, self.width * 2) if is_success else max(1, self.width // 2)
        self._changed.set()

    def withdraw(self) -> None:
        """Give the room back unused."""
        self._under_way -= 1
        self._changed.set()

    def _room(self) -> int:
        return min(self.width, WIDEST_IN_A_CROWD) if self._is_crowded() else self.width
