"""Wheels and source distributions, built by hatchling in a process of its own, and archives that are unpacked."""

import subprocess
import sys
from pathlib import Path

from support.deadlines import PATIENCE

ROOT = Path(__file__).parents[2]


def build(hook: str, source: Path, target: Path) -> Path:
    """Call a hook of the build backend; returns the archive."""
    target.mkdir()
    code = f"import hatchling.build; print(hatchling.build.{hook}({str(target)!r}))"
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True, timeout=60 * PATIENCE)
    (archive,) = target.iterdir()
    return archive


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive of our own: `TarFile` has filters from Python 3.11.4 on, and asks for one from 3.12 on."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["tar", "-xpf", archive, "-C", folder], check=True, timeout=60 * PATIENCE)
