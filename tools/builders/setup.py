"""What must be true before any make target can run?

Takes nothing, makes `.venv` in the repository with everything the project needs, from the locks in `requirements/`. It
runs on the system's Python (tools/builders/python.sh finds it) with the standard library alone, writes only into the repository
and the user's cache folder, and ends in well under a second when nothing changed. Called by every target of the
Makefile; two at once wait for each other.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
STAMP = VENV / "raytide-locks"
PROJECTS = [ROOT / folder / "pyproject.toml" for folder in (".", "sandbox")]
LOCKS = [ROOT / "requirements" / name for name in ("uv.txt", "dev.txt")]


def fingerprint() -> str:
    """Changes when a lock, a project file, this file or the folder (scripts name it) changes."""
    digest = hashlib.sha256(str(ROOT).encode())
    for path in [*LOCKS, *PROJECTS, Path(__file__)]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def is_set_up(wanted: str, *, is_python_asked_for: bool) -> bool:
    """Whether `.venv` is as wanted; another Python than ours counts only when somebody asked for ours."""
    if not (STAMP.exists() and STAMP.read_text() == wanted and (VENV / "bin" / "python").exists()):
        return False
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return not is_python_asked_for or (VENV / "lib" / version).is_dir()


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
    run(
        uv,
        "pip",
        "install",
        "--quiet",
        "--python",
        python,
        "--no-deps",
        "--no-build-isolation",
        "-e",
        ".",
        "-e",
        "sandbox",
    )


def main() -> None:
    """Set up once; afterwards only compare a fingerprint."""
    folder = os.open(ROOT, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)  # let go by the end of this program
    wanted = fingerprint()
    if not is_set_up(wanted, is_python_asked_for="--asked-for" in sys.argv):
        install()
        STAMP.write_text(wanted)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted; the next run starts setting up again")
