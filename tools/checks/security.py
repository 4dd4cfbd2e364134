"""`make security`: chart, image, workflows, code, dependencies and repository, looked at by scanners from package registries.

Prints a line per scanner with what it counted, and each finding that tools/checks/security_accepted.toml does not list with
a reason. Exit code 1 with such a finding, 2 if a scanner could not run. The checks are SE:C1 to SE:C25; the table in
SECURITY.md, written by tools/generators/security.py, says which of them this proves. `PIP_AUDIT=1` also asks the package index for
known vulnerabilities, where it can be reached.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import go_build
import kube_tools
import security_advisories
import security_chart
import security_findings
import security_repository
import security_scanners
import security_tools
from raytide_sandbox.controlplane.component import ControlPlaneError
from security_findings import Finding
from security_scanners import ScanError, Scanned, Scene

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "raytide"
KUBERNETES = "1.35.0"
DIGEST = f"sha256:{'0' * 64}"
VALUES = {
    "default": (),
    "namespaced": ("watchNamespaces={tenant-a,tenant-b}", "rbac.readNodes=false"),
    "hardened": (
        "replicas=2",
        "networkPolicy.apiServer={10.96.0.1/32}",
        f"image.digest={DIGEST}",
        "image.pullPolicy=Always",
        "ui.enabled=true",
    ),
}
"""The renderings of the chart: as installed without values, in two namespaces only, and with all that protects and the page."""
SKIPPED = ("--skip-tests",)
"""The pod of `helm test` is no part of an installation, and ends by itself: probes would be wrong."""
AT_ONCE = 2
LOCKS = (
    "runtime.txt",
    "image.txt",
    "dev.txt",
    "build.txt",
    "uv.txt",
    "paddle.txt",
    "security.txt",
    "checkov.txt",
    "release.txt",
    "docs.txt",
)
Scanner = Callable[[Scene], Scanned]


def render(folder: Path) -> dict[str, Path]:
    """The chart with each set of values; raises ScanError if helm refuses one."""
    helm = kube_tools.find_tool("helm")
    renderings = {}
    for name, values in VALUES.items():
        options = [word for value in values for word in ("--set", value)]
        command = [
            helm,
            "template",
            "raytide",
            CHART,
            "--namespace",
            "raytide",
            "--kube-version",
            KUBERNETES,
            *SKIPPED,
            *options,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ScanError(f"helm template with {name} values: {done.stderr.strip()}")
        renderings[name] = folder / f"{name}.yaml"
        renderings[name].write_text(done.stdout)
    return renderings


def advisories(_: Scene) -> Scanned:
    """The locks against a stored advisory database (SE:C14)."""
    try:
        database = security_advisories.find_database()
    except security_advisories.DatabaseMissingError as error:
        return Scanned(f"not compared: {error}", [], is_complete=False)
    compared = security_advisories.compare(database, [ROOT / "requirements" / name for name in LOCKS])
    age = (datetime.now(UTC) - compared.newest).days
    figures = f"{compared.packages} packages, {compared.records:,} advisories, the newest {age} days old"
    return Scanned(figures, compared.findings)


def pip_audit(scene: Scene) -> Scanned:
    """The runtime lock against the package index; fails where the index has no advisories (SE:C14)."""
    lock = ROOT / "requirements" / "runtime.txt"
    command = (
        scene.packages / "pip-audit",
        "--strict",
        "--disable-pip",
        "--progress-spinner=off",
        "-f",
        "json",
        "-r",
        lock,
    )
    report = security_scanners.run_json(scene, *command)
    findings = [
        Finding("pip-audit", each["id"], "requirements/runtime.txt", f"{package['name']} {package['version']}")
        for package in report["dependencies"]
        for each in package["vulns"]
    ]
    return Scanned(f"{len(report['dependencies'])} packages", findings)


def chart_rules(scene: Scene) -> Scanned:
    """Rules of kube-linter (SE:C2)."""
    return security_chart.check(scene)


def repository(scene: Scene) -> Scanned:
    """What OpenSSF Scorecard asks of a repository's files (SE:C20)."""
    return security_repository.check(scene.root)


def scan(scene: Scene, scanners: tuple[Scanner, ...]) -> dict[str, Scanned]:
    """Run all of them, two at once, and print a line for each when it has ended; returns the results by name."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = [(scanner.__name__.replace("_", "-"), pool.submit(_timed, scanner, scene)) for scanner in scanners]
        return {name: _print(name, future) for name, future in running}


def _timed(scanner: Scanner, scene: Scene) -> tuple[Scanned, float]:
    started = time.monotonic()
    return scanner(scene), time.monotonic() - started


def _print(name: str, future: Future[tuple[Scanned, float]]) -> Scanned:
    scanned, took_s = future.result()
    print(f"{name:<15}{scanned.figures}; {len(scanned.findings)} found ({took_s:.1f} s)", flush=True)
    return scanned


def main() -> int:
    """Run everything; the exit code is for make."""
    started = time.monotonic()
    scanners: list[Scanner] = [*security_scanners.ALL, chart_rules, repository, advisories]
    if os.environ.get("PIP_AUDIT", "0") not in ("", "0"):
        scanners.append(pip_audit)
    try:
        programs = security_tools.provide_programs()
        packages, checkov = (security_tools.provide_packages(lock) for lock in ("security.txt", "checkov.txt"))
        with tempfile.TemporaryDirectory(prefix="raytide-security-") as folder:
            renderings = render(Path(folder))
            scanned = scan(Scene(ROOT, programs, packages, checkov, renderings, Path(folder)), tuple(scanners))
    except go_build.GoMissingError as error:
        print(f"{error}: install it (https://go.dev/dl)", file=sys.stderr)
        return 2
    except (
        go_build.BuildError,
        security_tools.PackagesMissingError,
        kube_tools.ToolMissingError,
        ControlPlaneError,
        ScanError,
    ) as error:
        print(error, file=sys.stderr)
        return 2
    return report(scanned, time.monotonic() - started)


def report(scanned: dict[str, Scanned], took_s: float) -> int:
    """Print what is new and the sum; the exit code."""
    findings = [finding for each in scanned.values() for finding in each.findings]
    result = security_findings.split(findings, security_findings.read_list())
    for entry in result.unused:
        if entry.scanner in scanned and scanned[entry.scanner].is_complete:
            where = f"{entry.scanner} {entry.rule} {entry.place}"
            print(f"no longer found, remove it from {security_findings.LIST.name}: {where}")
    for finding in result.new:
        print(f"NEW  {finding}")
    print(f"security: {len(result.new)} new findings, {len(result.accepted)} accepted with a reason ({took_s:.1f} s)")
    return 1 if result.new else 0


if __name__ == "__main__":
    sys.exit(main())
