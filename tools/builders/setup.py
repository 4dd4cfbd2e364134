"""Create `.venv` in the repository from the locks in `requirements/`.

Runs on the system's Python (tools/builders/python.sh finds it) and imports the standard library only. Writes only to the
repository and the user's cache folder, and takes less than a second if nothing changed. Concurrent calls wait for each other.
Called by all targets of the Makefile.
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
    """Hash of the locks, the project files, this file and the path of the repository, which scripts in `.venv` contain."""
    digest = hashlib.sha256(str(ROOT).encode())
    for path in [*LOCKS, *PROJECTS, Path(__file__)]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def is_set_up(wanted: str, *, is_python_required: bool) -> bool:
    """Whether `.venv` has this fingerprint and, if `is_python_required`, the version of the running Python."""
    if not (STAMP.exists() and STAMP.read_text() == wanted and (VENV / "bin" / "python").exists()):
        return False
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return not is_python_required or (VENV / "lib" / version).is_dir()


def run(*command: str | Path) -> None:
    """Run a command, which prints its errors; exit if it fails."""
    if subprocess.run(list(map(str, command)), cwd=ROOT, check=False).returncode:
        sys.exit(f"setting up failed at: {' '.join(map(str, command))}")


def install() -> None:
    """Create `.venv` from the locks, with hashes."""
    shutil.rmtree(VENV, ignore_errors=True)
    print("setting up .venv (once; about a minute with an empty cache) …", flush=True)
    python = VENV / "bin" / "python"
    uv = VENV / "bin" / "uv"
    run(sys.executable, "-m", "venv", VENV)
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r", LOCKS[0])
    run(uv, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", LOCKS[1])
    options = ("--quiet", "--python", python, "--no-deps", "--no-build-isolation")
    run(uv, "pip", "install", *options, "-e", ".", "-e", "sandbox")


def main() -> None:
    """Install unless the fingerprint is that of the last installation."""
    folder = os.open(ROOT, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)  # released when this process ends
    wanted = fingerprint()
    if not is_set_up(wanted, is_python_required="--asked-for" in sys.argv):
        install()
        STAMP.write_text(wanted)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted; the next run starts setting up again")
