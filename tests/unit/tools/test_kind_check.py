"""Which Docker daemon `make e2e ON=kind` takes, and the line that it prints where there is none."""

import pytest

import kind_check
import kind_docker


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Puts programs on an otherwise empty PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def put(name, script):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)

    return put


def check(monkeypatch, capsys, *args, lack=""):
    monkeypatch.setattr("sys.argv", ["kind_check.py", *args])
    monkeypatch.setattr(kind_check.node_machine, "read", lambda: None)
    monkeypatch.setattr(kind_docker, "why_no_own", lambda _: lack)
    code = kind_check.main()
    (line,) = capsys.readouterr().out.splitlines()
    return code, line


REASONS = {
    "no docker": ({}, "there is no docker on PATH"),
    "no kind": ({"docker": "exit 0"}, "there is no kind on PATH"),
    "no answer": ({"docker": "exit 1", "kind": "exit 0"}, "Docker is installed and does not answer"),
    "no node image": (
        {"docker": 'test "$1" = info', "kind": "exit 0"},
        f"the node image {kind_docker.NODE_IMAGE} is not here and cannot be pulled (RAYTIDE_E2E_NODE_IMAGE names another)",
    ),
}


@pytest.mark.parametrize(("scripts", "reason"), REASONS.values(), ids=REASONS)
def test_without_an_installed_docker(programs, monkeypatch, capsys, scripts, reason):
    for name, script in scripts.items():
        programs(name, script)
    installed = check(monkeypatch, capsys, "--installed")
    assert installed == (1, f"e2e on kind: not run: {reason}")
    own = check(monkeypatch, capsys)
    assert own == (
        kind_check.OWN,
        f"e2e on kind: {reason}: with a Docker daemon of its own, in namespaces of this machine",
    )
    none = check(monkeypatch, capsys, lack="root: no: run `sudo make e2e ON=node`")
    words = "and this machine allows no Docker daemon of its own: root: no: run `sudo make e2e ON=node`"
    assert none == (1, f"e2e on kind: not run: {reason}, {words}")


def test_with_an_installed_docker_no_other_is_looked_for(programs, monkeypatch, capsys):
    programs("docker", "exit 0")
    programs("kind", "exit 0")
    assert check(monkeypatch, capsys, lack="never asked") == (0, "e2e on kind: with the Docker and kind on PATH")
