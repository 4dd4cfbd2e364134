"""Build what a release publishes, except the image, in `dist/`: wheel, source distribution, chart, SBOMs and their hashes.

`python tools/builders/release.py [--tag v0.1.0]` publishes nothing. It fails if the tag is not the version, if the changelog has
no section for it, or if twine rejects the metadata. Called by `make release` and by the release workflow;
docs/contributing/release.md has the steps.
"""

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import kube_tools
import sbom
import security_tools
from raytide.api.constants import VERSION

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
SUMS = "SHA256SUMS"


class ReleaseError(Exception):
    """The release cannot be built; the message has the fix."""


def check_tag(tag: str, version: str, changelog: str) -> None:
    """Raise ReleaseError unless the tag is the version and the changelog has a section for it."""
    if tag != f"v{version}":
        raise ReleaseError(f"the tag {tag} is not v{version}: change VERSION in raytide/api/constants.py, or the tag")
    if not re.search(rf"(?m)^## {re.escape(version)}(?:\s|$)", changelog):
        raise ReleaseError(f"CHANGELOG.md has no section `## {version}`: rename `## Unreleased`")


def run(*command: str | Path) -> None:
    """Run a command; raises ReleaseError with the end of its output if it fails."""
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        output = (done.stdout + done.stderr).strip()
        raise ReleaseError(f"{Path(command[0]).name} {command[1]} failed: {output[-2000:]}")


def build(target: Path) -> list[Path]:
    """Build all files in `target`, which is emptied first; raises ReleaseError and the errors of the builders."""
    packages, helm = security_tools.provide_packages("release.txt"), kube_tools.find_tool("helm")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    pins = ("--build-constraints", ROOT / "requirements" / "build.txt")
    run(packages / "uv", "build", "--quiet", "--no-config", *pins, "--require-hashes", "--out-dir", target, ROOT)
    (target / ".gitignore").unlink(missing_ok=True)
    run(packages / "twine", "check", "--strict", *sorted(target.iterdir()))
    run(helm, "package", ROOT / "helm" / "raytide", "--destination", target)
    (target / f"raytide-{VERSION}.tgz").rename(target / f"raytide-chart-{VERSION}.tgz")
    sbom.write(target, packages)
    files = sorted(target.iterdir())
    (target / SUMS).write_text("".join(f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {f.name}\n" for f in files))
    return [*files, target / SUMS]


def main() -> int:
    """Build, and print each file with its size; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tag", help="the release's tag, which must be the version")
    tag = parser.parse_args().tag
    try:
        if tag is not None:
            check_tag(tag, VERSION, (ROOT / "CHANGELOG.md").read_text())
        files = build(DIST)
    except (ReleaseError, sbom.SbomError, security_tools.PackagesMissingError, kube_tools.ToolMissingError) as error:
        print(error, file=sys.stderr)
        return 1
    for file in files:
        print(f"{file.relative_to(ROOT)}: {file.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
