"""`raytide sandbox` without a sandbox, or with another one: one clear line, and no side effects."""

import json
import os

import pytest
import yaml
from click.testing import CliRunner

from raytide_sandbox import daemonize
from raytide_sandbox.cli import command
from raytide_sandbox.daemonize import Settings
from raytide_sandbox.state_dir import Record, StateDirectory, start_ticks
from raytide_sandbox.status_report import Overview, as_json, rows, written


@pytest.fixture
def state(tmp_path) -> StateDirectory:
    found = StateDirectory(tmp_path / "s")
    found.create()
    return found


def call(state: StateDirectory, *args: str):
    return CliRunner().invoke(command, [*args, "--state-dir", str(state.path)])


def record(pid: int, ticks: int) -> Record:
    return Record(
        pid=pid,
        start_ticks=ticks,
        version="0.1.0",
        server="https://127.0.0.1:6443",
        isolation="ns",
        isolation_reason="ns: a trial pod worked",
        nodes=3,
        scratch="/nonexistent/scratch",
    )


def ended_record() -> Record:
    """Of this very process number, but an earlier process."""
    ticks = start_ticks(os.getpid())
    assert ticks is not None
    return record(os.getpid(), ticks - 1)


@pytest.mark.parametrize(
    ("args", "exit_code", "text"),
    [
        (["status"], 1, "No sandbox is running. Start one with: raytide sandbox up"),
        (["down"], 0, "No sandbox is running."),
        (["kubeconfig"], 1, "no sandbox is running; start one with: raytide sandbox up"),
        (["kubeconfig", "--path"], 1, "no sandbox is running"),
        (["logs"], 1, "no sandbox has run with this state directory"),
    ],
)
def test_without_a_sandbox(state, args, exit_code, text):
    result = call(state, *args)
    assert (result.exit_code, text in result.output) == (exit_code, True), result.output


def test_down_needs_no_directory_at_all(tmp_path):
    result = call(StateDirectory(tmp_path / "never"), "down")
    assert (result.exit_code, result.output) == (0, "No sandbox is running.\n")
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--node-cpu=many", "'many' is not a quantity"),
        ("--node-memory=32Gb", "'32Gb' is not a quantity"),
        ("--node-cpu=0", "must be more than 0"),
        ("--nodes=0", "0 is not in the range"),
        ("--port=70000", "70000 is not in the range"),
        ("--image=paddle", "'paddle' is not NAME=FOLDER"),
        ("--timeout=0", "0.0 is not in the range"),
        ("--isolation=docker", "'docker' is not one of 'auto', 'ns', 'plain'"),
    ],
)
def test_bad_options_are_rejected_before_anything_starts(state, option, text):
    result = call(state, "up", option)
    assert result.exit_code == 2
    assert text in result.output
    assert not state.log.exists()


def test_up_twice_changes_nothing_and_is_no_error(state):
    state.write_record(record(os.getpid(), 1))
    with state.claim():
        result = call(state, "up", "--nodes=7")
    assert result.exit_code == 0
    assert "already running: https://127.0.0.1:6443" in result.output
    assert "3 nodes" in result.output
    assert state.read_record() == record(os.getpid(), 1)


def test_status_reports_a_sandbox_that_was_killed(state):
    state.write_record(ended_record())
    result = call(state, "status")
    assert result.exit_code == 1
    assert "was killed or crashed" in result.output


def test_down_clears_what_was_left_and_signals_no_foreign_process(state):
    state.write_record(ended_record())
    state.kubeconfig.touch()
    result = call(state, "down")
    assert (result.exit_code, result.output) == (0, "No sandbox is running.\n")
    assert state.read_record() is None
    assert not state.kubeconfig.exists()


def test_the_log_is_shown_from_its_end(state):
    state.log.write_text("one\ntwo\nthree\n")
    assert call(state, "logs", "-n", "2").output == "two\nthree\n"
    assert call(state, "logs", "--follow").output == "one\ntwo\nthree\n"


