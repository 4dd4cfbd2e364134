"""docs/contributing/where.md: each file that it links to has the names that follow the link."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/contributing/where.md"
LINK = re.compile(r"\[`[^`]+`\]\((?P<target>[^)]+)\)(?:: (?P<names>`[^`]+`(?:, `[^`]+`)*))?")
ROWS = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")][1:]


def test_there_are_twelve_changes():
    assert len(ROWS) == 12


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip("| "))
def test_the_files_have_the_names(row):
    links = [(PAGE.parent / found["target"], found["names"] or "") for cell in row for found in LINK.finditer(cell)]
    assert len(links) >= 2
    assert [
        (file.name, name)
        for file, names in links
        for name in re.findall(r"`([^`]+)`", names)
        if name not in file.read_text()
    ] == []
