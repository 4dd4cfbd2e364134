"""Interpreters that Raytide starts import nothing from the directory that they are started in."""

import ast
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

import raytide.cli
import raytide.cli.autoscaler
from raytide.autoscaler.sidecar.supervisor import EXIT_BAD_CONFIGURATION
from support.deadlines import PATIENCE

pytestmark = pytest.mark.rule("FD:SEC3-8")

ROOT = Path(__file__).parents[3]
SOURCES = (ROOT / "operator" / "src", ROOT / "sandbox" / "src")
SAFE = {"-P", "-I"}
PLANTED = 77


def started_interpreters() -> dict[str, list[str]]:
    """File and line of each call or sequence that begins with `sys.executable`, with the literals in it."""
    found = {}
    for path in (path for folder in SOURCES for path in sorted(folder.rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text())):
            words = getattr(node, "elts", None) or getattr(node, "args", None)
            if isinstance(words, list) and words and ast.unparse(words[0]) == "sys.executable":
                name = f"{path.relative_to(ROOT)}:{node.lineno}"
                found[name] = [each.value for each in words if isinstance(each, ast.Constant)]
    return {name: words for name, words in found.items() if words}


def test_every_interpreter_is_started_with_a_safe_path():
    found = started_interpreters()
    assert len(found) >= 4, "the search finds them"
    assert {name: words for name, words in found.items() if not SAFE & set(words)} == {}


def test_no_python_of_the_chart_or_the_image_runs_code_without_a_safe_path():
    texts = {path: path.read_text() for path in [ROOT / "Dockerfile", *(ROOT / "helm").rglob("*.yaml")]}
    assert [path for path, text in texts.items() if "python, -c" in text or 'python", "-' in text] == []
    assert [path.name for path, text in texts.items() if "python, -P, -c" in text] == ["ready.yaml"]


def test_the_sidecars_process_imports_nothing_from_its_working_directory(monkeypatch, tmp_path):
    commands = []

    class Recorded:
        def __init__(self, command, **_):
            commands.append(command)

        def run(self):
            return 0

    monkeypatch.setattr(raytide.cli.autoscaler, "Supervisor", Recorded)
    assert (
        CliRunner().invoke(raytide.cli.main, ["autoscaler", "--cluster-name=a", "--cluster-namespace=b"]).exit_code == 0
    )
    (tmp_path / "asyncio.py").write_text(f"raise SystemExit({PLANTED})\n")
    environ = {"AUTOSCALER_UPDATE_INTERVAL_S": "soon"}  # with which it ends at once
    (command,) = commands
    ended = subprocess.run(
        [*command, "0"], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60 * PATIENCE, check=False
    )
    assert ended.returncode == EXIT_BAD_CONFIGURATION, ended.stderr
