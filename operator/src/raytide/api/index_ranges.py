"""How is a set of indices written in a status?

Takes whole numbers and gives text as Kubernetes' Job writes `completedIndexes` ("0-3,5"), and back. Reading forgives
everything, because anybody may write a status: what is no range is skipped, and a range that nobody can mean is none.
Called by restarts.py and status.py.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import Final

MOST: Final = 100_000
"""More indices than this are nobody's."""


def ranges_text(indices: Iterable[int]) -> str:
    """`{0, 1, 2, 5}` as "0-2,5"."""
    parts = []
    for _, run in groupby(enumerate(sorted(set(indices))), key=lambda pair: pair[1] - pair[0]):
        found = [index for _, index in run]
        parts.append(str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}")
    return ",".join(parts)


def indices_in(text: object) -> frozenset[int]:
    """The indices that such a text names."""
    found: set[int] = set()
    left = MOST + 1
    for part in text.split(",") if isinstance(text, str) else ():
        first, _, last = part.partition("-")
        if part.isascii() and first.isdigit() and (last or first).isdigit() and len(part) <= 2 * len(str(MOST)):
            named = range(int(first), min(int(last or first), MOST, int(first) + left - 1) + 1)
            left -= max(1, len(named))
            found.update(named)
        if left <= 0:
            break
    return frozenset(found)
