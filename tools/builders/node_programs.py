"""Programs of a node, built with Go from tests/controlplane/tools/node: `node`, `coredns` and `pause`.

`node` is the kubelet or kube-proxy, as its first argument selects; `pause` is the program of the image that holds the namespaces
of a pod. Called by tools/node, and by `make e2e ON=node` and `make e2e ON=kind` before their tests, which have time limits.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import go_build
from build_cache import cache_folder

MODULE = go_build.MODULE / "tools" / "node"
PACKAGES = {"node": ".", "coredns": "./coredns", "pause": "./pause"}


def are_built(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a call of `provide` would build nothing."""
    try:
        folder = go_build.program_folder(cache_folder("node-programs", environ), MODULE)
    except go_build.GoMissingError:
        return False
    return all((folder / name).exists() for name in PACKAGES)


def provide(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the programs, built at the first call; raises GoMissingError or BuildError."""
    return go_build.build_missing(cache_folder("node-programs", environ), MODULE, PACKAGES)


if __name__ == "__main__":
    sys.exit(go_build.report("programs of a node", provide))
