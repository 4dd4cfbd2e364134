"""`make security`: it runs every scanner, and is red if one of them is; and the checks of the levels beside it."""

import tomllib
from pathlib import Path

import pytest
import yaml

import go_build
import security
from support.image_packages import locked_packages

ROOT = Path(__file__).parents[3]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SCANNERS = [
    pytest.param("zizmor", marks=pytest.mark.rule("SE:C19")),
    pytest.param("actionlint", marks=pytest.mark.rule("SE:C19")),
    pytest.param("kube-score", marks=pytest.mark.rule("SE:C3")),
    pytest.param("checkov", marks=pytest.mark.rule("SE:C1")),
    pytest.param("detect-secrets-hook", marks=pytest.mark.rule("SE:C15")),
    pytest.param("pip-audit", marks=pytest.mark.rule("SE:C14")),
]


@pytest.fixture
def put(tmp_path, monkeypatch):
    """Write a fake program that notes its name."""

    def put(name, code=0):
        (tmp_path / name).write_text(
            f'#!/bin/sh\nbasename "$0" >>{tmp_path}/run\necho "what {name} says"\nexit {code}\n'
        )
        (tmp_path / name).chmod(0o755)

    for name in ("helm", *(scanner.values[0] for scanner in SCANNERS)):
        put(name)
    monkeypatch.setattr(security, "provide", lambda: security.Programs(*[tmp_path] * 3, tmp_path / "helm"))
    return put


@pytest.mark.parametrize("name", SCANNERS)
def test_a_red_scanner_makes_it_red_and_the_others_still_run(put, name, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("PIP_AUDIT", "1")
    put(name, code=3)
    assert security.main() == 1
    assert set((tmp_path / "run").read_text().split()) == {"helm", *(scanner.values[0] for scanner in SCANNERS)}
    out = capfd.readouterr().out
    assert f"what {name} says" in out
    assert out.splitlines()[-1].startswith(f"security: failed: {name}")


def test_it_is_green_with_green_scanners_and_asks_no_index_by_itself(put, tmp_path, monkeypatch):
    monkeypatch.delenv("PIP_AUDIT", raising=False)
    assert security.main() == 0
    assert "pip-audit" not in (tmp_path / "run").read_text()


@pytest.mark.parametrize(("all_run", "code"), [("", 0), ("1", 1)])
def test_without_go_one_line_says_so(monkeypatch, capsys, all_run, code):
    def missing():
        raise go_build.GoMissingError("Go 1.26 or newer is needed")

    monkeypatch.setattr(security, "provide", missing)
    monkeypatch.setenv("RAYTIDE_ALL_RUN", all_run)
    assert security.main() == code
    assert capsys.readouterr().out == "security: not run (Go 1.26 or newer is needed; Go is at https://go.dev/dl)\n"


@pytest.mark.rule("SE:C1")
def test_at_most_two_rules_of_checkov_are_skipped():
    assert len(yaml.safe_load((ROOT / ".checkov.yaml").read_text())["skip-check"]) <= 2


def test_no_package_overwrites_detect_secrets():
    """checkov's bc-detect-secrets has a module of the same name: which of them is there depends on the order of installation."""
    assert "bc-detect-secrets" not in locked_packages(ROOT / "requirements" / "security.txt")


@pytest.mark.rule("SE:C11")
def test_bandits_rules_are_on_in_ruff_for_all_that_is_installed_or_shown():
    lint = PYPROJECT["tool"]["ruff"]["lint"]
    off = {
        path: [r for r in rules if r.startswith("S") and not r.startswith("SLF")]
        for path, rules in lint["per-file-ignores"].items()
    }
    assert lint["select"] == ["ALL"]
    assert not [rule for rule in lint["ignore"] if rule.startswith("S")]
    # Tools start programs: S603, S606 and S607 are about that, and of low severity.
    assert {
        path: rules for path, rules in off.items() if rules and path.split("/")[0] not in ("tests", "e2e", "bench")
    } == {"tools/**": ["S603", "S606", "S607"]}


@pytest.mark.rule("SE:C12")
def test_mypy_is_strict():
    assert PYPROJECT["tool"]["mypy"]["strict"] is True
    assert "raytide" in PYPROJECT["tool"]["mypy"]["packages"]
    assert "$(BIN)/mypy\n" in (ROOT / "Makefile").read_text()
