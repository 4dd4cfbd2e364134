"""Aligned columns, and text that is safe to print.

Used by the commands that print tables. Names and messages come from objects that other users write: `printable` replaces what
a terminal would act upon.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

_UNSAFE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Unicode categories of control, format and surrogate characters: escape codes, changes of direction, line breaks."""


def columns(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Left-aligned columns as in kubectl; the last column has no fixed width."""
    lines = [tuple(titles), *(tuple(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(titles) - 1)]
    return "\n".join(
        "   ".join([*(text.ljust(width) for text, width in zip(line, widths, strict=False)), line[-1]]).rstrip()
        for line in lines
    )


def printable(text: str) -> str:
    """The text with control and format characters as escapes; line breaks and tabs become spaces."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_printable, text))


def _printable(character: str) -> str:
    if character in "\n\r\t":
        return " "
    if unicodedata.category(character) not in _UNSAFE:
        return character
    return character.encode("unicode_escape").decode("ascii")
