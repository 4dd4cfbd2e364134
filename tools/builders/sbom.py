"""SBOMs (CycloneDX 1.6, JSON) of the package and of what the container image installs; SE:C16.

`raytide-<version>.cdx.json` lists requirements/runtime.txt and `raytide-image-<version>.cdx.json` requirements/image.txt, with the
hashes of the locks. Both are validated against the schema and reproducible. Debian packages of the base image are not in them: the
release workflow adds them to the image with BuildKit. Called by release.py.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from raytide.api.constants import VERSION

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
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
    """Add to an SBOM what is not in the lock: name and version of the package, and that it depends on all others."""
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
    """Write both SBOMs to the folder `target`; returns the files. Raises SbomError."""
    target.mkdir(parents=True, exist_ok=True)
    files = []
    for name in LOCKS:
        text = json.dumps(build(packages, name), indent=1, sort_keys=True) + "\n"
        validate(packages, text)
        files.append(target / f"{name}-{VERSION}.cdx.json")
        files[-1].write_text(text)
    return files
