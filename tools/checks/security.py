"""Run all scanners of `make security`; the exit code is 1 if one fails.

Exceptions have their reasons beside them: of checkov in .checkov.yaml, of zizmor and detect-secrets in the lines that they apply to, of
the others in their options below. ruff, with the rules of bandit, is part of `make lint`. Without Go, helm or the package registry,
"not run" is printed; the exit code is then 0, with RAYTIDE_ALL_RUN 1. `PIP_AUDIT=1` also queries PyPI for known vulnerabilities
of all locks, which mirrors that serve only packages do not have.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import go_build
import kube_tools
import security_tools

ROOT = Path(__file__).resolve().parents[2]
DIGEST = f"sha256:{'0' * 64}"
VALUES = {
    "default": "replicas=1",
    "namespaced": "watchNamespaces={tenant-a,tenant-b},rbac.readNodes=false",
    "hardened": f"replicas=2,networkPolicy.apiServer={{10.96.0.1/32}},image.digest={DIGEST},image.pullPolicy=Always,ui.enabled=true",
}
"""Values of the renderings of the chart: defaults, two namespaces only, and all security options with the page."""
CHART = ("--namespace", "raytide", "--kube-version", "1.35.0", "--skip-tests")
"""Without the pod of `helm test`, which is not part of an installation and must not have probes."""
KUBE_SCORE = (
    # A tag is never pushed twice: IfNotPresent starts the same image, without a registry. A value changes the policy.
    "--ignore-test=container-image-pull-policy",
    # The root file system is read-only and there is no emptyDir: the operator writes only its log, which the kubelet rotates. With
    # a limit, the operator would be evicted for its log. The value `resources` can set one.
    "--ignore-test=container-ephemeral-storage-request-and-limit",
    # The policy for hooks selects the pod of `helm test`, which is not rendered here, and the job for CRDs, which does not exist
    # with `watchNamespaces`. tests/unit/chart/test_chart.py checks what policies select.
    "--ignore-test=networkpolicy-targets-pod",
)
SECRETS = (
    # Finds field names only; ruff's S105 to S107 find passwords in code.
    "--disable-plugin=KeywordDetector",
    # Hashes, pictures and recordings have entropy without secrets. The recordings are of a control plane that ended with its test.
    r"--exclude-files=^requirements/|^docs/figures/|^tests/golden/|(^|/)go\.sum$|^tools/generators/kubernetes-types\.json$",
    # Made-up secrets of each format, which the bundle of raytide diagnose must not contain.
    r"--exclude-files=^tests/unit/cli/test_diagnose_redaction\.py$",
    # The letters of generated names, as in Kubernetes.
    "--exclude-secrets=^bcdfghjklmnpqrstvwxz2456789$",
)
PIP_AUDIT = (
    # PaddlePaddle in tests and demos: code injection in paddle.audio, which they do not use. 2.6 is the last series whose wheels
    # have the parameter server.
    "--ignore-vuln=PYSEC-2022-43063",
)


@dataclass(frozen=True, slots=True)
class Programs:
    """Folders with programs, and the path of helm."""

    built: Path
    packages: Path
    checkov: Path
    helm: Path


def provide() -> Programs:
    """All programs, installed at the first call; raises GoMissingError, PackagesMissingError or BuildError."""
    packages, checkov = (security_tools.provide_packages(lock) for lock in ("security.txt", "checkov.txt"))
    return Programs(security_tools.provide_programs(), packages, checkov, kube_tools.provide()["helm"])


def commands(programs: Programs, charts: list[Path], *, asks_index: bool) -> Iterator[list[str | Path]]:
    """The command line of each scanner; `charts` are files with the renderings."""
    yield [programs.packages / "zizmor", "--offline", "--no-progress", "--persona=pedantic", ".github"]
    yield [programs.built / "actionlint", "-shellcheck=", "-pyflakes="]
    for chart in charts:
        yield [programs.built / "kube-score", "score", *KUBE_SCORE, chart]
    yield [programs.checkov / "checkov", "--config-file=.checkov.yaml", "-f", *charts, "Dockerfile"]
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    searched = [name for name in files if (ROOT / name).is_file()]
    yield [programs.packages / "detect-secrets-hook", "--no-verify", *SECRETS, *searched]
    for lock in sorted((ROOT / "requirements").glob("*.txt")) if asks_index else ():
        options = ("--strict", "--disable-pip", "--require-hashes", "--progress-spinner=off")
        yield [programs.packages / "pip-audit", *options, *PIP_AUDIT, "-r", lock]


def main() -> int:
    """Run all scanners; returns the exit code."""
    asks_index = os.environ.get("PIP_AUDIT", "0") not in ("", "0")
    try:
        programs = provide()
    except (go_build.GoMissingError, security_tools.PackagesMissingError) as error:
        print(f"security: not run ({error}; Go is at https://go.dev/dl)")
        return 1 if os.environ.get("RAYTIDE_ALL_RUN") else 0
    except go_build.BuildError as error:
        sys.exit(str(error))
    failed = []
    with tempfile.TemporaryDirectory(prefix="raytide-security-") as folder:
        charts = [Path(folder, f"{name}.yaml") for name in VALUES]
        for chart in charts:
            command = [programs.helm, "template", "raytide", ROOT / "helm" / "raytide", *CHART]
            with chart.open("w") as file:
                subprocess.run([*command, "--set", VALUES[chart.stem]], stdout=file, check=True)
        for command in commands(programs, charts, asks_index=asks_index):
            name = " ".join(word.name for word in (command[0], command[-1]) if isinstance(word, Path))
            print(f"=== {name}", flush=True)
            if subprocess.run(command, cwd=ROOT, check=False).returncode:
                failed.append(name)
    if not asks_index:
        print("=== pip-audit: not run (PIP_AUDIT=1 queries PyPI)")
    print(f"security: failed: {', '.join(failed)}" if failed else "security: all scanners passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
