"""Broken links of the documentation are found, and valid ones are accepted.

Small pages in a temporary folder, and what `tools/checks/links.py` says about them.
"""

from pathlib import Path

import pytest

from links import anchors, broken_links


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A page to link from, and one to link to."""
    (tmp_path / "there.md").write_text("# Title\n\n## What it exposes\n\n```text\n# not a heading\n```\n")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        pytest.param("[a](there.md)", [], id="a file that is there is fine"),
        pytest.param("[a](gone.md)", ["gone.md: no such file"], id="a missing file is reported"),
        pytest.param("[a](there.md#what-it-exposes)", [], id="a heading that is there is fine"),
        pytest.param(
            "[a](there.md#gone)", ["there.md#gone: no such heading or anchor"], id="a missing heading is reported"
        ),
        pytest.param(
            "[a](there.md#not-a-heading)",
            ["there.md#not-a-heading: no such heading or anchor"],
            id="code has no headings",
        ),
        pytest.param(
            "# Here\n[a](#here) [b](#gone)",
            ["#gone: no such heading or anchor"],
            id="headings of the page itself count",
        ),
        pytest.param("[a](https://example.com/x) [b](mailto:a@example.com)", [], id="no network request is sent"),
        pytest.param("`[a](gone.md)`\n\n```text\n[a](gone.md)\n```\n", [], id="code has no links"),
        pytest.param(
            "[a](gone.md) [b](lost.md)", ["gone.md: no such file", "lost.md: no such file"], id="all are reported"
        ),
    ],
)
def test_links(folder: Path, text: str, faults: list[str]) -> None:
    page = folder / "page.md"
    page.write_text(text)
    assert list(broken_links(page)) == faults


def test_an_explicit_anchor_counts():
    assert anchors('- <a id="RC-POD-13"></a>**RC:POD-13** text') == {"RC-POD-13"}


def test_anchors_of_equal_headings_are_numbered_and_have_no_punctuation() -> None:
    assert anchors("# Why is it not scaling?\n## `up` and down\n## `up` and down\n") == {
        "why-is-it-not-scaling",
        "up-and-down",
        "up-and-down-1",
    }
