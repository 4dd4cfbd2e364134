"""Criteria of OpenSSF Scorecard's file checks: they hold here, and each fails for what it is about."""

import shutil
import subprocess
from pathlib import Path

import pytest

import security_repository as repository

ROOT = Path(__file__).parents[3]
FILES = ("LICENSE", "SECURITY.md", "Dockerfile", ".github", "requirements")
RELEASE, CI = ".github/workflows/release.yaml", ".github/workflows/ci.yaml"
SECURITY, DOCS = ".github/workflows/security.yaml", ".github/workflows/docs.yaml"


@pytest.fixture
def copy(tmp_path):
    """A repository with the files that the criteria read."""
    for name in FILES:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("from hypothesis import given\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    return tmp_path


def failing(root):
    return {finding.rule for finding in repository.check(root).findings}


@pytest.mark.rule("SE:C20")
def test_all_criteria_hold(copy):
    scanned = repository.check(copy)
    assert scanned.findings == []
    assert scanned.figures == "10 of 10 criteria of OpenSSF Scorecard's file checks hold"


CHECKOUT = "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1"


@pytest.mark.rule("SE:C19", "SE:C20")
@pytest.mark.parametrize(
    ("file", "old", "new", "criterion"),
    [
        pytest.param(CI, CHECKOUT, "actions/checkout@v7", "pinned-dependencies", id="an action by its tag"),
        pytest.param("Dockerfile", "@sha256:", ":", "pinned-dependencies", id="a base image by its tag"),
        pytest.param(RELEASE, "--require-hashes ", "", "pinned-dependencies", id="pip without hashes"),
        pytest.param(CI, "permissions: {}", "permissions: write-all", "token-permissions", id="all permissions"),
        pytest.param(CI, "contents: read", "contents: write", "token-permissions", id="a test that may write"),
        pytest.param(CI, "  pull_request:", "  pull_request_target:", "dangerous-workflow", id="a dangerous trigger"),
        pytest.param(
            CI,
            "make lint verify",
            "echo ${{ github.event.issue.title }}",
            "dangerous-workflow",
            id="text of untrusted users",
        ),
        pytest.param("LICENSE", "Apache License", "Some Licence", "license", id="another licence"),
        pytest.param("SECURITY.md", "## Report a vulnerability", "## Other", "security-policy", id="no policy"),
        pytest.param(".github/dependabot.yml", "gomod", "cargo", "dependency-update-tool", id="Go is not updated"),
        pytest.param(SECURITY, "make security", "make lint", "sast", id="no scanners"),
        pytest.param("tests/test_a.py", "hypothesis", "nothing", "fuzzing", id="no fuzzing"),
        pytest.param(RELEASE, "cosign sign", "cosign version", "signed-releases", id="nothing is signed"),
        pytest.param(RELEASE, "sbom: true", "sbom: false", "signed-releases", id="an image without an SBOM"),
    ],
)
def test_a_criterion_fails(copy, file, old, new, criterion):
    text = (copy / file).read_text()
    assert old in text
    (copy / file).write_text(text.replace(old, new))
    assert failing(copy) == {criterion}


def test_a_compiled_file_is_found(copy):
    (copy / "tests" / "program").write_bytes(b"\x7fELF\x02\x01")
    subprocess.run(["git", "add", "."], cwd=copy, check=True)
    assert failing(copy) == {"binary-artifacts"}


def test_a_locks_package_without_a_hash_is_found(copy):
    (copy / "requirements" / "runtime.txt").write_text("aiohttp==3.9.1\n")
    assert failing(copy) == {"pinned-dependencies"}


def test_only_the_release_and_the_site_may_write():
    may_write = {
        f"{place} {job}"
        for place, workflow in repository.read_workflows(ROOT).items()
        for job, content in workflow["jobs"].items()
        if "write" in content["permissions"].values()
    }
    assert may_write == {*(f"{RELEASE} {job}" for job in ("image", "chart", "package", "github")), f"{DOCS} publish"}
    assert repository.read_workflows(ROOT)[DOCS]["jobs"]["publish"]["permissions"] == {
        "pages": "write",
        "id-token": "write",
    }


def test_a_published_job_runs_in_an_environment_that_can_require_an_approval():
    jobs = repository.read_workflows(ROOT)[RELEASE]["jobs"]
    assert {name for name, job in jobs.items() if "environment" in job} == {"image", "chart", "package", "github"}
    assert "id-token" not in jobs["build"]["permissions"]
