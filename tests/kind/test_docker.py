"""A Docker daemon in namespaces of this machine: it runs privileged containers, one signal ends it, and nothing of it is left.

Packages, programs and images are those of the cache folder; containers are of the pause image, so that a start takes a second.
The cluster itself is the subject of `make e2e ON=kind`.
"""

import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

import kind_docker
import node
import node_traces

pytestmark = pytest.mark.kind
SYS_ADMIN = 1 << 21
PAUSE = "localhost/raytide-pause:1"


@pytest.fixture
def own():
    folder = tempfile.mkdtemp(prefix="k-")  # the path of a socket is short
    yield kind_docker.prepare_own((), state=Path(folder, "state"))
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def machine_stays_as_it_is(own):
    """The proof: the machine looks after each test as it did before."""
    settings = own.settings
    before = node_traces.snapshot(str(settings.state), settings.packages)
    yield
    assert node_traces.traces(before, node_traces.snapshot(str(settings.state), settings.packages)) == []
    assert not settings.work.exists()


def run(docker, *words):
    done = docker.run(docker.docker, *words, deadline_s=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def run_container(own, running):
    """A privileged container, as kind starts its nodes; its process id in the daemon's namespaces."""
    docker = own.reached_by(running)
    docker.load(own.settings.kept_images[0])
    run(docker, "run", "--detach", "--privileged", "--name", "node", PAUSE)
    return run(docker, "inspect", "--format", "{{.State.Running}}", "node")


def test_sigkill_of_its_first_process_ends_a_daemon_and_its_containers(own):
    daemon = node.Node(own.settings)
    running = daemon.start()
    assert run_container(own, running) == "true"
    os.kill(running.first_pid, signal.SIGKILL)
    daemon.end()


def test_a_killed_keeper_ends_a_daemon_and_cleaning_removes_the_rest(own):
    daemon = node.Node(own.settings)
    running = daemon.start()
    assert run_container(own, running) == "true"
    os.kill(running.keeper_pid, signal.SIGKILL)
    daemon.end()
    assert node.clean(own.settings.state) == "what an earlier node left is removed"


def test_a_privileged_container_has_no_capability_that_the_daemon_lacks(own):
    with node.Node(own.settings) as running:
        docker = own.reached_by(running)
        run_container(own, running)
        pid = int(run(docker, "inspect", "--format", "{{.State.Pid}}", "node"))
        inside = f"/proc/{running.first_pid}/root/proc/{pid}/status"
        given, ours = bounding(Path(inside)), bounding(Path("/proc/self/status"))
    assert given & ours == given
    assert given & SYS_ADMIN


def bounding(status):
    return next(int(line.split()[1], 16) for line in status.read_text().splitlines() if line.startswith("CapBnd:"))
