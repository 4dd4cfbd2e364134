"""The scanners of `make security`: each runs one program and returns what it counted and found.

A scanner takes a `Scene` (repository, programs, rendered chart) and returns a `Scanned`. Exit codes of the programs do not
matter, their reports do: a report that cannot be read raises ScanError. Used by security.py.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import security_schemas
from environments import cache_folder
from security_findings import Finding

Json = dict[str, Any]
PYTHON_CODE = ("operator/src", "sandbox/src", "tools", "samples")
NOT_SEARCHED = (
    "requirements/",
    "docs/figures/",
    "tests/golden/",
    "tests/controlplane/go.sum",
    "tools/generators/kubernetes-types.json",
)
"""Hashes, pictures and recordings: entropy without secrets. The recordings are of a control plane that ended with its test."""


class ScanError(Exception):
    """A scanner did not run to its end."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What the scanners look at, and where their programs are."""

    root: Path
    programs: Path
    """kube-score, kubeconform and actionlint."""
    packages: Path
    """Commands of requirements/security.txt."""
    checkov: Path
    """Commands of requirements/checkov.txt."""
    renderings: dict[str, Path]
    """The chart as YAML, by the name of its values."""
    folder: Path
    """For temporary files."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """Result of a scanner."""

    figures: str
    findings: list[Finding]
    is_complete: bool = True
    """False if there was nothing to compare with."""


def run(scene: Scene, *command: str | Path, folder: Path | None = None) -> str:
    """Standard output of a program that ends by itself, whatever its exit code; raises ScanError without any."""
    words = [str(word) for word in command]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(words, cwd=folder or scene.root, env=environ, capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        errors = "\n".join(done.stderr.strip().splitlines()[-10:])
        raise ScanError(f"{Path(words[0]).name} ended with {done.returncode} and no report: {errors}")
    return done.stdout


def run_json(scene: Scene, *command: str | Path, folder: Path | None = None) -> Any:
    """The report of a program that writes JSON."""
    report = run(scene, *command, folder=folder)
    try:
        return json.loads(report)
    except ValueError as error:
        raise ScanError(f"{Path(command[0]).name} wrote no JSON: {report[:400]}") from error


def bandit(scene: Scene) -> Scanned:
    """Python code (SE:C11): findings of medium and high severity."""
    report = run_json(scene, scene.packages / "bandit", "-q", "-ll", "-f", "json", "-r", *PYTHON_CODE)
    return read_bandit(report, scene.root)


def read_bandit(report: Json, root: Path) -> Scanned:
    """Findings in bandit's report, without those whose line has a `noqa` for the same rule of ruff, with its reason."""
    if report["errors"]:
        raise ScanError(f"bandit could not read {report['errors'][0]}")
    findings, in_line = [], 0
    for each in report["results"]:
        line = (root / each["filename"]).read_text().splitlines()[each["line_number"] - 1]
        if re.search(rf"# noqa:.*\bS{each['test_id'][1:]}\b", line):
            in_line += 1
            continue
        text = f"line {each['line_number']}: {each['issue_text']}"
        findings.append(Finding("bandit", each["test_id"], each["filename"], text))
    return Scanned(f"{report['metrics']['_totals']['loc']:,} lines, {in_line} accepted in the line", findings)


def checkov(scene: Scene) -> Scanned:
    """Chart and Dockerfile (SE:C1, SE:C18)."""
    stage = scene.folder / "checkov"
    (stage / "chart").mkdir(parents=True)
    for name, rendering in scene.renderings.items():
        shutil.copy(rendering, stage / "chart" / f"{name}.yaml")
    shutil.copy(scene.root / "Dockerfile", stage)
    kinds = ("kubernetes", "dockerfile")
    command = ("checkov", "--skip-download", "--compact", "--quiet", "-o", "json", "-d", ".", "--framework")
    return read_checkov(run_json(scene, scene.checkov / command[0], *command[1:], *kinds, folder=stage))


def read_checkov(report: Any) -> Scanned:
    """Findings in checkov's reports; raises ScanError if it parsed nothing of one kind."""
    reports = report if isinstance(report, list) else [report]
    figures, findings = [], []
    for each in reports:
        if "check_type" not in each or each["summary"]["parsing_errors"]:
            raise ScanError(f"checkov could not read everything: {json.dumps(each)[:400]}")
        counted = each["summary"]
        skipped = f", {counted['skipped']} skipped in the file" if counted["skipped"] else ""
        figures.append(f"{each['check_type']} {counted['passed']} passed{skipped}")
        for failed in each["results"]["failed_checks"]:
            place = f"{failed['file_path'].lstrip('/')} {failed['resource']}"
            findings.append(Finding("checkov", failed["check_id"], place, failed["check_name"]))
    return Scanned("; ".join(figures), findings)


def kube_score(scene: Scene) -> Scanned:
    """Objects of the rendered chart (SE:C3): findings that are critical."""
    passed, findings = 0, []
    for name, rendering in scene.renderings.items():
        report = run_json(scene, scene.programs / "kube-score", "score", "--output-format", "json", rendering)
        scanned = read_kube_score(name, report)
        passed += int(scanned.figures)
        findings += scanned.findings
    return Scanned(f"{passed} passed", findings)


