"""The messages of `make` for new users. Only targets that need no `.venv` run here."""

import ast
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MAKE = shutil.which("make")

pytestmark = pytest.mark.skipif(MAKE is None, reason="no make on PATH")


def make(*args, **environ):
    """Run it without the recipe of `setup`, which would look after `.venv`."""
    environ |= {"PATH": os.environ["PATH"]}  # not the settings and flags of the make that may run these tests
    return subprocess.run(
        [MAKE, "-o", "setup", *args], cwd=ROOT, env=environ, capture_output=True, text=True, check=False
    )


def test_help_names_every_target_but_those_that_others_call():
    targets = set(re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[0].split())
    listed = set(re.findall(r"make ([a-z0-9-]+)", re.sub(r"\x1b\[\d+m", "", make().stdout)))
    assert targets - listed == {"setup"}


@pytest.mark.parametrize(
    "figure", ["", "P=P99", "P=harness"], ids=["no figure", "an unknown one", "a file that is none"]
)
def test_bench_names_the_figures_there_are(figure):
    run = make("bench", *filter(None, [figure]))
    assert (run.returncode, run.stdout) == (2, f"say which: make bench P=P6; there are: {' '.join(figures())}\n")


def figures() -> list[str]:
    return list(benches())


def benches() -> dict[str, str]:
    """File of each figure, by the table in the Makefile."""
    text = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    return dict(row.split("=") for row in re.findall(r"^BENCHES := (.*)$", text, re.MULTILINE)[0].split())


def figures_of(program: str) -> list[str]:
    """Keys of its table `FIGURES`; none for a module without figures."""
    tables = [
        each.value
        for each in ast.parse(program).body
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "FIGURES"
    ]
    return [key.value for table in tables for key in table.keys]


def test_every_figure_has_a_file_and_every_figure_of_a_file_is_in_the_table():
    files = {figure: path.stem for path in (ROOT / "bench").glob("*.py") for figure in figures_of(path.read_text())}
    assert len(files) > 20
    assert benches() == files


@pytest.mark.parametrize(("figure", "file"), [("P6", "reconcile_latency"), ("p9b", "autoscaler_sidecar")])
def test_bench_finds_the_file_of_a_figure(figure, file):
    (line,) = (line for line in make("--dry-run", "bench", f"P={figure}").stdout.splitlines() if "bench/" in line)
    assert line.split()[0] == "PYTHONPATH=tests:tools/builders:tools/checks"  # support and machine_speed
    assert line.split()[-2:] == [f"bench/{file}.py", figure.upper()]


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ((), []),
        (("KEEP=1",), ["--keep"]),
        (("KEEP=0",), []),
        (("KEEP=1", "ISOLATION=plain"), ["--keep", "--isolation", "plain"]),
    ],
    ids=["alone", "kept", "not kept", "kept in plain mode"],
)
def test_demo_passes_its_settings_as_flags(settings, flags):
    run = make("--dry-run", "demo", *settings)
    (line,) = (line for line in run.stdout.splitlines() if "demo.py" in line)
    assert line.split()[2:] == flags


@pytest.mark.parametrize(("environ", "code"), [({}, 0), ({"RAYTIDE_ALL_RUN": "yes"}, 2)], ids=["alone", "in CI"])
def test_a_level_that_cannot_run_is_reported_and_fails_in_ci(environ, code):
    recipe = "lacking: ; @$(call not_run,kubectl tests,no kubectl on PATH)"
    run = make("--eval", recipe, "lacking", **environ)
    assert (run.returncode, run.stdout) == (code, "kubectl tests: not run (no kubectl on PATH)\n")


def test_every_level_of_pytest_has_a_minimum_number_of_tests():
    recipes = [
        line for line in (ROOT / "Makefile").read_text().splitlines() if "$(PYTEST)" in line and ":=" not in line
    ]
    assert len(recipes) > 8
    assert [line for line in recipes if line.count("$(PYTEST)") != line.count("--at-least")] == []
