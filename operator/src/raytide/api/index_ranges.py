"""Text form of a set of indices, as in `completedIndexes` of a Kubernetes Job.

Converts integers to text such as "0-3,5", and back. Parsing is lenient, because any client may write a status: invalid
parts are skipped, and ranges are cut at `MOST`. Used by status.py, restart_policy.py and fairshare/eligibility.py.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import Final

MOST: Final = 100_000
"""The largest index that is read, and a bound on how many are."""


def ranges_text(indices: Iterable[int]) -> str:
    """`{0, 1, 2, 5}` as "0-2,5"."""
    parts = []
    for _, run in groupby(enumerate(sorted(set(indices))), key=lambda pair: pair[1] - pair[0]):
        found = [index for _, index in run]
        parts.append(str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}")
    return ",".join(parts)


def indices_in(text: object) -> frozenset[int]:
    """The indices in such a text; empty when it is not a string."""
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
