"""Virtual environments for programs whose dependencies conflict with those of Raytide.

Each is in the user's cache folder, created once with uv from the package registry and shared by all checkouts. One that was
interrupted is created again; concurrent calls wait for each other. Used by paddle_env.py, security_tools.py and
ray_versions.py.
"""

import fcntl
import subprocess
import sys
from pathlib import Path

BIN = Path(sys.executable).parent


def provide(folder: Path, *packages: str | Path) -> Path:
    """The Python of the environment in `folder`, with these packages and options of `uv pip install`; raises CalledProcessError."""
    python = folder / "bin" / "python"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            uv = BIN / "uv"
            subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder], check=True)
            subprocess.run([uv, "pip", "install", "--quiet", "--python", python, *packages], check=True)
            (folder / "complete").touch()
    return python
