"""Programs of a kind cluster, built with Go from tests/controlplane/tools/kind: kind, kubeadm and kubectl; and kind's base image.

The other programs of the nodes are those of node_programs.py. Called by tools/kind, and by `make e2e ON=kind` before its tests,
which have time limits.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import go_build
from build_cache import cache_folder, locked, unfinished

MODULE = go_build.MODULE / "tools" / "kind"
KIND = "sigs.k8s.io/kind"
KUBERNETES = "k8s.io/kubernetes/cmd"
PACKAGES = {"kind": KIND, "kubeadm": f"{KUBERNETES}/kubeadm", "kubectl": f"{KUBERNETES}/kubectl"}
BASE_FILES = Path("images", "base", "files")
"""Files of kind's base image, in kind's module."""


def base_files(programs: Path) -> Path:
    """Entry point, units and settings of kind's base image, by their paths in it; beside the folder of the programs."""
    return programs.with_name("base-files")


def provide(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the programs, built at the first call; raises GoMissingError or BuildError."""
    cache = cache_folder("kind-programs", environ)
    programs = go_build.build_missing(cache, MODULE, PACKAGES)
    with locked(cache):
        if not base_files(programs).exists():
            with unfinished(programs.parent) as folder:
                shutil.copytree(go_build.module_folder(MODULE, KIND) / BASE_FILES, folder / BASE_FILES)
                (folder / BASE_FILES).replace(base_files(programs))
    return programs


if __name__ == "__main__":
    sys.exit(go_build.report("programs of kind", provide))
