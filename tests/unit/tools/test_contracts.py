"""Each import contract in pyproject.toml fails for an import that it forbids.

import-linter checks a copy of both packages with one added import. Only the contract under test may be broken, so each
contract is needed for its own sake.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]

LAYERS = "Layers: kinds do not import each other, api imports only diagnosis"
DECISIONS = "Decisions do no I/O and read no clock"
KOPF = "kopf only in manager.kopf_source"
KUBERNETES = "kubernetes only in kube.kubeconfig"
SIDECAR = "The sidecar reaches neither kopf nor kubernetes, nor what makes it big"
NO_SANDBOX = "The code under test imports nothing of the sandbox"
SANDBOX = "The sandbox imports only api.constants and api.quantity of the code under test"

MUTATIONS = [
    pytest.param(
        LAYERS, "raytide/raycluster/plan.py", "raytide.trainingjob.plan_types", id="a kind imports another kind"
    ),
    pytest.param(
        LAYERS, "raytide/kube/client.py", "raytide.controller.workqueue", id="a lower layer imports a higher one"
    ),
    pytest.param(LAYERS, "raytide/helpers/__init__.py", "re", id="a package without a layer"),
    pytest.param(DECISIONS, "raytide/raycluster/plan.py", "asyncio", id="a decision awaits"),
    pytest.param(
        DECISIONS, "raytide/trainingjob/backoff.py", "raytide.runtime.clock", id="a new decision reads the clock"
    ),
    pytest.param(KOPF, "raytide/manager/manager.py", "kopf", id="another module of the manager imports kopf"),
    pytest.param(KUBERNETES, "raytide/manager/main.py", "kubernetes", id="the manager imports kubernetes"),
    pytest.param(SIDECAR, "raytide/autoscaler/sidecar/main.py", "yaml", id="the sidecar imports yaml"),
    pytest.param(SIDECAR, "raytide/kube/client.py", "pydantic", id="what the sidecar imports imports pydantic"),
    pytest.param(NO_SANDBOX, "raytide/kube/client.py", "raytide_sandbox.rfc3339", id="the client uses the sandbox"),
    pytest.param(
        SANDBOX, "raytide_sandbox/kubelet/kubelet.py", "raytide.runtime.clock", id="the sandbox uses our clock"
    ),
    pytest.param(
        SANDBOX, "raytide_sandbox/apiserver/store.py", "raytide.api.merge_patch", id="the sandbox uses our values"
    ),
    pytest.param(
        SANDBOX, "raytide/api/quantity.py", "raytide.api.index_ranges", id="a module of its allow-list imports another"
    ),
]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Copy of both packages with the contracts and a cache of the unchanged modules."""
    folder = tmp_path_factory.mktemp("contracts")
    for package in ("operator/src/raytide", "sandbox/src/raytide_sandbox"):
        shutil.copytree(ROOT / package, folder / Path(package).name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def broken_contracts(folder: Path) -> list[str]:
    """Names of the contracts that import-linter reports as broken."""
    # -S: without it the editable install puts this repository's operator/src, whose raytide would be checked, on the path
    command = [
        sys.executable,
        "-S",
        "-c",
        "from importlinter.cli import lint_imports_command as run; run()",
        "--no-logo",
    ]
    path = os.pathsep.join([str(folder), *(entry for entry in sys.path if entry.endswith("-packages"))])
    run = subprocess.run(
        command, cwd=folder, env={"PYTHONPATH": path, "COLUMNS": "200"}, capture_output=True, text=True, check=False
    )
    verdicts = re.findall(r"^(.+?) (KEPT|BROKEN)(?: \(.*\))?$", run.stdout, re.MULTILINE)
    assert [name for name, _ in verdicts] == [contract["name"] for contract in CONTRACTS], run.stdout + run.stderr
    found = [name for name, result in verdicts if result == "BROKEN"]
    assert run.returncode == bool(found)
    return found


def test_all_contracts_are_kept(sources):
    assert broken_contracts(sources) == []


@pytest.mark.parametrize(("contract", "module", "imported"), MUTATIONS)
def test_a_forbidden_import_breaks_one_contract(sources, contract, module, imported):
    file = sources / module
    before = file.read_text() if file.exists() else None
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"{before or ''}\nimport {imported}\n")
    try:
        assert broken_contracts(sources) == [contract]
    finally:
        restore(file, before)


def restore(file: Path, text: str | None) -> None:
    """Undo a mutation; a module that it has created is deleted with its package."""
    if text is not None:
        file.write_text(text)
        return
    file.unlink()
    if not any(file.parent.iterdir()):
        file.parent.rmdir()


def test_each_contract_has_a_mutation():
    assert {contract["name"] for contract in CONTRACTS} == {mutation.values[0] for mutation in MUTATIONS}


def test_each_shell_imports_what_decisions_may_not():
    (decisions,) = (contract for contract in CONTRACTS if contract["name"] == DECISIONS)
    graph = grimp.build_graph("raytide", "raytide_sandbox", include_external_packages=True, cache_dir=None)
    shells = [expression.split(" -> ")[0] for expression in decisions["ignore_imports"]]
    assert [
        shell
        for shell in shells
        if not any(
            f"{imported}.".startswith(f"{forbidden}.")
            for imported in graph.find_modules_directly_imported_by(shell)
            for forbidden in decisions["forbidden_modules"]
        )
    ] == []
