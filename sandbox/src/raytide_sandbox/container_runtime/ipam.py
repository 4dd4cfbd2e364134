"""Address allocation for the pods of one node.

Each pod has a number, and its address follows from it. Free numbers are assigned in turn, so that a released number is
reused as late as possible and a late packet or a cached name does not reach another pod; with `is_reused_first` the
smallest free number is assigned instead. No I/O; owned by process_runtime.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from raytide_sandbox.container_runtime.interface import ContainerRuntimeError

NODE_NUMBER: Final = 1


@dataclass(slots=True)
class Addresses:
    """Numbers 2 … `most` of one network for pods; number 1 is the node."""

    prefix: str
    """The first two bytes, e.g. `10.88`."""
    most: int
    is_reused_first: bool = False
    """Whether the smallest free number is assigned instead of the next one."""
    _taken: set[int] = field(default_factory=set)
    _last: int = NODE_NUMBER

    def address(self, number: int) -> str:
        """The address of pod `number`."""
        return f"{self.prefix}.{number >> 8}.{number & 0xFF}"

    def take(self, is_free: Callable[[int], bool] = lambda _: True) -> int:
        """Assign a free number that `is_free` accepts; raises ContainerRuntimeError when there is none."""
        begin = NODE_NUMBER if self.is_reused_first else self._last
        for step in range(1, self.most):
            number = (begin - NODE_NUMBER + step - 1) % (self.most - 1) + NODE_NUMBER + 1
            if number not in self._taken and is_free(number):
                self._taken.add(number)
                self._last = number
                return number
        raise ContainerRuntimeError(f"no address is free: {len(self._taken)} pods have one")

    def release(self, number: int) -> None:
        """Release the number of a pod that is gone."""
        self._taken.discard(number)
