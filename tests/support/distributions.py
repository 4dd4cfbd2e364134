"""Wheels and source distributions, built by hatchling in a process of its own."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def build(hook: str, source: Path, target: Path) -> Path:
    """Call a hook of the build backend; returns the archive."""
    target.mkdir()
    code = f"import hatchling.build; print(hatchling.build.{hook}({str(target)!r}))"
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True, timeout=60)
    (archive,) = target.iterdir()
    return archive
