"""Escaped text is one line, hides nothing and is escaped already; its length in bytes is bounded."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raytide.api.printable import escaped, escaped_within

pytestmark = pytest.mark.rule("FD:SEC3-6", "FD:SEC3-7")

ANY_TEXT = st.text(st.characters(), max_size=80)
"""With surrogates."""
CONTROL = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", "", id="nothing"),
        pytest.param("group cpu: 2 of 4", "group cpu: 2 of 4", id="plain text"),
        pytest.param(
            "né → 日本\u3000東京 ≤ 3\u00a0GiB",
            "né → 日本\u3000東京 ≤ 3\u00a0GiB",
            id="letters, signs and spaces of all scripts",
        ),
        pytest.param(r"C:\n", r"C:\n", id="a backslash"),
        pytest.param("a\r\n\tb", r"a\r\n\tb", id="line breaks and tabs"),
        pytest.param("\x1b[2J\x9b\x7f\x00", r"\x1b[2J\x9b\x7f\x00", id="commands to a terminal"),
        pytest.param("\u202a\u202b\u202c\u202d\u202e", r"\u202a\u202b\u202c\u202d\u202e", id="changes of direction"),
        pytest.param("\u2066\u2067\u2068\u2069", r"\u2066\u2067\u2068\u2069", id="isolated directions"),
        pytest.param("\u2028\u2029\x85", r"\u2028\u2029\x85", id="separators of lines"),
        pytest.param("a\u200bb\u2060c\ufeff", r"a\u200bb\u2060c\ufeff", id="characters without width"),
        pytest.param(
            "\u3164\u115f\u034f\ufe0f", r"\u3164\u115f\u034f\ufe0f", id="letters and marks that are not shown"
        ),
        pytest.param("\U000e0041\U000e0101", r"\U000e0041\U000e0101", id="tags"),
        pytest.param("\ud800", r"\ud800", id="half a surrogate pair"),
        pytest.param("\ue000\U0010ffff\u0378", r"\ue000\U0010ffff\u0378", id="private and unassigned characters"),
    ],
)
def test_escapes(text, expected):
    assert escaped(text) == expected


def test_no_character_of_unicode_is_missed():
    found = escaped("".join(map(chr, range(sys.maxunicode + 1))))
    assert not CONTROL & set(map(unicodedata.category, found))


@given(ANY_TEXT)
def test_escaped_text_is_one_line_and_escaped_already(text):
    found = escaped(text)
    assert found.splitlines() == ([found] if found else [])
    assert escaped(found) == found


@given(ANY_TEXT, st.integers(3, 60))
def test_the_bytes_are_bounded_after_escaping(text, most):
    found = escaped_within(text, most)
    assert len(found.encode()) <= most
    assert found == escaped(text) or (found.endswith("…") and escaped(text).startswith(found[:-1]))