def read_kube_score(name: str, report: Sequence[Json]) -> Scanned:
    """Number of passed checks, and the critical findings of one rendering."""
    passed, findings = 0, []
    for checked in report:
        for check in checked["checks"]:
            if check["skipped"]:
                continue
            if check["grade"] > 1:  # 1: critical, 5: warning, 7 and more: fine
                passed += check["grade"] > 5
                continue
            texts = "; ".join(comment["summary"] for comment in check["comments"])
            place = f"{name} {checked['object_name']}"
            findings.append(Finding("kube-score", check["check"]["id"], place, texts))
    return Scanned(str(passed), findings)


def kubeconform(scene: Scene) -> Scanned:
    """Chart, CRDs and samples against the schemas of a real API server (SE:C4)."""
    schemas = security_schemas.provide(scene.root / "crds")
    location = ("-schema-location", f"{schemas}/{security_schemas.LOCATION}")
    files = [
        *scene.renderings.values(),
        *(scene.root / "crds").glob("*.yaml"),
        *(scene.root / "samples").glob("*.yaml"),
    ]
    options = ("-strict", "-summary", "-output", "json")
    return read_kubeconform(run_json(scene, scene.programs / "kubeconform", *options, *location, *files))


def read_kubeconform(report: Json) -> Scanned:
    """Findings in kubeconform's report: also what it skipped."""
    findings = [
        Finding(
            "kubeconform", each["status"], f"{Path(each['filename']).name} {each['kind']}/{each['name']}", each["msg"]
        )
        for each in report["resources"]
    ]
    counted = report["summary"]
    if counted["skipped"]:
        findings.append(Finding("kubeconform", "statusSkipped", "all files", f"{counted['skipped']} objects"))
    return Scanned(f"{counted['valid']} objects valid", findings)


def zizmor(scene: Scene) -> Scanned:
    """Workflows and the configuration of Dependabot (SE:C19)."""
    command = (
        scene.packages / "zizmor",
        "--offline",
        "--no-progress",
        "--persona",
        "pedantic",
        "--format",
        "json",
        ".github",
    )
    return read_zizmor(run_json(scene, *command), len(workflows(scene.root)))


def read_zizmor(report: Sequence[Json], files: int) -> Scanned:
    """Findings in zizmor's report."""
    findings = []
    for each in report:
        place = each["locations"][0]["symbolic"]["key"]["Local"]["given_path"]
        findings.append(Finding("zizmor", each["ident"], place, each["desc"]))
    return Scanned(f"{files} workflows", findings)


def actionlint(scene: Scene) -> Scanned:
    """Syntax, expressions and types of the workflows."""
    command = (scene.programs / "actionlint", "-shellcheck=", "-pyflakes=", "-format", "{{json .}}")
    files = workflows(scene.root)
    report = run_json(scene, *command, *files)
    findings = [
        Finding("actionlint", each["kind"], str(Path(each["filepath"])), f"line {each['line']}: {each['message']}")
        for each in report
    ]
    return Scanned(f"{len(files)} workflows", findings)


def workflows(root: Path) -> list[Path]:
    """The workflows' files, relative to the root."""
    return sorted(path.relative_to(root) for path in (root / ".github" / "workflows").iterdir())


def detect_secrets(scene: Scene) -> Scanned:
    """All files of the repository (SE:C15).

    Results are kept by content, because a full search takes half a minute. Its rule for words such as `secret` is off: it
    finds names of fields only, and ruff's S105 to S107 look for passwords in code.
    """
    listed = run(scene, "git", "ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0")
    files = [name for name in listed if name and _is_searched(scene.root / name, name)]
    cache = cache_folder("secrets-scan") / f"{scene.packages.parent.name}-2.json"
    known: dict[str, list[list[Any]]] = json.loads(cache.read_text()) if cache.exists() else {}
    keys = {name: _key(name, (scene.root / name).read_bytes()) for name in files}
    changed = [name for name in files if keys[name] not in known]
    found = _search(scene, changed)
    results = {keys[name]: found.get(name, known.get(keys[name], [])) for name in files}
    cache.parent.mkdir(parents=True, exist_ok=True)
    new = cache.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps(results))
    new.replace(cache)
    findings = [
        Finding("detect-secrets", kind, name, f"line {line}") for name in files for kind, line in results[keys[name]]
    ]
    return Scanned(f"{len(files)} files, {len(changed)} of them new", findings)


def _is_searched(path: Path, name: str) -> bool:
    return path.is_file() and not path.is_symlink() and not name.startswith(NOT_SEARCHED) and path.name != "go.sum"


def _key(name: str, content: bytes) -> str:
    return hashlib.sha256(name.encode() + b"\0" + content).hexdigest()


def _search(scene: Scene, files: Sequence[str]) -> dict[str, list[list[Any]]]:
    """Kind and line of what looks like a secret, by file."""
    if not files:
        return {}
    options = ("--no-verify", "--disable-plugin", "KeywordDetector")
    report = run_json(scene, scene.packages / "detect-secrets", "scan", *options, *files)
    found: dict[str, list[list[Any]]] = {name: [] for name in files}
    for name, results in report["results"].items():
        found[name] = [[each["type"], each["line_number"]] for each in results]
    return found


ALL = (bandit, checkov, kube_score, kubeconform, zizmor, actionlint, detect_secrets)
