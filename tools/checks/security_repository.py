"""What OpenSSF Scorecard asks of a repository's files, checked without its program, which the Go module proxy does not have.

Ten criteria, each a function that returns what is missing: pinned dependencies, token permissions, dangerous workflows, binaries,
licence, security policy, dependency updates, static analysis, fuzzing, signed releases. Criteria about accounts, reviews and past
releases need the repository's host, and are not checked. Used by security.py; SE:C20.
"""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from security_findings import Finding
from security_scanners import Scanned

Json = dict[str, Any]
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")
UNTRUSTED = re.compile(r"\$\{\{[^}]*\b(?:github\.(?:event|head_ref|ref_name)|inputs)\b")
"""Text that an untrusted user may choose; in a script it would be part of the program."""
BINARY_SUFFIXES = (".so", ".a", ".o", ".pyc", ".exe", ".dll", ".dylib", ".jar", ".class", ".whl", ".wasm")
MAY_WRITE = {
    ".github/workflows/release.yaml": {
        "actions",
        "checks",
        "contents",
        "deployments",
        "packages",
        "statuses",
        "id-token",
        "attestations",
    },
    ".github/workflows/docs.yaml": {"pages", "id-token"},
}
"""Workflows that publish, and what their jobs may write."""


def check(root: Path) -> Scanned:
    """All criteria; the figures have how many hold."""
    missing = {name: list(criterion(root)) for name, criterion in CRITERIA.items()}
    findings = [Finding("repository", name, place, text) for name, found in missing.items() for place, text in found]
    held = sum(not found for found in missing.values())
    return Scanned(f"{held} of {len(CRITERIA)} criteria of OpenSSF Scorecard's file checks hold", findings)


def read_workflows(root: Path) -> dict[str, Json]:
    """Every workflow by its path; `on` is read as True, as YAML 1.1 has it."""
    folder = root / ".github" / "workflows"
    return {str(path.relative_to(root)): yaml.safe_load(path.read_text()) for path in sorted(folder.iterdir())}


def _steps(workflow: Json) -> Iterator[Json]:
    for job in workflow["jobs"].values():
        yield from job.get("steps", [])


def pinned_dependencies(root: Path) -> Iterator[tuple[str, str]]:
    """Actions by commit, base images by digest, packages by hash."""
    for place, workflow in read_workflows(root).items():
        for step in _steps(workflow):
            if "uses" in step and not PINNED.fullmatch(step["uses"]):
                yield place, f"{step['uses']} is not pinned by its commit"
            installs = re.findall(r"pip install .*", step.get("run", ""))
            yield from ((place, f"without hashes: {line}") for line in installs if "--require-hashes" not in line)
    dockerfile = (root / "Dockerfile").read_text()
    for image in re.findall(r"(?m)^ARG \w+=(\S*[/:]\S*)", dockerfile):
        if "@sha256:" not in image:
            yield "Dockerfile", f"{image} is not pinned by its digest"
    for lock in sorted((root / "requirements").glob("*.txt")):
        if unpinned := re.findall(r"(?m)^\S+==\S+(?! *(?:;.*)?\\)$", lock.read_text()):
            yield f"requirements/{lock.name}", f"without a hash: {unpinned[0]}"


def token_permissions(root: Path) -> Iterator[tuple[str, str]]:
    """No permission for a whole workflow, and writes only where a release or the site is published."""
    for place, workflow in read_workflows(root).items():
        if workflow.get("permissions") != {}:
            yield place, "permissions of the whole workflow are not {}"
        for name, job in workflow["jobs"].items():
            granted = job.get("permissions")
            if not isinstance(granted, dict):
                yield place, f"job {name} has no permissions of its own"
            elif refused := {key for key, value in granted.items() if value == "write"} - MAY_WRITE.get(place, set()):
                yield place, f"job {name} may write {', '.join(sorted(refused))}"


def dangerous_workflows(root: Path) -> Iterator[tuple[str, str]]:
    """No trigger that gives untrusted users a token, and no text of theirs in a script."""
    for place, workflow in read_workflows(root).items():
        triggers = workflow.get(True) or workflow.get("on") or {}
        yield from ((place, f"trigger {name}") for name in ("pull_request_target", "workflow_run") if name in triggers)
        for step in _steps(workflow):
            if UNTRUSTED.search(step.get("run", "")):
                yield place, f"a script contains text that others choose: {step['run'].splitlines()[0]}"


def binaries(root: Path) -> Iterator[tuple[str, str]]:
    """No compiled file."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    for name in listed.split("\0"):
        path = root / name
        if name.endswith(BINARY_SUFFIXES) or (name and path.is_file() and path.read_bytes()[:4] == b"\x7fELF"):
            yield name, "a compiled file"


def licence(root: Path) -> Iterator[tuple[str, str]]:
    """A licence file with the text of the licence that the metadata names."""
    if "Apache License" not in (root / "LICENSE").read_text():
        yield "LICENSE", "not the text of the Apache License"


def security_policy(root: Path) -> Iterator[tuple[str, str]]:
    """SECURITY.md says how to report a vulnerability."""
    if "## Report a vulnerability" not in (root / "SECURITY.md").read_text():
        yield "SECURITY.md", "does not say how to report a vulnerability"


def dependency_updates(root: Path) -> Iterator[tuple[str, str]]:
    """Dependabot looks after each kind of dependency."""
    file = root / ".github" / "dependabot.yml"
    watched = {each["package-ecosystem"] for each in yaml.safe_load(file.read_text())["updates"]}
    for missing in sorted({"pip", "github-actions", "gomod", "docker"} - watched):
        yield ".github/dependabot.yml", f"{missing} is not updated"


def static_analysis(root: Path) -> Iterator[tuple[str, str]]:
    """A workflow runs the scanners for each pull request."""
    for workflow in read_workflows(root).values():
        triggers = workflow.get(True) or {}
        if "pull_request" in triggers and any("make security" in step.get("run", "") for step in _steps(workflow)):
            return
    yield ".github/workflows", "no workflow runs make security for pull requests"


def fuzzing(root: Path) -> Iterator[tuple[str, str]]:
    """Property-based tests with Hypothesis exist."""
    if not any("from hypothesis import" in path.read_text() for path in (root / "tests").rglob("test_*.py")):
        yield "tests", "no test uses Hypothesis"


def signed_releases(root: Path) -> Iterator[tuple[str, str]]:
    """The release workflow signs the image and the chart, and attests files and packages."""
    place = ".github/workflows/release.yaml"
    text = (root / place).read_text()
    for needed in (
        "cosign sign",
        "attest-build-provenance",
        "pypi_attestations sign",
        "provenance: mode=max",
        "sbom: true",
    ):
        if needed not in text:
            yield place, f"{needed} is missing"


CRITERIA: dict[str, Callable[[Path], Iterator[tuple[str, str]]]] = {
    "pinned-dependencies": pinned_dependencies,
    "token-permissions": token_permissions,
    "dangerous-workflow": dangerous_workflows,
    "binary-artifacts": binaries,
    "license": licence,
    "security-policy": security_policy,
    "dependency-update-tool": dependency_updates,
    "sast": static_analysis,
    "fuzzing": fuzzing,
    "signed-releases": signed_releases,
}
