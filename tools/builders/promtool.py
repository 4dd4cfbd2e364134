"""Where is promtool?

`provide` gives the program from PATH, else the one of Debian's package `prometheus`, which is downloaded once, checked by apt's
signed lists and unpacked into the user's cache folder; nothing is installed. Its version is that of the machine's release.
Called by tools/checks/monitoring.py.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import debian_packages
import go_build
from environments import cache_folder

PACKAGE = "prometheus"
NAME = "promtool"


def provide(environ: Mapping[str, str] = os.environ) -> Path:
    """The program, unpacked where it is nowhere else; raises DebianError or OSError."""
    if found := shutil.which(NAME, path=environ.get("PATH", "")):
        return Path(found)
    cache = cache_folder("promtool", environ)
    program = cache / debian_packages.release() / NAME
    with go_build.locked(cache):
        if not program.exists():
            print(f"unpacking {NAME} from Debian's packages …", flush=True)
            with tempfile.TemporaryDirectory(dir=cache, prefix=go_build.UNFINISHED) as made:
                apt = debian_packages.Apt(Path(made))
                # Of its dependencies it uses only libc, which is the machine's.
                packages = apt.download((PACKAGE,), lambda package: package == PACKAGE)
                debian_packages.unpack(packages, Path(made, "root"))
                program.parent.mkdir(exist_ok=True)
                Path(made, "root", "usr", "bin", NAME).replace(program)
    return program
