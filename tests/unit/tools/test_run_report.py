"""A run with too few tests fails, and figures of all processes are shown.

The suite's own conftest is asked, by a run of its own over tests that are written here.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TESTS = """
import pytest

def test_one(record_property):
    record_property("figure", "S0: 1.5 s")

def test_two(): pass

@pytest.mark.skip
def test_skipped(): pass
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "test_some.py").write_text(TESTS)
    return tmp_path


def run(folder, *options):
    """With the conftest of the suite, from outside of it."""
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", folder, "-p", "conftest"]
    options = ["-p", "no:cacheprovider", "--confcutdir", folder, *options]
    path = {"PYTHONPATH": f"{ROOT / 'tests'}:{ROOT / 'operator' / 'src'}:{ROOT / 'sandbox' / 'src'}"}
    return subprocess.run([*command, *options, folder], env=path, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("workers", [(), ("--numprocesses", "2")], ids=["one process", "two workers"])
def test_a_level_with_fewer_tests_than_its_minimum_fails(folder, workers):
    report = run(folder, "--at-least", "3", *workers)
    assert (report.returncode, "2 passed, 1 skipped" in report.stdout) == (1, True), report
    assert "2 tests ran to their end: this level has at least 3" in report.stdout
    assert "S0: 1.5 s\n" in report.stdout


def test_a_level_with_its_minimum_of_tests_passes(folder):
    report = run(folder, "--at-least", "2")
    assert (report.returncode, "at least" in report.stdout) == (0, False), report
