"""Aligned columns, and text that is safe to print.

Used by the commands that print tables. Names and messages come from objects that other users write: `printable` replaces what
a terminal would act upon.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from raytide.api.printable import escaped

_SPACES: Final = str.maketrans("\n\r\t", "   ")


def columns(titles: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """Left-aligned columns as in kubectl; the last column has no fixed width."""
    lines = [tuple(titles), *(tuple(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(titles) - 1)]
    return "\n".join(
        "   ".join([*(text.ljust(width) for text, width in zip(line, widths, strict=False)), line[-1]]).rstrip()
        for line in lines
    )


def printable(text: str) -> str:
    """The text with unsafe characters as escapes; line breaks and tabs become spaces."""
    return escaped(text.translate(_SPACES))
