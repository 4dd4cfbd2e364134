"""The subcommands of `raytide`: its own, and the sandbox's by its entry point."""

import importlib.metadata
import subprocess
import sys

import pytest
from click.testing import CliRunner

import raytide.cli
import raytide_sandbox.cli

NAMES = ["autoscaler", "operator", "plan", "sandbox", "top", "why"]


def call(*args: str):
    return CliRunner().invoke(raytide.cli.main, args)


@pytest.fixture
def without_the_sandbox(monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: importlib.metadata.EntryPoints())


def test_the_help_lists_all_commands():
    assert [line.split()[0] for line in call("--help").output.partition("Commands:\n")[2].splitlines()] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_command_is_found_by_its_name(name):
    found = raytide.cli.main.get_command(None, name)
    assert found is not None
    assert found.name == name or found.callback.__name__ == "command"


def test_an_unknown_command_is_a_usage_error():
    result = call("cluster")
    assert (result.exit_code, "No such command 'cluster'" in result.output) == (2, True)


@pytest.mark.parametrize("name", ["autoscaler", "plan", "top", "why"])
def test_no_other_command_searches_the_installed_distributions_for_the_sandbox(name):
    asked = f"raytide.cli.main.get_command(None, {name!r}); print('importlib.metadata' in sys.modules)"
    program = [sys.executable, "-c", f"import sys, raytide.cli; {asked}"]
    assert subprocess.run(program, capture_output=True, text=True, check=True).stdout == "False\n"


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
