"""Installation of the wheel and of the source distribution into a new virtual environment, as `pip install raytide` does.

Versions are those of requirements/, so that a machine on which `make setup` ran downloads nothing again.
"""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from raytide.api.constants import VERSION
from support.deadlines import PATIENCE
from support.distributions import ROOT, build
from support.documented_commands import session

pytestmark = pytest.mark.slow

UV = Path(sys.executable).parent / "uv"
REQUIREMENTS = ROOT / "requirements"
INSTALLED = """
import importlib.metadata, importlib.resources, raytide
from raytide.manager import main
files = importlib.resources.files("raytide")
print(raytide.__version__, importlib.metadata.version("raytide"))
print(sorted(file.name for file in (files / "crds").iterdir()), (files / "py.typed").is_file())
print(sorted(file.name for file in (files / "cli" / "ui" / "static").iterdir()))
"""


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False, timeout=100 * PATIENCE
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("hook", ["build_wheel", "build_sdist"])
def test_a_new_environment_has_the_command_the_version_the_crds_and_the_pages(tmp_path, hook):
    archive = build(hook, ROOT, tmp_path / "dist")
    python = tmp_path / "venv" / "bin" / "python"
    run(UV, "venv", "--quiet", "--python", sys.executable, tmp_path / "venv", cwd=tmp_path)
    pins = ("--constraint", REQUIREMENTS / "runtime.txt", "--build-constraint", REQUIREMENTS / "build.txt")
    run(UV, "pip", "install", "--quiet", "--no-config", *pins, "--python", python, archive, cwd=tmp_path)
    run(UV, "pip", "check", "--quiet", "--python", python, cwd=tmp_path)
    crds = "['paddlepaddle.org_trainingjobs.yaml', 'ray.io_rayclusters.yaml']"
    page = "['app.js', 'icon.svg', 'index.html', 'style.css']"
    assert run(python, "-I", "-c", INSTALLED, cwd=tmp_path) == f"{VERSION} {VERSION}\n{crds} True\n{page}\n"
    assert run(python.parent / "raytide", "--version", cwd=tmp_path) == f"raytide, version {VERSION}\n"
    assert "operator" in run(python.parent / "raytide", "--help", cwd=tmp_path)


@pytest.mark.parametrize("command", session("pip"), ids=lambda command: command.typed)
def test_the_commands_of_the_guide_install_from_a_checkout(tmp_path, command):
    python = tmp_path / "venv" / "bin" / "python"
    run(UV, "venv", "--quiet", "--python", sys.executable, tmp_path / "venv", cwd=tmp_path)
    _, *words = shlex.split(command.typed)
    options = (
        "--quiet",
        "--no-config",
        "--no-deps",
        "--build-constraint",
        REQUIREMENTS / "build.txt",
        "--python",
        python,
    )
    run(UV, "pip", *words, *options, cwd=ROOT)
    listed = run(UV, "pip", "list", "--format", "freeze", "--python", python, cwd=tmp_path).split()
    assert listed == [f"{name}=={VERSION}" for name in ("raytide", "raytide-sandbox")[: len(words) - 1]]