def test_settings_survive_the_command_line():
    settings = Settings(
        nodes=2,
        node_cpu="4",
        node_memory="1Gi",
        isolation="plain",
        port=1234,
        has_crds=False,
        api="kubernetes",
        has_audit=True,
        timeout_s=2.5,
        images=("a/b=/c", "d=/e f"),
    )
    seen = {}
    serve = next(found for name, found in command.commands.items() if name == "serve")
    # click keeps the help option of a command's first context, for all tests of this process
    context = serve.make_context("serve", settings.arguments(), **command.context_settings)
    seen.update(context.params)
    assert Settings(**{name: seen[name] for name in Settings.__dataclass_fields__}) == settings


def test_the_emulator_has_no_audit_log(state):
    result = call(state, "up", "--audit")
    assert result.exit_code == 2
    assert "--audit needs --api kubernetes" in result.output


def test_without_a_control_plane_one_line_names_the_remedies(state, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    result = call(state, "up", "--api=kubernetes")
    assert result.exit_code == 1
    assert "there is no control plane yet: run `make tools`" in result.output
    assert "KUBEBUILDER_ASSETS" in result.output
    assert not state.record.exists()


def test_the_log_of_a_server_that_ends_while_starting_is_reported(state, monkeypatch):
    monkeypatch.setattr(daemonize.sys, "executable", "/bin/cat")
    with pytest.raises(daemonize.LaunchError, match=r"ended while starting\n.*invalid option"):
        daemonize.start(Settings(), state)


def test_an_unusable_state_directory_is_one_line_with_the_remedy(tmp_path):
    (tmp_path / "file").touch()
    result = call(StateDirectory(tmp_path / "file" / "s"), "up")
    assert result.exit_code == 1
    assert f"cannot use {tmp_path}/file/s: Not a directory; choose another with --state-dir" in result.output


def test_status_reads_well(state):
    nodes = ({"status": {"allocatable": {"cpu": "8", "memory": "32Gi"}}},) * 3
    pods = ({"status": {"phase": "Running"}}, {"status": {"phase": "Pending"}}, {"status": {"phase": "Running"}})
    table = dict(rows(Overview(record(42, 1), state, 125.0, nodes, pods)))
    assert table["sandbox"] == "raytide 0.1.0, up 2m, process 42"
    assert table["isolation"] == "ns: a trial pod worked"
    assert table["nodes"] == "3 × 8 CPU, 32Gi (for scheduling only, not enforced)"
    assert table["pods"] == "1 Pending, 2 Running"
    assert table["state"].startswith(str(state.path))


def test_status_for_programs(state):
    nodes = ({"metadata": {"name": "sandbox-0"}, "status": {"allocatable": {"cpu": "8", "memory": "32Gi"}}},)
    pods = ({"status": {"phase": "Running"}}, {"status": {"phase": "Pending"}}, {"status": {"phase": "Running"}})
    found = as_json(Overview(record(42, 1), state, 125.7, nodes, pods))
    assert (found["running"], found["version"], found["pid"], found["uptimeSeconds"]) == (True, "0.1.0", 42, 125)
    assert (found["nodes"], found["pods"]) == (
        [{"name": "sandbox-0", "cpu": "8", "memory": "32Gi"}],
        {"Pending": 1, "Running": 2},
    )
    assert yaml.safe_load(written(found, "yaml")) == json.loads(written(found, "json")) == found


def test_status_for_programs_without_an_answer(state):
    found = as_json(Overview(record(42, 1), state, 1.0, error="the API does not answer: timed out"))
    assert (found["error"], found["nodes"], found["pods"]) == ("the API does not answer: timed out", None, None)


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_status_for_programs_without_a_sandbox(state, output):
    result = call(state, "status", "-o", output)
    assert (result.exit_code, yaml.safe_load(result.output)) == (1, {"running": False})


def test_status_reports_an_api_server_that_does_not_respond(state):
    table = dict(rows(Overview(record(42, 1), state, 1.0, error="the API does not answer: timed out")))
    assert table["trouble"] == "the API does not answer: timed out"
    assert "pods" not in table
