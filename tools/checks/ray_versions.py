"""Run the tests of the GCS client with other versions of Ray than the installed one.

`PYTHONPATH=tools/builders python tools/checks/ray_versions.py [VERSION …]` installs each version in a virtual environment in the
cache folder. Without arguments: the oldest version with autoscaler v2 by default, and the first one with token authentication.
`make test` and `make test-ray` run the same tests with the installed version. Called by `make test-ray`.
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
    """Whether all tests pass with the Ray of this Python."""
    environ = {**os.environ, PYTHON_VARIABLE: str(python)}
    command = [BIN / "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "300", "--at-least", "15", *TESTS]
    return subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode == 0


def main() -> None:
    """Run the tests with one version after the other; exit with an error if some fail."""
    installed = importlib.metadata.version("ray")
    failed = []
    for version in sys.argv[1:] or VERSIONS:
        started = time.monotonic()
        print(f"Ray {version}", flush=True)
        try:
            folder = cache_folder("ray") / version
            python = Path(sys.executable) if version == installed else provide(folder, f"ray=={version}")
        except subprocess.CalledProcessError:
            sys.exit(f"Ray {version} could not be installed; uv has printed why")
        if not run_tests(python):
            failed.append(version)
        print(f"Ray {version}: {time.monotonic() - started:.0f} s", flush=True)
    if failed:
        sys.exit(f"tests failed with Ray {', '.join(failed)}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted")
