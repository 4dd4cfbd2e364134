"""Tests that failed are run once more, alone, and reported; in the levels that wait for real processes, and in no other."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from support import rerun_failed

ROOT = Path(__file__).parents[3]
TESTS = """
import os
import pathlib
import pytest

HERE = pathlib.Path(__file__).parent

def passes_when_run_again(name):
    mark = HERE / name
    is_first = not mark.exists()
    mark.touch()
    print("the", "first" if is_first else "second", "output of", name)
    assert not is_first, f"{name} was late"

@pytest.mark.parametrize("case", ["a [sentence]::with signs"])
def test_late(case):
    passes_when_run_again("late")

@pytest.fixture
def late():
    passes_when_run_again("fixture")

def test_of_a_late_fixture(late): pass

def test_on_time():
    mark = HERE / "on-time"
    assert not mark.exists(), "what has passed is not run again"
    mark.touch()

@pytest.mark.skipif("WRONG" not in os.environ, reason="not asked for")
def test_wrong():
    raise AssertionError

@pytest.mark.skipif("MANY" not in os.environ, reason="not asked for")
@pytest.mark.parametrize("number", range(2))
def test_of_many(number):
    passes_when_run_again(f"many-{number}")
"""

HANGS_WHEN_RUN_AGAIN = """
import pathlib
import subprocess

def test_it():
    mark = pathlib.Path(__file__).with_name("mark")
    if mark.exists():
        subprocess.run(["sleep", "314159"])
    mark.touch()
    raise AssertionError
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "test_some.py").write_text(TESTS)
    return tmp_path


def run(folder, *options, **environ):
    """As a level does, with the conftest of the suite, from outside of it."""
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", folder, "-p", "conftest"]
    options = ["-o", f"cache_dir={folder / 'cache'}", "--confcutdir", folder, "--rerun-failed", "3", *options]
    paths = [ROOT / path for path in ("tests", "operator/src", "sandbox/src", "tools/checks")]
    environ |= {"PYTHONPATH": os.pathsep.join(map(str, paths)), "RAYTIDE_RERUN_LOG": str(folder / "log")}
    command = [*command, *options, folder]
    done = subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, check=False)
    log = folder / "log"
    return done.returncode, done.stdout + done.stderr, log.read_text() if log.exists() else ""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("--numprocesses", "2")], ids=["one process", "two workers"])
def test_what_passes_when_it_is_run_again_alone_is_green_and_reported_with_both_outputs(folder, workers):
    code, output, log = run(folder, "--at-least", "3", *workers)
    assert code == 0, output
    assert output.splitlines()[-3:] == [
        "=== passed only when run again, to be mended:",
        "  test_some.py::test_late[a [sentence]::with signs]",
        "  test_some.py::test_of_a_late_fixture",
    ]
    for name in ("late", "fixture"):
        for expected in (f"{name} was late", f"the first output of {name}", f"the second output of {name}"):
            assert expected in log


@pytest.mark.slow
def test_what_fails_twice_is_red(folder):
    code, output, log = run(folder, WRONG="1")
    assert (code, log) == (1, "")
    assert "1 failed, 2 passed" in output


@pytest.mark.slow
def test_more_failures_than_the_limit_are_red_at_once(folder):
    code, output, log = run(folder, MANY="1")
    assert (code, log) == (1, "")
    assert "run again" not in output


@pytest.mark.slow
def test_too_few_tests_stay_red(folder):
    code, output, _ = run(folder, "--at-least", "4")
    assert code == 1, output


def test_a_second_run_that_hangs_is_ended_with_its_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(rerun_failed, "ENDS_WITHIN_S", 3.0 / rerun_failed.PATIENCE)
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n    for name in ('--rerun-failed', '--at-least'): parser.addoption(name)\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_some.py").write_text(HANGS_WHEN_RUN_AGAIN)
    subprocess.run([sys.executable, "-m", "pytest"], cwd=tmp_path, capture_output=True, check=False)
    params = SimpleNamespace(args=(), dir=tmp_path)
    plugins = SimpleNamespace(has_plugin=lambda _: True)
    config = SimpleNamespace(invocation_params=params, pluginmanager=plugins)
    rerun = rerun_failed.RerunFailed(config, 3, is_complete=lambda: True)
    rerun.pytest_runtest_logreport(
        SimpleNamespace(failed=True, when="call", longreprtext="late", sections=[], nodeid="test_some.py::test_it")
    )
    began = time.monotonic()
    assert rerun.final_code(pytest.ExitCode.TESTS_FAILED) == -signal.SIGKILL
    assert time.monotonic() - began < 30 * rerun_failed.PATIENCE
    assert subprocess.run(["pgrep", "-f", "^sleep 314159$"], check=False, capture_output=True).returncode == 1


def test_only_levels_that_wait_for_real_processes_run_tests_again():
    lines = [line for line in (ROOT / "Makefile").read_text().splitlines() if "--at-least" in line]
    marks = {line: (re.findall(r'-m (?:"([^"]+)"|(\w+))', line) or [("", "no mark")])[0] for line in lines}
    again = {"".join(mark) for line, mark in marks.items() if "$(RERUN)" in line}
    processes = {"(ray or kubectl) and not kube", "ray and not kube", "paddle and not kube"}
    assert again == processes | {"browser", "kube", "node", "kind"}
    assert again.isdisjoint("".join(mark) for line, mark in marks.items() if "$(RERUN)" not in line)
