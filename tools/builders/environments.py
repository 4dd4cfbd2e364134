"""Where do programs live whose packages do not go together with ours?

Each has a virtual environment of its own in the user's cache folder, made once with uv from the package registry, and
shared by all checkouts. Takes what to install, gives the environment's Python; two that ask at once wait for each other,
and one that was interrupted is made anew. Called by ray_versions.py and paddle_env.py.
"""

import fcntl
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

BIN = Path(sys.executable).parent


def cache_folder(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Where all environments of that kind are."""
    folder = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/"), ".cache")
    return Path(folder, "raytide", name)


def provide(folder: Path, *wanted: str | Path) -> Path:
    """The Python of the environment in `folder`; what is `wanted`, as for `uv pip install`, is there."""
    python = folder / "bin" / "python"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            uv = BIN / "uv"
            subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder], check=True)
            subprocess.run([uv, "pip", "install", "--quiet", "--python", python, *wanted], check=True)
            (folder / "complete").touch()
    return python
