"""The subcommands of `raytide`: its own, and the sandbox's by its entry point."""

import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import raytide.cli
import raytide_sandbox.cli
from support.deadlines import PATIENCE
from support.ports import free_port

GUIDE = (Path(__file__).parents[3] / "docs" / "user-guide.md").read_text()
NAMES = ["autoscaler", "crds", "diagnose", "operator", "plan", "sandbox", "scale", "top", "ui", "why"]


def call(*args: str):
    return CliRunner().invoke(raytide.cli.main, args)


@pytest.fixture
def without_the_sandbox(monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: importlib.metadata.EntryPoints())


@pytest.mark.rule("FD:UX3-14")
def test_the_help_lists_commands_for_people_apart_from_those_for_pods():
    found = re.findall(r"^(Commands[^\n]*):\n((?:  \S[^\n]*\n)+)", call("--help").output, re.MULTILINE)
    listed = {title: [line.split()[0] for line in lines.splitlines()] for title, lines in found}
    assert listed == {
        "Commands": ["why", "top", "ui", "plan", "scale", "sandbox", "diagnose"],
        "Commands for pods and administrators": ["operator", "autoscaler", "crds"],
    }
    assert sorted(name for names in listed.values() for name in names) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_command_is_found_by_its_name(name):
    found = raytide.cli.main.get_command(None, name)
    assert found is not None
    assert found.name == name or found.callback.__name__ == "command"


IMPORTS_FOR_LONG = """
import importlib, os, time
import raytide.cli
def import_module(name):
    print(os.getpid(), flush=True)
    time.sleep(60)
importlib.import_module = import_module
raytide.cli.main(["operator"])
"""


def test_the_first_process_of_a_container_ends_on_sigterm_while_it_imports():
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("this machine does not allow process namespaces")
    command = [*unshare, sys.executable, "-c", IMPORTS_FOR_LONG]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "1\n"
            child = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
            os.kill(int(child), signal.SIGTERM)
            assert process.wait(20 * PATIENCE) == 128 + signal.SIGTERM
        finally:
            process.kill()


def test_an_unknown_command_is_a_usage_error():
    result = call("cluster")
    assert (result.exit_code, result.output.splitlines()[-1]) == (2, "Error: No such command 'cluster'.")


@pytest.mark.rule("FD:UX3-11")
@pytest.mark.parametrize(
    "command", [("why", "demo"), ("top", "--once"), ("scale", "demo", "3"), ("plan",), ("diagnose",)]
)
def test_an_error_of_the_connection_is_said_once_and_as_kubectl_does(command, tmp_path):
    port = free_port()
    clusters = [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}]
    contexts = [{"name": "x", "context": {"cluster": "c", "user": "u"}}]
    users = [{"name": "u", "user": {}}]
    config = {"clusters": clusters, "contexts": contexts, "users": users, "current-context": "x"}
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **config}))
    away = call(*command, "--kubeconfig", str(path)).output
    assert away.endswith(f": cannot connect to 127.0.0.1:{port}: Connection refused\n")
    assert away.count("cannot connect") == 1
    wrong = call(*command, "--kubeconfig", str(path), "--context", "nope").output
    assert (
        wrong
        == f"Error: kubeconfig {path} has no context nope; `kubectl config get-contexts` lists those that it has\n"
    )


@pytest.mark.rule("FD:UX3-11")
def test_a_command_that_may_be_meant_is_named():
    assert call("wy").output.splitlines()[-1] == "Error: No such command 'wy'. Did you mean 'why'?"


@pytest.mark.parametrize("name", ["autoscaler", "diagnose", "plan", "scale", "top", "ui", "why"])
def test_no_other_command_searches_the_installed_distributions_for_the_sandbox(name):
    asked = f"raytide.cli.main.get_command(None, {name!r}); print('importlib.metadata' in sys.modules)"
    program = [sys.executable, "-c", f"import sys, raytide.cli; {asked}"]
    assert subprocess.run(program, capture_output=True, text=True, check=True).stdout == "False\n"


def every_command(command=None, words=()):
    """The words of each command and subcommand."""
    command = command or raytide.cli.main
    yield words
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            yield from every_command(command.get_command(click.Context(command), name), (*words, name))


@pytest.mark.parametrize("words", [pytest.param(words, id=" ".join(words) or "raytide") for words in every_command()])
def test_every_command_has_both_spellings_of_help(words):
    short, long = call(*words, "-h"), call(*words, "--help")
    assert (short.exit_code, short.output) == (0, long.output)
    assert short.output.startswith(f"Usage: main {' '.join(words)}".rstrip())


def test_the_version():
    version = importlib.metadata.version("raytide")
    assert call("--version").output.replace("main", "raytide") == f"raytide, version {version}\n"


def test_the_plugin_of_kubectl_is_the_same_command():
    scripts = {entry.name: entry.value for entry in importlib.metadata.distribution("raytide").entry_points}
    assert scripts["kubectl-raytide"] == scripts["raytide"] == "raytide.cli:main"


# --- completion --------------------------------------------------------------------------------------------------------


def completions(*words: str, program: str = "raytide") -> list[str]:
    """What a shell offers after these words."""
    environ = {"COMP_WORDS": " ".join([program, *words]), "COMP_CWORD": str(len(words))}
    variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
    done = subprocess.run(
        [Path(sys.executable).with_name(program)],
        env={**os.environ, **environ, variable: "bash_complete"},
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("wh",), ["why"]),
        (("why", "-o", ""), ["text", "wide", "yaml", "json"]),
        (("why", "--kube"), ["--kubeconfig"]),
        (("sandbox", "st"), ["status"]),
    ],
)
@pytest.mark.parametrize("program", ["raytide", "kubectl-raytide"])
def test_a_shell_completes_commands_options_and_values(words, offered, program):
    assert completions(*words, program=program) == offered


def test_the_guide_has_completion_for_each_shell_and_for_kubectl(tmp_path):
    for shell in ("bash", "zsh", "fish"):
        assert f"_RAYTIDE_COMPLETE={shell}_source raytide" in GUIDE
    (script,) = re.findall(r"^```sh\n(#!/bin/sh\n.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    program = tmp_path / "kubectl_complete-raytide"
    program.write_text(script)
    program.chmod(0o755)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run([program, "wh"], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True)
    assert done.stdout == "why\n:4\n"


@pytest.mark.rule("D22")
def test_the_sandbox_is_found_by_its_entry_point():
    assert raytide.cli.main.get_command(None, "sandbox") is raytide_sandbox.cli.command


@pytest.mark.usefixtures("without_the_sandbox")
@pytest.mark.parametrize("args", [[], ["up"], ["up", "--nodes", "3"], ["--help"]], ids=" ".join)
def test_without_the_sandbox_the_error_names_what_to_install(args, tmp_path, monkeypatch):
    monkeypatch.setenv("RAYTIDE_SANDBOX_DIR", str(tmp_path / "state"))
    result = call("sandbox", *args)
    assert result.exit_code == 1
    assert result.output == (
        "Error: the sandbox is not installed; run `pip install . ./sandbox` in the checkout of Raytide\n"
    )
    assert not (tmp_path / "state").exists()


@pytest.mark.usefixtures("without_the_sandbox")
def test_without_the_sandbox_the_help_lists_it_too():
    assert "\n  sandbox " in call("--help").output
