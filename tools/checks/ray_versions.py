"""Does the sidecar understand every Ray it may meet?

`PYTHONPATH=tools/builders python tools/checks/ray_versions.py [VERSION …]` puts each of them into a virtual environment of its
own in the user's cache folder, with uv and from the package registry, and runs the tests of the GCS against it; nothing it starts is shared with
another Ray on the machine. A version that is in the cache is not asked for again. Called by `make test-ray`; without
arguments: the oldest one that has Autoscaler V2 on by default, and the first one with tokens. With the one installed here
`make test` and `make test-ray` run the same tests.
"""

import importlib.metadata
import os
import subprocess
import sys
import time
from pathlib import Path

from build_cache import cache_folder
from environments import BIN, provide

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ("2.47.1", "2.52.1")
TESTS = ("tests/integration/test_gcs_ray.py", "tests/integration/test_gcs_ray_nodes.py")
PYTHON_VARIABLE = "RAYTIDE_TEST_RAY"


def run_tests(python: Path) -> bool:
    """Whether all of them pass."""
    environ = {**os.environ, PYTHON_VARIABLE: str(python)}
    command = [BIN / "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "300", "--at-least", "15", *TESTS]
    return subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode == 0


def main() -> None:
    """One version after the other; the exit code says whether all were understood."""
    installed = importlib.metadata.version("ray")
    failed = []
    for version in sys.argv[1:] or VERSIONS:
        started = time.monotonic()
        print(f"Ray {version}", flush=True)
        try:
            python = (
                Path(sys.executable)
                if version == installed
                else provide(cache_folder("ray") / version, f"ray=={version}")
            )
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
