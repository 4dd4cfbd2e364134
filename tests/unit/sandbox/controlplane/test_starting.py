"""Failed starts of a control plane, with small programs instead of the components."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from raytide_sandbox.controlplane import processes
from raytide_sandbox.controlplane.processes import ControlPlane, ControlPlaneError, PlaneSettings
from raytide_sandbox.state_dir import StateDirectory, start_ticks
from support.kube_plane import eventually

SETTINGS = PlaneSettings(parts=("etcd", "kube-apiserver"))


@pytest.fixture
def plane(tmp_path):
    """A control plane whose etcd is a shell script."""

    def make(etcd, settings=SETTINGS):
        folder = tmp_path / "programs"
        folder.mkdir()
        for name, script in {"etcd": etcd, "kube-apiserver": "sleep 60"}.items():
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)
        return ControlPlane(tmp_path / "plane", folder, settings)

    return make


def failed_start(plane, *timeout_s):
    with pytest.raises(ControlPlaneError) as caught:
        plane.start(*timeout_s)
    assert plane.pid("etcd") is None
    assert not StateDirectory(plane.directory).is_claimed()
    return str(caught.value)


def test_the_error_names_the_component_its_exit_code_and_the_first_and_last_lines(plane):
    made = plane("for n in 1 2 3 4 5 6 7 8 9; do echo line $n; done; echo no such flag >&2; exit 3")
    first, *words = failed_start(made).splitlines()
    assert first == f"etcd ended with exit code 3 while starting; from {made.log('etcd')}:"
    assert words == ["line 1", "…", *(f"line {number}" for number in range(4, 10)), "no such flag"]


def test_a_component_that_was_killed_is_reported_as_such(plane):
    assert "etcd was ended by SIGKILL while starting" in failed_start(plane("kill -9 $$"))


def test_a_component_that_ended_without_output_is_reported_too(plane):
    assert failed_start(plane("exit 1")).endswith("(it wrote nothing)")


def test_long_lines_are_cut(plane):
    message = failed_start(plane("printf '%01000d\\n' 7; exit 1"))
    assert max(map(len, message.splitlines())) <= 400


def test_what_makes_progress_but_never_gets_ready_is_ended_after_the_time_out(plane, monkeypatch):
    monkeypatch.setattr(processes, "STALLED_S", 0.5)
    made = plane("while true; do echo waiting for a disk; sleep 0.1; done")
    first, *words = failed_start(made, 2.0).splitlines()
    assert first == f"etcd was not ready within 2 s; from {made.log('etcd')}:"
    assert words[-1] == "waiting for a disk"


def test_what_neither_computes_nor_logs_is_ended_sooner(plane, monkeypatch):
    monkeypatch.setattr(processes, "STALLED_S", 0.5)
    first, *words = failed_start(plane("echo waiting for a lock; exec sleep 60")).splitlines()
    assert first.startswith("etcd is not ready, and has neither used a processor nor logged for 0.5 s; from ")
    assert words == ["waiting for a lock"]


def test_what_computes_makes_progress(plane, monkeypatch):
    monkeypatch.setattr(processes, "STALLED_S", 0.5)
    assert failed_start(plane("while true; do :; done"), 2.0).startswith("etcd was not ready within 2 s; from ")


def test_the_next_port_is_tried_if_the_chosen_one_is_already_in_use(plane):
    made = plane('echo "$*" >>../tried; echo "listen tcp: bind: address already in use"; exit 1')
    assert failed_start(made).startswith("etcd found no free port")
    tried = [
        line.split("--listen-client-urls=")[1].split()[0]
        for line in (made.directory / "tried").read_text().splitlines()
    ]
    assert len(set(tried)) == len(tried) == 5


def test_the_output_of_an_earlier_start_is_not_reported_again(plane):
    made = plane("if [ -e ../second ]; then echo new; else echo old; touch ../second; fi; exit 1")
    assert failed_start(made).splitlines()[1:] == ["old"]
    assert failed_start(made).splitlines()[1:] == ["new"]
    assert made.log("etcd").with_suffix(".log.1").read_text() == "old\n"


def test_the_users_settings_do_not_reach_a_component(plane, monkeypatch):
    monkeypatch.setenv("ETCD_NAME", "mine")
    monkeypatch.setenv("KUBECONFIG", "/mine")
    monkeypatch.setenv("HTTPS_PROXY", "http://mine")
    message = failed_start(plane("env; exit 1", PlaneSettings(parts=SETTINGS.parts, gogc=300)))
    assert "mine" not in message
    assert "GOGC=300" in message.splitlines()


def test_programs_that_are_not_there_are_missed_before_anything_starts(tmp_path):
    with pytest.raises(ControlPlaneError, match=f"there is no control plane at {tmp_path}/gone"):
        ControlPlane(tmp_path / "plane", tmp_path / "gone").start()
    assert not (tmp_path / "plane").exists()


def test_one_directory_has_one_control_plane(plane):
    made = plane("exit 1")
    StateDirectory(made.directory).create()
    with (
        StateDirectory(made.directory).claim(),
        pytest.raises(ControlPlaneError, match="another control plane runs in"),
    ):
        made.start()


def test_secrets_are_for_their_owner_only(plane):
    made = plane("exit 1")
    failed_start(made)
    kept = [path for path in made.directory.rglob("*") if "files" in path.parts and path.is_file()]
    assert len(kept) > 15
    assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}
    assert made.directory.stat().st_mode & 0o777 == 0o700


def test_the_authority_and_the_admin_token_survive_a_restart(plane):
    made = plane("exit 1")
    failed_start(made)
    again = ControlPlane(made.directory, made.binary, SETTINGS)
    failed_start(again)
    assert (again.authority, again.admin_token) == (made.authority, made.admin_token)


def test_stop_without_a_running_component_only_removes_the_directory(plane):
    made = plane("exit 1")
    made.stop()
    assert not made.directory.exists()


OWNER = """
import os, pathlib, sys, threading
from raytide_sandbox.controlplane.component import Component

def start():
    component = Component("sleeper", pathlib.Path(sys.argv[1]))
    component.start(["/bin/sh", "-c", "echo $$; exec sleep 60"], directory=pathlib.Path("/"), variables={})

thread = threading.Thread(target=start)
thread.start()
thread.join()
print("started", flush=True)
sys.stdin.read()
"""


def pid_in(log):
    return eventually(lambda: log.exists() and log.read_text().strip(), "the component has started")


def test_a_component_survives_the_thread_that_started_it_but_not_the_process(tmp_path):
    log = tmp_path / "log"
    command = [sys.executable, "-c", textwrap.dedent(OWNER), str(log)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ) as owner:
        assert owner.stdout.readline() == b"started\n"
        pid = int(pid_in(log))
        assert start_ticks(pid) is not None
        owner.kill()
    eventually(lambda: start_ticks(pid) is None, "the component died with its owner")


def test_audit_policy_names_what_is_kept_whole(plane):
    made = plane("exit 1")
    failed_start(made)
    policy = (made.directory / "files" / "audit-policy.yaml").read_text()
    assert all(word in policy for word in ("pods", "leases", "rayclusters", "RequestResponse", "Metadata"))


def test_ports_are_written_down(plane):
    made = plane("exit 1")
    failed_start(made)
    assert set(json.loads((made.directory / "ports.json").read_text())) == {"etcd", "etcd-peer"}
