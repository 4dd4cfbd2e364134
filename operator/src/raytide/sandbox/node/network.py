"""Which address does the next pod get?

Keeps the numbers of one node's pods: each pod has the smallest free number, and its address follows from it. A number
may be given again once its pod is gone, but not before all others were tried where there is room, so that a late packet
or a cached name finds nobody rather than somebody else. Pure; owned by engine.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from raytide.sandbox.node.runtime import RuntimeTrouble

NODE_NUMBER: Final = 1


@dataclass(slots=True)
class Addresses:
    """Pods 2 … `most` of one network; number 1 is the node."""

    prefix: str
    """The first two bytes, e.g. `10.88`."""
    most: int
    is_reused_first: bool = False
    """Whether low numbers matter more than fresh ones."""
    _taken: set[int] = field(default_factory=set)
    _last: int = NODE_NUMBER

    def address(self, number: int) -> str:
        """The address of pod `number`."""
        return f"{self.prefix}.{number >> 8}.{number & 0xFF}"

    def take(self, is_free: Callable[[int], bool] = lambda _: True) -> int:
        """A free number that `is_free` too; raises RuntimeTrouble when there is none."""
        begin = NODE_NUMBER if self.is_reused_first else self._last
        for step in range(1, self.most):
            number = (begin - NODE_NUMBER + step - 1) % (self.most - 1) + NODE_NUMBER + 1
            if number not in self._taken and is_free(number):
                self._taken.add(number)
                self._last = number
                return number
        raise RuntimeTrouble(f"no address is free: {len(self._taken)} pods have one")

    def release(self, number: int) -> None:
        """The pod of that number is gone."""
        self._taken.discard(number)
