"""`make e2e-kind` prints "not run" where it cannot run, and nothing else."""

import importlib.util
import os
import subprocess
import time
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "checks" / "e2e.py"


@pytest.fixture
def e2e():
    spec = importlib.util.spec_from_file_location("e2e_tool", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Puts programs on an otherwise empty PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def put(name, script):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)

    return put


def run_main(e2e, monkeypatch, capsys, *args):
    monkeypatch.setattr("sys.argv", ["e2e.py", *args])
    return e2e.main(), capsys.readouterr().out


def test_without_docker_it_is_not_run(e2e, programs, monkeypatch, capsys):
    code, output = run_main(e2e, monkeypatch, capsys, "--kind")
    assert (code, output.splitlines()[0]) == (0, "e2e on kind: not run: there is no docker on PATH")
    assert "passed" not in output


def test_without_kind_it_is_not_run(e2e, programs, monkeypatch, capsys):
    programs("docker", "exit 0")
    code, output = run_main(e2e, monkeypatch, capsys, "--kind")
    assert (code, output.splitlines()[0]) == (0, "e2e on kind: not run: there is no kind on PATH")


def test_with_a_docker_that_does_not_answer_it_is_not_run(e2e, programs, monkeypatch, capsys):
    programs("docker", "exit 1")
    programs("kind", "exit 0")
    code, output = run_main(e2e, monkeypatch, capsys, "--kind")
    assert (code, output.splitlines()[0]) == (0, "e2e on kind: not run: Docker is installed and does not answer")


def test_without_the_node_image_it_is_not_run(e2e, programs, monkeypatch, capsys):
    programs("docker", 'test "$1" = info')
    programs("kind", "exit 0")
    code, output = run_main(e2e, monkeypatch, capsys, "--kind")
    assert code == 0
    assert output.startswith(f"e2e on kind: not run: the node image {e2e.NODE_IMAGE} is not here")


def test_where_it_can_run_a_build_that_fails_is_a_failure(e2e, programs, monkeypatch, capsys):
    programs("docker", 'test "$1" != build')
    programs("kind", "exit 0")
    code, output = run_main(e2e, monkeypatch, capsys, "--kind")
    assert code == 1
    assert "failed: docker build" in output


def test_without_helm_the_suite_is_a_failure_not_a_skip(e2e, programs, monkeypatch, capsys):
    code, output = run_main(e2e, monkeypatch, capsys, "--kubeconfig", "/nowhere")
    assert code == 1
    assert "no helm on PATH: run `make tools`" in output


def test_a_process_that_is_left_is_found_by_its_environment(e2e, tmp_path):
    program = subprocess.Popen(["sleep", "30"], env={**os.environ, "STATE": str(tmp_path / "e2e")})
    try:
        deadline = time.monotonic() + 10
        while not (found := e2e.processes_of(tmp_path / "e2e")) and time.monotonic() < deadline:
            time.sleep(0.01)  # the kernel shows the new environment a moment after the program has begun
        assert [line.split()[0] for line in found] == [str(program.pid)]
        assert e2e.processes_of(tmp_path / "other") == []
    finally:
        program.kill()
        program.wait()
