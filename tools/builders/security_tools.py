"""Scanners of `make security` and tools of `make release`: programs built with Go, and Python packages with environments of their own.

kube-score and actionlint come from the Go module proxy, with the versions that tests/controlplane/tools/security
pins; detect-secrets, pip-audit and zizmor are locked in requirements/security.txt, checkov in requirements/checkov.txt,
cyclonedx-py and what signs a release in requirements/release.txt, mkdocs of `make site` in requirements/docs.txt. All are kept in the user's cache folder, by a digest of these files; a second call builds nothing.
"""

import hashlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import environments
import go_build

MODULE = go_build.MODULE / "tools" / "security"
PACKAGES = {
    "actionlint": "github.com/rhysd/actionlint/cmd/actionlint",
    "kube-score": "github.com/zegl/kube-score/cmd/kube-score",
}
REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements"


class PackagesMissingError(Exception):
    """The Python packages could not be installed; uv has printed why."""


def provide_programs(environ: Mapping[str, str] = os.environ, module: Path = MODULE) -> Path:
    """The folder with the Go programs, built where they are missing; raises GoMissingError or BuildError."""
    files = [module / "go.mod", module / "go.sum"]
    cache = environments.cache_folder("security-programs", environ)
    folder = cache / go_build.digest(files, go_build.go_version(module)) / "bin"
    with go_build.locked(cache):
        for name, package in PACKAGES.items():
            if not (folder / name).exists():
                print(f"building {name} with Go (a minute for all on two cores) …", flush=True)
                go_build.build(module, package, folder / name)
    return folder


def provide_packages(lock: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder with the commands of a lock in requirements/; raises PackagesMissingError."""
    file = REQUIREMENTS / lock
    name = f"{file.stem}-{hashlib.sha256(file.read_bytes()).hexdigest()[:12]}"
    try:
        folder = environments.cache_folder("python", environ) / name
        return environments.provide(folder, "--require-hashes", "-r", file).parent
    except subprocess.CalledProcessError as error:
        raise PackagesMissingError(f"the packages of requirements/{lock} could not be installed") from error
