"""Which Python is used for the set-up, and the message if none fits. Scripts replace the interpreters."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "tools" / "builders" / "python.sh"
GOOD = f'exec {sys.executable} "$@"'
OLD = (
    f"""case "$2" in *version_info*) exit 1;; *platform*) echo "this is 3.8.1";; *) exec {sys.executable} "$@";; esac"""
)
BARE = f'case "$2" in *ensurepip*) exit 1;; esac; {GOOD}'
BROKEN_SHIM = "echo command not found >&2; exit 127"


@pytest.fixture
def choose(tmp_path):
    def run(*, wanted="python3", **programs):
        for name, body in programs.items():
            path = tmp_path / name.replace("_", ".")
            path.write_text(f"#!/bin/sh\n{body}\n")
            path.chmod(0o755)
        return subprocess.run(
            [shutil.which("sh"), SCRIPT, wanted],
            env={"PATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_python3_is_taken_when_it_will_do(choose):
    run = choose(python3=GOOD, python3_13=GOOD)
    assert (run.returncode, run.stdout, run.stderr) == (0, "python3\n", "")


@pytest.mark.parametrize("outdated", [OLD, BARE], ids=["python3 is too old", "python3 is without venv"])
def test_another_one_is_taken_and_reported(choose, outdated):
    run = choose(python3=outdated, python3_14=BROKEN_SHIM, python3_12=GOOD)
    assert (run.returncode, run.stdout) == (0, "python3.12\n")
    assert "using python3.12" in run.stderr


@pytest.mark.parametrize(
    ("programs", "expected"),
    [
        pytest.param(
            {}, ("3.11 to 3.14", "there is no python3", "apt install python3 python3-venv"), id="there is none"
        ),
        pytest.param({"python3": OLD}, ("3.11 to 3.14", "this is 3.8.1", "apt install"), id="the only one is too old"),
        pytest.param({"python3": BARE}, ("venv and pip", "-venv"), id="the only one is without venv"),
    ],
)
def test_what_to_install_is_one_line(choose, programs, expected):
    run = choose(**programs)
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (1, "", 1)
    assert [words for words in expected if words not in run.stderr] == []
