"""Does the sidecar understand every Ray it may meet?

`python tools/ray_versions.py [VERSION …]` puts each of them into a virtual environment of its own in the user's cache
folder, with uv and from the package registry, and runs the tests of the GCS against it; nothing it starts is shared with
another Ray on the machine. A version that is in the cache is not asked for again. Called by `make ray-versions`; without
arguments: the oldest one that has Autoscaler V2 on by default, the first one with tokens, and the one installed here.
"""

import fcntl
import importlib.metadata
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
VERSIONS = ("2.47.1", "2.52.1")
TESTS = ("tests/integration/test_gcs_ray.py", "tests/integration/test_gcs_ray_nodes.py")
PYTHON_VARIABLE = "RAYTIDE_TEST_RAY"


def ray_cache(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of all versions."""
    folder = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/"), ".cache")
    return Path(folder, "raytide", "ray")


def provide(version: str, cache: Path) -> Path:
    """The Python of that version, installed if it is not there; two at once wait for each other."""
    folder = cache / version
    python = folder / "bin" / "python"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            uv = BIN / "uv"
            subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder], check=True)
            subprocess.run([uv, "pip", "install", "--quiet", "--python", python, f"ray=={version}"], check=True)
            (folder / "complete").touch()
    return python


def run_tests(python: Path) -> bool:
    """Whether all of them pass."""
    environ = {**os.environ, PYTHON_VARIABLE: str(python)}
    command = [BIN / "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "300", *TESTS]
    return subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode == 0


def main() -> None:
    """One version after the other; the exit code says whether all were understood."""
    installed = importlib.metadata.version("ray")
    failed = []
    for version in sys.argv[1:] or (*VERSIONS, installed):
        started = time.monotonic()
        print(f"Ray {version}", flush=True)
        try:
            python = Path(sys.executable) if version == installed else provide(version, ray_cache())
        except subprocess.CalledProcessError:
            sys.exit(f"Ray {version} could not be installed; uv's words stand above")
        if not run_tests(python):
            failed.append(version)
        print(f"Ray {version}: {time.monotonic() - started:.0f} s", flush=True)
    if failed:
        sys.exit(f"not understood: {', '.join(failed)}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted")
