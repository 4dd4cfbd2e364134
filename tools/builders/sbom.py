"""SBOMs (CycloneDX 1.6, JSON) of the package and of what the container image installs; SE:C16.

`python tools/builders/sbom.py` writes `dist/raytide-<version>.cdx.json`, from requirements/runtime.txt, and
`dist/raytide-image-<version>.cdx.json`, from requirements/image.txt, each with the hashes of the locks and validated against the
schema; equal input gives equal files. Debian's packages of the image's base are not in them: the release workflow has BuildKit add
those to the image. Called by release.py.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import security_tools
from raytide.api.constants import VERSION

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
LOCKS = {"raytide": "runtime.txt", "raytide-image": "image.txt"}
SPECIFICATION = "1.6"
VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
found = JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read())
sys.exit(found and str(found))
"""


class SbomError(Exception):
    """An SBOM could not be written, or is not valid."""


def build(packages: Path, name: str) -> Json:
    """The SBOM of one lock, with the commands in `packages`; raises SbomError."""
    lock = ROOT / "requirements" / LOCKS[name]
    options = ("--pyproject", ROOT / "pyproject.toml", "--output-reproducible", "--sv", SPECIFICATION, "--of", "JSON")
    command = [packages / "cyclonedx-py", "requirements", *options, lock]
    environ = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SbomError(f"cyclonedx-py could not read {lock.name}: {done.stderr.strip()[-1000:]}")
    return completed(json.loads(done.stdout), name)


def completed(sbom: Json, name: str) -> Json:
    """With what the lock does not say: name and version of the package, and that it needs all others."""
    root = sbom["metadata"]["component"]
    root |= {"name": name, "version": VERSION}
    if name == "raytide":
        root["purl"] = f"pkg:pypi/raytide@{VERSION}"
    needed = sorted(component["bom-ref"] for component in sbom["components"])
    others = [each for each in sbom.get("dependencies", []) if each["ref"] != root["bom-ref"]]
    sbom["dependencies"] = [{"ref": root["bom-ref"], "dependsOn": needed}, *others]
    return sbom


def validate(packages: Path, text: str) -> None:
    """Raise SbomError unless the text is a valid SBOM."""
    command = [packages / "python", "-c", VALIDATE]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SbomError(f"not a valid SBOM: {done.stderr.strip()[-1000:]}")


def write(target: Path, packages: Path) -> list[Path]:
    """Both SBOMs in the folder `target`; raises SbomError."""
    target.mkdir(parents=True, exist_ok=True)
    files = []
    for name in LOCKS:
        text = json.dumps(build(packages, name), indent=1, sort_keys=True) + "\n"
        validate(packages, text)
        files.append(target / f"{name}-{VERSION}.cdx.json")
        files[-1].write_text(text)
    return files


def main() -> int:
    """Write both and print how much is in them."""
    try:
        files = write(DIST, security_tools.provide_packages("release.txt"))
    except (SbomError, security_tools.PackagesMissingError) as error:
        print(error, file=sys.stderr)
        return 1
    for file in files:
        print(f"{file.relative_to(ROOT)}: {len(json.loads(file.read_text())['components'])} components, valid")
    return 0


if __name__ == "__main__":
    sys.exit(main())
