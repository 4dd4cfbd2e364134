"""Programs of a node from the Go module proxy: kubelet and kube-proxy in one, CoreDNS, and the pause of pods.

Builds the module in tests/controlplane/tools/node with Go once per version of its files; go_build.py keeps the results in the
user's cache folder. Called by tools/node, and by `make e2e ON=node` and `make e2e ON=kind` before their tests, which have time limits.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import go_build
from environments import cache_folder

MODULE = go_build.MODULE / "tools" / "node"
PACKAGES = {"node": ".", "coredns": "./coredns", "pause": "./pause"}


@dataclass(frozen=True)
class NodePrograms:
    """Where the programs are."""

    folder: Path

    @property
    def node(self) -> Path:
        """Kubelet and kube-proxy; the first argument selects."""
        return self.folder / "node"

    @property
    def coredns(self) -> Path:
        """The cluster's DNS server."""
        return self.folder / "coredns"

    @property
    def pause(self) -> Path:
        """The program of the image that keeps a pod's namespaces."""
        return self.folder / "pause"


def are_built(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a call of `provide` would build nothing."""
    try:
        folder = _folder(environ)
    except go_build.GoMissingError:
        return False
    return all((folder / name).exists() for name in PACKAGES)


def provide(environ: Mapping[str, str] = os.environ, module: Path = MODULE) -> NodePrograms:
    """The programs, built where they are missing; raises GoMissingError or BuildError."""
    folder = _folder(environ, module)
    with go_build.locked(folder.parents[1]):
        for name, package in PACKAGES.items():
            if not (folder / name).exists():
                print(f"building {name} with Go (three minutes for all on two cores with empty caches) …", flush=True)
                go_build.build(module, package, folder / name)
    return NodePrograms(folder)


def _folder(environ: Mapping[str, str], module: Path = MODULE) -> Path:
    files = [module / "go.mod", module / "go.sum", *sorted(module.rglob("*.go"))]
    return cache_folder("node-programs", environ) / go_build.digest(files, go_build.go_version(module)) / "bin"


if __name__ == "__main__":
    sys.exit(go_build.report("programs of a node", provide))
