"""When a start of the image counts, with small programs in the place of its containers."""

import os
import re
import signal
import sys
from dataclasses import dataclass

import pytest

import image_starts
from image_starts import Start, StartError, connect_once, problems, service_account, start_operator, start_sidecar

CONNECT = """\
import os, socket, sys
port = os.environ["KUBERNETES_SERVICE_PORT"] if sys.argv[1] == "operator" else sys.argv[-1].rpartition(":")[2]
connection = socket.create_connection(("127.0.0.1", int(port)))
connection.recv(1)
"""
WAIT = "import signal; signal.pause()"
FAIL = "import sys; sys.exit('Read-only file system: /tmp/x')"


@dataclass
class Programs:
    """Containers that run this Python code."""

    code: str
    end_signal: signal.Signals = signal.SIGKILL
    has_own_processes: bool = True

    def command(self, user, environ, *arguments):
        given = [f"{name}={value}" for name, value in environ.items()]
        return ["env", *given, f"CALLED_AS={user[0]}", sys.executable, "-c", self.code, *arguments]


@pytest.mark.parametrize("start", [start_operator, start_sidecar])
def test_a_start_ends_with_the_connection(start):
    burn = "import time\nwhile time.process_time() < 0.1: pass\n"  # clock ticks are 10 ms
    measured = start(Programs(burn + CONNECT), (1000, 100))
    assert measured.bar_s >= 0.09
    assert 0 < measured.took_s < image_starts.CONNECTS_WITHIN_S


def test_cpu_time_of_a_daemons_containers_is_unknown():
    measured = start_sidecar(Programs(CONNECT, has_own_processes=False), (1000, 100))
    assert measured.bar_s == measured.took_s


def test_cpu_time_has_that_of_descendants():
    burn = "import time\nwhile time.process_time() < 0.2: pass\n"
    nested = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn + CONNECT!r}, *sys.argv[1:]])"
    assert start_operator(Programs(nested), (1000, 100)).bar_s >= 0.19


def test_a_program_that_ends_is_quoted():
    with pytest.raises(StartError, match=r"(?s)raytide operator did not connect.*Read-only file system: /tmp/x$"):
        start_operator(Programs(FAIL), (1000, 100))


def test_a_program_that_ignores_sigterm_is_killed(monkeypatch):
    monkeypatch.setattr(image_starts, "ENDS_WITHIN_S", 0.1)
    code = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{CONNECT}signal.pause()"
    assert start_operator(Programs(code, signal.SIGTERM), (0, 0)).took_s > 0


def test_a_program_that_does_not_connect_in_time(monkeypatch):
    monkeypatch.setattr(image_starts, "CONNECTS_WITHIN_S", 0.1)
    with pytest.raises(StartError, match="did not connect"):
        connect_once(Programs(WAIT), (0, 0), {}, "operator")


def test_every_user_starts_both():
    found, fastest = problems(Programs(CONNECT))
    assert (found, fastest.took_s < image_starts.CONNECTS_WITHIN_S) == ([], True)
    found, _ = problems(Programs(FAIL))
    assert len(found) == 2 * len(image_starts.USERS)
    assert found[-1].startswith("as an arbitrary user of group 0 (1000660000:0): raytide autoscaler did not connect")


@pytest.mark.parametrize(
    ("took_s", "slowness", "starts", "found"),
    [
        ([1.4, 9.0], 1.0, 2, []),
        ([2.0, 1.6, 1.6, 1.5], 1.0, 4, []),
        ([2.0, 1.9, 1.8, 1.7, 1.6], 1.0, 5, ["the sidecar's start takes 1.60 s, more than 1.50 s on this machine"]),
        ([2.9, 9.0], 2.0, 2, []),
        ([3.4, 3.3, 3.2, 3.2, 3.2], 2.0, 5, ["the sidecar's start takes 3.20 s, more than 3.00 s on this machine"]),
    ],
    ids=["within the bar", "only in a later attempt", "never within it", "a slow machine", "too slow even for that"],
)
def test_the_sidecars_fastest_start_has_a_bar(monkeypatch, took_s, slowness, starts, found):
    monkeypatch.setattr(image_starts.machine_speed, "slowness", lambda: slowness)
    measured = iter(took_s)
    called = []

    def measure(_containers, user):
        called.append(user)
        return Start(next(measured), 9.0)

    monkeypatch.setattr(image_starts, "start_sidecar", measure)
    monkeypatch.setattr(image_starts, "start_operator", lambda *_: Start(1.0, 1.0))
    assert problems(Programs("")) == (found, Start(min(took_s[:starts]), 9.0))
    assert len(called) == starts


def test_a_process_of_the_container_that_outlives_it_is_found(monkeypatch):
    """As when the kernel forgets that it should end with its parent, because it has changed its user."""
    monkeypatch.setattr(image_starts, "ENDS_WITHIN_S", 0.5)
    code = f"import signal, subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', {WAIT!r}])\n{CONNECT}signal.pause()"
    with pytest.raises(StartError, match=r"processes of the container outlive it: \[\d+\]") as found:
        start_operator(Programs(code, signal.SIGKILL), (0, 0))
    os.kill(int(re.search(r"\d+", str(found.value))[0]), signal.SIGKILL)


def test_the_service_account_is_readable_for_every_user():
    with service_account() as folder:
        assert folder.stat().st_mode & 0o777 == 0o755
        assert {path.name for path in folder.iterdir()} == {"token", "namespace", "ca.crt"}
        assert all(path.stat().st_mode & 0o044 == 0o044 for path in folder.iterdir())
    assert not folder.exists()
