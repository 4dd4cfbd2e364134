"""Escaping of text from tenants, for logs, conditions, events and terminals.

Names, labels, versions, decision records and messages of other objects may contain any character. `escaped` replaces those
that end a line, command a terminal, reorder what is beside them or are invisible, so that text cannot pass for another line
or hide a part of itself. All other characters stay, so escaped text is escaped already; a backslash stays too, so the
result is for people and is not decoded. Used by both programs' logs, by conditions, events and Ray's status, and by the
commands (FD:SEC3-6, FD:SEC3-7).
"""

import re
import unicodedata
from typing import Final

_UNSAFE: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
"""Unicode categories: control, format, unassigned, private use, surrogate, and separators of lines and paragraphs."""
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks that are not shown (Default_Ignorable_Code_Point): fillers and variation selectors."""


def escaped(text: str) -> str:
    r"""The text in one line, with unsafe characters as escapes such as `\n`, `\x1b` and `\u202e`."""
    if text.isprintable() and (text.isascii() or not _INVISIBLE.search(text)):
        return text
    return "".join(map(_escaped, text))


def escaped_within(text: str, max_bytes: int) -> str:
    """The escaped text, cut to that many bytes of UTF-8 with an ellipsis."""
    encoded = escaped(text[: max_bytes + 1]).encode()  # each character takes at least a byte: further ones never fit
    return encoded.decode() if len(encoded) <= max_bytes else encoded[: max_bytes - 3].decode(errors="ignore") + "…"


def _escaped(character: str) -> str:
    if unicodedata.category(character) in _UNSAFE or _INVISIBLE.match(character):
        return character.encode("unicode_escape").decode("ascii")
    return character
