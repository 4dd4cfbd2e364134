"""A real node on this machine: one signal ends it, whichever process gets it, and nothing of it is left.

Each test has a folder of its own for the node; packages, programs and images are those of the cache folder. The pods are
of the pause image, so that a start takes six seconds.
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import e2e
import node
import node_traces
from raytide_sandbox.state_dir import start_ticks
from support.deadlines import PATIENCE

pytestmark = pytest.mark.node
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "waiting", "namespace": "default"},
    "spec": {
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "pause", "image": "localhost/raytide-pause:1", "imagePullPolicy": "Never"}],
    },
}
SUPERVISOR_CHECKS_S = 10


@pytest.fixture
def settings(tmp_path):
    return node.prepare(state=tmp_path / "state")


@pytest.fixture(autouse=True)
def machine_stays_as_it_is(settings):
    """The proof: the machine looks after each test as it did before."""
    before = node_traces.snapshot(str(settings.state), settings.packages)
    yield
    assert node_traces.traces(before, node_traces.snapshot(str(settings.state), settings.packages)) == []
    assert not settings.work.exists()


def kubectl(settings, running, *words, stdin=""):
    command = running.command(settings.kubectl, "--kubeconfig", running.kubeconfig, *words)
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, check=True, timeout=90 * PATIENCE
    ).stdout


def run_pod(settings, running):
    """A pod that is Ready, so that there are cgroups, mounts, rules and processes of containers."""
    kubectl(settings, running, "wait", "--for=create", "serviceaccount/default", f"--timeout={60 * PATIENCE:.0f}s")
    kubectl(settings, running, "create", "-f", "-", stdin=json.dumps(POD))
    kubectl(settings, running, "wait", "--for=condition=Ready", "pod/waiting", f"--timeout={60 * PATIENCE:.0f}s")


def wait_until(is_so, what, deadline_s=30):
    deadline = time.monotonic() + deadline_s * PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def is_gone(pid):
    return start_ticks(pid) is None


def test_sigkill_of_its_first_process_ends_a_node_and_leaves_nothing(settings):
    started = node.Node(settings)
    running = started.start()
    run_pod(settings, running)
    with pytest.raises(node.NodeError, match=f"another node runs in {settings.state}: end it with `make e2e DOWN=1`"):
        node.Node(settings).start()
    assert "Running" in kubectl(settings, running, "get", "pod", "waiting"), "a second start does the first no harm"
    os.kill(running.first_pid, signal.SIGKILL)
    wait_until(lambda: is_gone(running.keeper_pid), "the keeper cleans up and ends")
    started.end()


def test_a_killed_keeper_ends_a_node_and_cleaning_removes_the_rest(settings):
    started = node.Node(settings)
    running = started.start()
    run_pod(settings, running)
    os.kill(running.keeper_pid, signal.SIGKILL)
    wait_until(lambda: is_gone(running.first_pid), "the kernel ends the node")
    assert node.clean(settings.state) == "what an earlier node left is removed"
    assert node.clean(settings.state) == "there is no node"
    started.end()


def test_what_an_earlier_node_left_is_removed_before_the_machine_is_looked_at(settings):
    for folder in settings.cgroup_folders:
        (folder / settings.config.cgroup).mkdir()
    before = e2e.machine_before(settings)
    assert [line for line in before["cgroups"] if settings.config.cgroup in line] == []


STARTER = """
import sys
from pathlib import Path
import node, node_settings
running = node.Node(node_settings.NodeSettings.from_json(Path(sys.argv[1]).read_text())).start()
print(running.first_pid, running.keeper_pid, flush=True)
sys.stdin.read()
"""


def test_a_node_ends_with_the_program_that_started_it(settings, tmp_path):
    (tmp_path / "settings.json").write_text(settings.to_json())
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", STARTER, tmp_path / "settings.json"]
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as starter:
        pids = [int(word) for word in starter.stdout.readline().split()]
        starter.kill()
    wait_until(lambda: all(map(is_gone, pids)), "neither the node nor its keeper is left")


def test_a_kept_node_is_ended_by_cleaning(settings):
    kept = node.Node(replace(settings, is_tethered=False))
    running = kept.start()
    assert node.clean(settings.state) == "the node has ended"
    assert is_gone(running.first_pid)
    kept.end()


def test_a_node_ends_with_its_first_program_that_ends_and_logs_the_reason(settings):
    started = node.Node(settings)
    running = started.start()
    (kubelet,) = (
        path for path in Path("/proc").glob("[0-9]*") if _is_kubelet_of(path, running.first_pid)
    )  # fmt: skip
    os.kill(int(kubelet.name), signal.SIGKILL)
    wait_until(lambda: is_gone(running.keeper_pid), "the node ends", SUPERVISOR_CHECKS_S)
    started.end()
    assert "kubelet was ended by SIGKILL" in started.log.read_text()
    assert (settings.logs / "kubelet.log").stat().st_size > 0


def _is_kubelet_of(process, first_pid):
    try:
        is_kubelet = (process / "cmdline").read_bytes().split(bytes(1))[1:2] == [b"kubelet"]
        return is_kubelet and (process / "ns" / "net").readlink() == Path(f"/proc/{first_pid}/ns/net").readlink()
    except OSError:
        return False


# --- bad input ----------------------------------------------------------------------------------------------------------------
def test_an_invalid_image_is_reported_in_one_line(settings, tmp_path):
    archive = tmp_path / "image.tar"
    archive.write_bytes(b"no archive")
    with pytest.raises(node.NodeError, match=rf"image {archive} cannot be imported: .*") as error:
        node.Node(replace(settings, images=(archive,))).start()
    assert "\n" not in str(error.value)


FULL_DISK = 'mount -t tmpfs -o size=24m tmpfs "$1" && shift && exec "$@"'


def test_a_full_disk_is_reported_in_one_line(settings, tmp_path):
    settings.state.mkdir()
    (tmp_path / "settings.json").write_text(settings.to_json())
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    inside = ["sh", "-c", FULL_DISK, "sh", settings.state, sys.executable, "-c", STARTER, tmp_path / "settings.json"]
    done = subprocess.run(
        ["unshare", "--mount", *inside],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("node.NodeError"))
    assert f"the disk of {settings.state} has only" in line
    assert "MiB left: free up some GiB, or set XDG_CACHE_HOME" in line
