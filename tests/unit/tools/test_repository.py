"""What OpenSSF Scorecard asks of a repository's files, as far as zizmor in `make security` does not ask it."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").iterdir()}
JOBS = {(name, job): content for name, workflow in WORKFLOWS.items() for job, content in workflow["jobs"].items()}
PUBLISHING = {("release", job) for job in ("image", "chart", "package", "github")}

pytestmark = pytest.mark.rule("SE:C20")


@pytest.mark.rule("SE:C19")
def test_only_the_release_and_the_site_may_write():
    assert all(workflow["permissions"] == {} for workflow in WORKFLOWS.values())
    assert {key for key, job in JOBS.items() if "write" in job["permissions"].values()} == {
        *PUBLISHING,
        ("docs", "publish"),
    }
    assert JOBS["docs", "publish"]["permissions"] == {"pages": "write", "id-token": "write"}


def test_a_published_job_runs_in_an_environment_that_can_require_an_approval():
    assert {key for key, job in JOBS.items() if key[0] == "release" and "environment" in job} == PUBLISHING


@pytest.mark.rule("SE:C13")
def test_pip_in_workflows_installs_with_hashes():
    lines = [line for job in JOBS.values() for step in job["steps"] for line in step.get("run", "").splitlines()]
    installs = [line for line in lines if "pip install" in line]
    assert installs
    assert all("--require-hashes" in line for line in installs)


@pytest.mark.rule("SE:C13")
@pytest.mark.parametrize("lock", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda path: path.name)
def test_every_package_of_a_lock_has_a_hash(lock):
    packages = re.split(r"(?m)^(?=[A-Za-z0-9])", lock.read_text())[1:]
    assert packages
    assert [p for p in packages if not re.match(r"\S+==\S+.*--hash=sha256:", p, re.DOTALL)] == []


def test_the_release_signs_image_and_chart_and_attests_files_and_packages():
    text = (ROOT / ".github" / "workflows" / "release.yaml").read_text()
    for step in (
        "cosign sign",
        "attest-build-provenance",
        "pypi_attestations sign",
        "provenance: mode=max",
        "sbom: true",
    ):
        assert step in text


def test_scanners_run_for_each_pull_request_and_each_day_with_the_index():
    workflow = WORKFLOWS["security"]
    assert {"pull_request", "schedule"} <= set(workflow[True])  # YAML 1.1 reads `on` so
    assert {"run": "make security", "env": {"PIP_AUDIT": "1"}} in workflow["jobs"]["security"]["steps"]


def test_each_kind_of_dependency_is_updated():
    updates = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]
    assert {each["package-ecosystem"] for each in updates} >= {"pip", "github-actions", "gomod", "docker"}


def test_there_is_no_compiled_file():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in listed.split("\0") if name]
    assert [f for f in files if f.suffix in {".so", ".a", ".o", ".pyc", ".exe", ".dll", ".jar", ".whl", ".wasm"}] == []
    assert [f for f in files if f.is_file() and f.read_bytes()[:4] == b"\x7fELF"] == []


def test_licence_and_policy_are_there():
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert "## Report a vulnerability" in (ROOT / "SECURITY.md").read_text()
