"""The container image's lock: what pods need, in the versions of the package's own lock, and without `kubernetes` and `rich`."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import locks
from support.image_packages import blocked_modules, locked_packages, normalized, only_image_packages

ROOT = Path(__file__).parents[3]
RUNTIME = ROOT / "requirements" / "runtime.txt"
DEPENDENCIES = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
IMPORT_ALL = """\
import importlib, pkgutil, raytide
for module in pkgutil.walk_packages(raytide.__path__, "raytide."):
    if module.name != "raytide.__main__":
        importlib.import_module(module.name)
print("imported all")
"""


def sections(lock: Path) -> dict[str, str]:
    """Text of each package in a lock, with its version and hashes."""
    parts = re.split(r"(?m)^(?=\S)", lock.read_text())
    return {part.partition("==")[0]: part.strip() for part in parts if "==" in part}


def test_every_dependency_but_kubernetes_and_rich_is_locked():
    names = {normalized(re.match(r"[\w.-]+", line)[0]) for line in DEPENDENCIES}
    assert names - locked_packages() == {"kubernetes", "rich"}


def test_versions_and_hashes_are_those_of_the_packages_lock():
    runtime, image = sections(RUNTIME), sections(ROOT / "requirements" / "image.txt")
    assert {name: text for name, text in image.items() if runtime.get(name) != text} == {}


def test_what_only_kubernetes_needs_is_left_out():
    left_out = locked_packages(RUNTIME) - locked_packages()
    assert {"kubernetes", "requests", "urllib3", "websocket-client", "python-dateutil"} <= left_out


@pytest.mark.rule("SE:C13")
def test_the_image_has_at_most_12_direct_dependencies():
    assert len(locks.image_requirements().splitlines()) <= 12


def test_the_lock_is_made_of_the_same_dependencies():
    made = locks.image_requirements().splitlines()
    assert made == [line for line in DEPENDENCIES if not line.startswith(("kubernetes", "rich"))]


def run(code: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True, check=False)


def test_every_module_can_be_imported_with_the_images_packages(tmp_path):
    done = run(IMPORT_ALL, only_image_packages(tmp_path))
    assert (done.stdout, done.stderr) == ("imported all\n", "")


@pytest.mark.parametrize("module", ["kubernetes", "kubernetes.aio.config", "requests", "rich", "raytide_sandbox"])
def test_other_packages_are_not_there_in_these_tests(tmp_path, module):
    done = run(f"import {module}", only_image_packages(tmp_path))
    assert "ModuleNotFoundError" in done.stderr
    assert module.partition(".")[0] in blocked_modules()
