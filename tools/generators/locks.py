"""Resolve pyproject.toml into the locks in `requirements/`.

Locks have hashes and no registry address, so that each machine uses its own registry. Called by `make generate LOCKS=1`; the
result is committed.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).parent / "uv"
PADDLE = "paddlepaddle==2.6.2\nprotobuf==4.25.3\nnumpy<2\nsetuptools<80\n"
"""Of the environment of tools/builders/paddle_env.py: the last wheel with parameter servers, and compatible dependencies."""

SCANNERS = "detect-secrets\npip-audit\nzizmor\n"
"""Of an environment of tools/builders/security_tools.py."""

CHECKOV = "checkov\n"
"""Of another environment: checkov pins old versions, and its package bc-detect-secrets overwrites files of detect-secrets."""

SITE = "mkdocs-material\n"
"""Of the environment that builds the documentation site (tools/builders/docs_site.py)."""

RELEASE = "build\ncyclonedx-bom[validation]\npypi-attestations\ntwine\nuv\n"
"""Of the environment that builds, signs and uploads a release."""

NOT_IN_PODS = ("kubernetes", "rich")
"""Dependencies that are not in the container image. kube/kubeconfig.py reads kubeconfigs, which pods do not have, with the first; with
its dependencies it is two thirds of the installed size. `raytide top` draws in terminals with the second."""

PLAIN = ["--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url"]


def compile_lock(
    source: str, target: str, *options: str, stdin: str | None = None, machines: str = "--universal"
) -> None:
    """Write one lock."""
    command = [str(UV), "pip", "compile", "--quiet", *PLAIN, machines, "--python-version", "3.11", *options, source]
    subprocess.run([*command, "-o", f"requirements/{target}"], cwd=ROOT, check=True, input=stdin, text=True)


def image_requirements() -> str:
    """The dependencies of the package without `NOT_IN_PODS`, one per line."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = re.compile(r"[\w.-]+")
    return "".join(f"{line}\n" for line in project["dependencies"] if names.findall(line)[0] not in NOT_IN_PODS)


if __name__ == "__main__":
    compile_lock("pyproject.toml", "runtime.txt")
    compile_lock("-", "image.txt", "--constraint", "requirements/runtime.txt", stdin=image_requirements())
    compile_lock("pyproject.toml", "dev.txt", "--extra", "dev", "sandbox/pyproject.toml")
    compile_lock("-", "build.txt", "--constraint", "requirements/dev.txt", stdin="hatchling\nhatch-fancy-pypi-readme\n")
    compile_lock("-", "uv.txt", stdin="uv\n")
    compile_lock("-", "security.txt", stdin=SCANNERS)
    compile_lock("-", "checkov.txt", stdin=CHECKOV)
    compile_lock("-", "docs.txt", stdin=SITE)
    compile_lock("-", "release.txt", "--constraint", "requirements/uv.txt", stdin=RELEASE)
    compile_lock("-", "paddle.txt", stdin=PADDLE, machines="--python-platform=x86_64-unknown-linux-gnu")
