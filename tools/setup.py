"""What must be true before any make target can run?

Takes nothing, makes `.venv` in the repository with everything the project needs, from the locks in `requirements/`. It
runs on the system's Python with the standard library alone, writes only into the repository and the user's cache
folder, and ends in well under a second when nothing changed. Called by every target of the Makefile.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "raytide-locks"
LOCKS = [ROOT / "requirements" / name for name in ("uv.txt", "dev.txt")]
OLDEST = (3, 11)
NEWEST = (3, 14)  # the newest Python that every locked wheel supports (Ray's comes last)


def fingerprint() -> str:
    """Changes when a lock, the project file or this file changes."""
    digest = hashlib.sha256()
    for path in [*LOCKS, ROOT / "pyproject.toml", Path(__file__)]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def is_usable(version: tuple[int, int]) -> bool:
    """Whether the locks hold for this Python."""
    return OLDEST <= version <= NEWEST


def better_python() -> str | None:
    """Another Python on PATH that would do, newest first."""
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        path = shutil.which(f"python3.{minor}")
        works = (
            path
            and subprocess.run([path, "-c", "import venv, ensurepip"], capture_output=True, check=False).returncode == 0
        )
        if works:
            return path
    return None


def require_python() -> None:
    """Go on with a Python that will do, or say in one line what to install."""
    version = (sys.version_info.major, sys.version_info.minor)
    if not is_usable(version):
        if path := better_python():
            os.execv(path, [path, __file__])
        sys.exit(
            f"raytide needs Python {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}, this is {version[0]}.{version[1]}. "
            "Install one (Debian, Ubuntu: apt install python3 python3-venv; Fedora: dnf install python3.13)."
        )
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        sys.exit(
            "raytide needs Python's venv and pip. "
            f"Install them (Debian, Ubuntu: apt install python3.{version[1]}-venv; Fedora: dnf install python3-pip)."
        )


def run(*command: str | Path) -> None:
    """Run one step; its own words stand when it fails."""
    if subprocess.run(list(map(str, command)), cwd=ROOT, check=False).returncode:
        sys.exit(f"setting up failed at: {' '.join(map(str, command))}")


def install() -> None:
    """Fill `.venv` from the locks; hashes are checked."""
    shutil.rmtree(VENV, ignore_errors=True)
    print("setting up .venv (once; about a minute with an empty cache) …", flush=True)
    python = VENV / "bin" / "python"
    uv = VENV / "bin" / "uv"
    run(sys.executable, "-m", "venv", VENV)
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r", LOCKS[0])
    run(uv, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", LOCKS[1])
    run(uv, "pip", "install", "--quiet", "--python", python, "--no-deps", "--no-build-isolation", "-e", ".")


def main() -> None:
    """Set up once; afterwards only compare a fingerprint."""
    wanted = fingerprint()
    if STAMP.exists() and STAMP.read_text() == wanted and (VENV / "bin" / "python").exists():
        return
    require_python()
    install()
    STAMP.write_text(wanted)


if __name__ == "__main__":
    main()
