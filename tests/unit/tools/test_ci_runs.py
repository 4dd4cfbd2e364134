"""`.ci/run` and `.ci/presubmit` with a `make` that only prints its target: what they run, and what is left when they end."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.deadlines import PATIENCE
from support.sandbox_process import can_isolate

SCRIPTS = Path(__file__).parents[3] / ".ci"
LANES = {"computing", "nodes", "planes", "programs"}
MAKE = """\
#!/bin/sh
echo "fake $*"
case $1 in
"$SLOW") sleep 60 ;;
"$LEAVING") setsid sleep 61 & ;;
"$ISOLATING") exec unshare --user --map-root-user --mount --net --pid --fork sh -c 'mount -t tmpfs none /mnt && sleep 62 & sleep 63' ;;
"$LATE") echo "a late test" >>"$RAYTIDE_RERUN_LOG" ;;
"$FAILING") exit 7 ;;
"$KILLED") kill -9 $PPID ;;
esac
"""


def name_of(pid: str, kind: str) -> str:
    """The identity of that namespace of a process; empty if it has ended."""
    with contextlib.suppress(OSError):
        return str(Path("/proc", pid, "ns", kind).readlink())
    return ""


def words_of(pid: str) -> list[str]:
    """The command line of a process; empty if it has ended."""
    with contextlib.suppress(OSError):
        return Path("/proc", pid, "cmdline").read_text().split("\0")[:-1]
    return []


@contextmanager
def running(folder: Path, script: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """The script in a copy of the repository with that `make`; its logs are removed when it ends."""
    shutil.copytree(SCRIPTS, folder / ".ci")
    (folder / "bin").mkdir()
    for name, text in (("make", MAKE), ("go", "#!/bin/sh\n"), ("chown", "#!/bin/sh\n"), ("setpriv", "#!/bin/sh\n")):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    temporary = folder / "tmp"
    temporary.mkdir()
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    environ = {"PATH": path, "TMPDIR": str(temporary), "RAYTIDE_SEED": "1", **environment}
    with subprocess.Popen(
        # What `nohup` or a shell without job control starts ignores some signals, and so do its children.
        ["env", "--default-signal=INT,TERM,HUP", "bash", str(folder / ".ci" / script)],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        yield process
    assert not list(temporary.iterdir()), "the logs of the lanes are removed"


def run(folder: Path, script: str = "presubmit", **environment: str) -> subprocess.CompletedProcess[str]:
    with running(folder, script, **environment) as process:
        output, _ = process.communicate(timeout=30 * PATIENCE)
    return subprocess.CompletedProcess(process.args, process.returncode, output)


@pytest.mark.parametrize("script", ["run", "presubmit"])
def test_each_level_runs_once_and_is_printed(tmp_path, script):
    done = run(tmp_path, script)
    assert done.returncode == 0
    levels = re.findall(
        r"^(?:    )?level (?:nice -n 19 )?make ([a-z0-9-]+)", (SCRIPTS / script).read_text(), re.MULTILINE
    )
    assert sorted(re.findall(r"^fake ([a-z0-9-]+)", done.stdout, re.MULTILINE)) == sorted(levels)
    took = r"^=== .*make .* took \d+ s, \d+ s \+ \d+ s of a processor$"
    assert len(re.findall(took, done.stdout, re.MULTILINE)) == len(levels)
    assert re.fullmatch(r"=== all levels took \d+ s", done.stdout.splitlines()[-1])


def test_presubmit_runs_what_each_commit_runs_and_more():
    commit, presubmit = (
        set(re.findall(r"level (?:nice -n 19 )?make ([a-z0-9-]+)", (SCRIPTS / script).read_text()))
        for script in ("run", "presubmit")
    )
    assert commit < presubmit
    assert len(presubmit) == 22


def test_each_lane_ends(tmp_path):
    done = run(tmp_path)
    ended = re.findall(r"^=== lane (\w+) ended with exit code 0 after \d+ s$", done.stdout, re.MULTILINE)
    assert set(ended) == LANES
    assert len(ended) == len(LANES)


@pytest.mark.parametrize("script", ["run", "presubmit"])
def test_the_run_ends_with_the_tests_that_passed_only_when_run_again(tmp_path, script):
    done = run(tmp_path, script, LATE="kube-suite")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-2] == "a late test"


def test_each_commits_first_level_that_fails_ends_the_run_with_its_code(tmp_path):
    done = run(tmp_path, "run", FAILING="kube-suite")
    assert done.returncode == 7
    assert "fake golden" not in done.stdout


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


@pytest.mark.parametrize(
    ("script", "failing"), [("presubmit", "test-ui"), ("presubmit", "acceptance"), ("presubmit", ""), ("run", "")]
)
def test_no_process_of_a_level_survives_the_run(tmp_path, script, failing):
    """Sandboxes and the processes of their pods are in sessions of their own."""
    done = run(tmp_path, script, LEAVING="kube-suite", FAILING=failing)
    assert done.returncode == (7 if failing else 0)
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize("script", ["run", "presubmit"])
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_interrupted_leaves_no_process_mount_or_namespace(tmp_path, script, sent):
    """Mounts of a level are in a namespace of its own, and namespaces end with their last process."""
    if not can_isolate("ns"):
        pytest.skip("this machine does not allow namespaces")
    with running(tmp_path, script, ISOLATING="kube-suite") as process:
        ends_at = time.monotonic() + 20 * PATIENCE
        # Not before the last process is there: the first one of a namespace ignores the signals that it does not handle yet,
        # and would then start what the signal has missed.
        while not (inside := [pid for pid in processes_of(tmp_path) if words_of(pid) == ["sleep", "63"]]):
            assert time.monotonic() < ends_at, "the level has namespaces of its own"
            time.sleep(0.05)
        isolated = {kind: name_of(inside[0], kind) for kind in ("mnt", "net", "pid")}
        assert all(isolated[kind] != name_of("self", kind) for kind in isolated)
        os.killpg(process.pid, sent)  # as the terminal does
        process.communicate(timeout=30 * PATIENCE)
    assert process.returncode in (-sent, 128 + sent)
    assert processes_of(tmp_path) == []
    ends_at = time.monotonic() + 10 * PATIENCE  # the kernel ends a namespace after its last process
    while left := [kind for kind, name in isolated.items() if name in names(kind)]:
        assert time.monotonic() < ends_at, f"namespaces are left: {left}"
        time.sleep(0.05)


def names(kind: str) -> set[str]:
    """The namespaces of that kind on this machine."""
    return {name_of(place.name, kind) for place in Path("/proc").glob("[0-9]*")}


def processes_of(folder: Path) -> list[str]:
    """Process ids that a run with logs in that folder has started, without the run itself."""
    mark = f"RAYTIDE_CI_RUN={folder}".encode()
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (place / "environ").read_bytes():
                found.append(place.name)
    return sorted(found, key=int)
