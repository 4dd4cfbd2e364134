"""promtool from PATH or from Debian's package `prometheus`; nothing is installed on the machine.

The package is of the machine's release, verified by apt's signed lists and unpacked once to the cache folder. Called by
tools/checks/monitoring.py.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import debian_packages
from build_cache import cache_folder, create_once

PACKAGE = "prometheus"
NAME = "promtool"


def provide(environ: Mapping[str, str] = os.environ) -> Path:
    """The program, unpacked at the first call if it is not on PATH; raises DebianError or OSError."""
    if found := shutil.which(NAME, path=environ.get("PATH", "")):
        return Path(found)
    folder = cache_folder("promtool", environ) / debian_packages.release()
    return create_once(folder, f"unpacking {NAME} from Debian's packages", _unpack) / NAME


def _unpack(work: Path) -> Path:
    # promtool needs no other dependency than libc, which is the machine's.
    packages = debian_packages.Apt(work).download((PACKAGE,), lambda package: package == PACKAGE)
    debian_packages.unpack(packages, work / "root")
    (work / "programs").mkdir()
    (work / "root" / "usr" / "bin" / NAME).replace(work / "programs" / NAME)
    return work / "programs"
