"""Control plane (etcd, API server, controller manager, scheduler) as one program, built with Go from tests/controlplane.

Returns the folder in KUBEBUILDER_ASSETS instead if it is set, after checking that it has all components. A build takes about
six minutes on two cores with empty caches; raytide_sandbox.controlplane.binaries finds the result by the file `current` in the
cache folder. As a program it prints the path and the seconds; if there is none, one line and exit code 2. Called by `make tools`.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import go_build
from build_cache import locked, point_to
from raytide_sandbox.controlplane.binaries import ASSETS_VARIABLE, check_parts, checked_assets, control_plane_cache
from raytide_sandbox.controlplane.flags import PARTS

SOURCES = ("main.go", "go.mod", "go.sum")
PROGRAM = "controlplane"


def provide(environ: Mapping[str, str] = os.environ, module: Path = go_build.MODULE) -> Path:
    """The folder in KUBEBUILDER_ASSETS or the built program; raises ControlPlaneError, GoMissingError or BuildError."""
    if assets := environ.get(ASSETS_VARIABLE):
        folder = checked_assets(Path(assets))
        check_parts(folder, PARTS)
        return folder
    go = go_build.go_version(module)
    cache = control_plane_cache(environ)
    built = cache / go_build.digest([module / name for name in SOURCES], go) / PROGRAM
    with locked(cache):
        if not built.exists():
            print(f"building a control plane with {go} (six minutes on two cores with empty caches) …", flush=True)
            go_build.build(module, ".", built)
        point_to(built, cache)
    return built


def main() -> int:
    """Print the path, or what is missing; returns the exit code."""
    folder = "a folder with etcd, kube-apiserver, kube-controller-manager and kube-scheduler"
    return go_build.report("control plane", provide, f", or set {ASSETS_VARIABLE} to {folder}")


if __name__ == "__main__":
    sys.exit(main())
