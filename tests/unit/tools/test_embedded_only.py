"""The list of integration tests without a real control plane names existing files and tests (FD:REL-7)."""

import re

import pytest

from integration.conftest import EMBEDDED_ONLY, HERE


@pytest.mark.rule("FD:REL-7")
@pytest.mark.parametrize("entry", EMBEDDED_ONLY)
def test_what_an_entry_names_exists(entry):
    texts = [path.read_text() for path in HERE.rglob("test_*.py")]
    assert (HERE / entry).is_file() or any(f"def {entry}" in text for text in texts)
    missing = [name for name in re.findall(r"[\w/]+\.py", EMBEDDED_ONLY[entry]) if not (HERE / name).is_file()]
    assert missing == []
