"""Scanners of `make security`, and packages of `make release` and `make site`: built with Go, or in virtual environments.

kube-score and actionlint are built from tests/controlplane/tools/security. Each lock in requirements/ has an environment of its
own: security.txt (detect-secrets, pip-audit, zizmor), checkov.txt, release.txt (cyclonedx-py and what signs a release) and docs.txt
(mkdocs). All are kept in the cache folder by a hash of go.mod and go.sum, or of the lock.
"""

import hashlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import environments
import go_build
from build_cache import cache_folder

MODULE = go_build.MODULE / "tools" / "security"
PACKAGES = {
    "actionlint": "github.com/rhysd/actionlint/cmd/actionlint",
    "kube-score": "github.com/zegl/kube-score/cmd/kube-score",
}
REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements"


class PackagesMissingError(Exception):
    """The Python packages could not be installed; uv has printed why."""


def provide_programs(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder with the Go programs, built at the first call; raises GoMissingError or BuildError."""
    return go_build.build_missing(cache_folder("security-programs", environ), MODULE, PACKAGES)


def provide_packages(lock: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder with the commands of a lock in requirements/; raises PackagesMissingError."""
    file = REQUIREMENTS / lock
    name = f"{file.stem}-{hashlib.sha256(file.read_bytes()).hexdigest()[:12]}"
    try:
        folder = cache_folder("python", environ) / name
        return environments.provide(folder, "--require-hashes", "-r", file).parent
    except subprocess.CalledProcessError as error:
        raise PackagesMissingError(f"the packages of requirements/{lock} could not be installed") from error
