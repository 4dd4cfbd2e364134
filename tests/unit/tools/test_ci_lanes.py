"""`.ci/run` with a `make` that only prints its target: each level runs once, and a lane that fails ends the run."""

import contextlib
import os
import re
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / ".ci" / "run"
LANES = {"computing", "nodes", "planes", "programs"}
MAKE = """\
#!/bin/sh
echo "fake $*"
case $1 in
"$SLOW") sleep 60 ;;
"$LEAVING") setsid sleep 61 & ;;
"$FAILING") exit 7 ;;
"$KILLED") kill -9 $PPID ;;
esac
"""


def run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """What the script does in a copy of the repository with that `make`."""
    (folder / ".ci").mkdir()
    (folder / ".ci" / "run").write_text(SCRIPT.read_text())
    (folder / "bin").mkdir()
    for name, text in (("make", MAKE), ("go", "#!/bin/sh\n")):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    temporary = folder / "tmp"
    temporary.mkdir()
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    command = ["bash", str(folder / ".ci" / "run")]
    environ = {"PATH": path, "TMPDIR": str(temporary), "RAYTIDE_SEED": "1", **environment}
    done = subprocess.run(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30, check=False
    )
    assert not list(temporary.iterdir()), "the logs of the lanes are removed"
    return done


def test_each_level_of_each_lane_runs_once_and_is_printed(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 0
    levels = re.findall(r"^    level (?:nice -n 19 )?make ([a-z0-9-]+)", SCRIPT.read_text(), re.MULTILINE)
    assert len(levels) == 22
    levels += re.findall(r"^level make ([a-z0-9-]+)", SCRIPT.read_text(), re.MULTILINE)
    assert sorted(re.findall(r"^fake ([a-z0-9-]+)", done.stdout, re.MULTILINE)) == sorted(levels)
    took = r"^=== .*make .* took \d+ s, \d+ s \+ \d+ s of a processor$"
    assert len(re.findall(took, done.stdout, re.MULTILINE)) == len(levels)
    ended = re.findall(r"^=== lane (\w+) ended with exit code 0 after \d+ s$", done.stdout, re.MULTILINE)
    assert set(ended) == LANES
    assert len(ended) == len(LANES)
    assert re.fullmatch(r"=== all levels took \d+ s", done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("failing", "slow", "skipped"),
    [
        ("golden", "simulation", "acceptance"),
        ("test-ray", "simulation", "demo"),
        ("properties", "kube-suite", "acceptance"),
    ],
)
def test_the_first_lane_that_fails_ends_the_run_with_its_code(tmp_path, failing, slow, skipped):
    done = run(tmp_path, FAILING=failing, SLOW=slow)
    assert done.returncode == 7
    lines = done.stdout.splitlines()
    assert f"fake {failing}" in {" ".join(line.split()[:2]) for line in lines}
    assert re.fullmatch(r"=== lane \w+ ended with exit code 7 after \d+ s", lines[-1])
    assert f"fake {skipped}" not in done.stdout


def test_a_lane_that_is_killed_fails_the_run(tmp_path):
    done = run(tmp_path, KILLED="golden", SLOW="simulation")
    assert done.returncode == 137


def test_a_level_before_the_lanes_that_fails_ends_the_run(tmp_path):
    done = run(tmp_path, FAILING="lint", SLOW="simulation")
    assert done.returncode == 7
    assert "lane planes" not in done.stdout
    assert "fake kube-suite" not in done.stdout


@pytest.mark.parametrize("failing", ["test-paddle", "acceptance", "none"])
def test_no_process_of_a_lane_survives_the_run(tmp_path, failing):
    """Sandboxes and the processes of their pods are in sessions of their own."""
    done = run(tmp_path, LEAVING="test-ray", FAILING=failing)
    assert done.returncode == (0 if failing == "none" else 7)
    assert f"fake {failing if failing != 'none' else 'acceptance'}" in done.stdout
    mark = f"RAYTIDE_CI_RUN={tmp_path}".encode()
    left = [place for place in Path("/proc").glob("[0-9]*") if is_marked(place, mark)]
    assert left == []


def is_marked(process: Path, mark: bytes) -> bool:
    """Whether it was started by a run whose logs were in that folder."""
    with contextlib.suppress(OSError):
        return mark in (process / "environ").read_bytes()
    return False
