"""Programs of a kind cluster from the Go module proxy: kind, kubeadm and kubectl, and the files of kind's own node image.

Builds the packages that tests/controlplane/tools/kind pins with Go once per version of its files; go_build.py keeps the results
in the user's cache folder. The node's other programs are those of node_programs.py. Called by tools/kind,
and by `make e2e ON=kind` before its tests, which have time limits.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import go_build
from environments import cache_folder

MODULE = go_build.MODULE / "tools" / "kind"
KIND = "sigs.k8s.io/kind"
KUBERNETES = "k8s.io/kubernetes/cmd"
PACKAGES = {"kind": KIND, "kubeadm": f"{KUBERNETES}/kubeadm", "kubectl": f"{KUBERNETES}/kubectl"}
BASE_FILES = Path("images", "base", "files")
"""Files of kind's base image, in kind's module."""


@dataclass(frozen=True)
class KindPrograms:
    """Folder of the programs."""

    folder: Path

    @property
    def kind(self) -> Path:
        """The program that makes clusters."""
        return self.folder / "kind"

    @property
    def kubeadm(self) -> Path:
        """The program that kind runs in its nodes."""
        return self.folder / "kubeadm"

    @property
    def kubectl(self) -> Path:
        """The program that kind runs in its nodes; the one on PATH may need more than its own file."""
        return self.folder / "kubectl"

    @property
    def base_files(self) -> Path:
        """Entry point, units and settings of kind's base image, below the paths that they have there."""
        return self.folder.with_name("base-files")


def provide(environ: Mapping[str, str] = os.environ, module: Path = MODULE) -> KindPrograms:
    """The programs, built where they are missing; raises GoMissingError or BuildError."""
    programs = KindPrograms(_folder(environ, module))
    with go_build.locked(programs.folder.parents[1]):
        for name, package in PACKAGES.items():
            if not (programs.folder / name).exists():
                print(f"building {name} with Go …", flush=True)
                go_build.build(module, package, programs.folder / name)
        if not programs.base_files.exists():
            unfinished = programs.base_files.with_name(f"{go_build.UNFINISHED}base-files")
            shutil.rmtree(unfinished, ignore_errors=True)
            shutil.copytree(go_build.module_folder(module, KIND) / BASE_FILES, unfinished)
            unfinished.replace(programs.base_files)
    return programs


def _folder(environ: Mapping[str, str], module: Path) -> Path:
    files = [module / "go.mod", module / "go.sum"]
    return cache_folder("kind-programs", environ) / go_build.digest(files, go_build.go_version(module)) / "bin"


if __name__ == "__main__":
    sys.exit(go_build.report("programs of kind", provide))
