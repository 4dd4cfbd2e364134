"""Is there a control plane on this machine? If not, build one.

Takes KUBEBUILDER_ASSETS where a person has set it, and checks that all four components are there; otherwise builds the
module in tests/controlplane with Go (about six minutes on two cores with empty caches, a fraction of a second when
nothing changed). Prints where it is, and how long that took; exit code 2 and one line when it cannot be. Called by
`make tools`; `raytide_sandbox.controlplane.binaries` finds the result by the pointer that is left in the cache folder.
"""

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import go_build
from raytide_sandbox.controlplane.binaries import ASSETS_VARIABLE, check_parts, checked_assets, control_plane_cache
from raytide_sandbox.controlplane.component import ControlPlaneError
from raytide_sandbox.controlplane.flags import PARTS

SOURCES = ("main.go", "go.mod", "go.sum")
PROGRAM = "controlplane"


def provide(environ: Mapping[str, str] = os.environ, module: Path = go_build.MODULE) -> Path:
    """The folder of programs or the one program; raises ControlPlaneError, GoMissingError or BuildError."""
    if assets := environ.get(ASSETS_VARIABLE):
        folder = checked_assets(Path(assets))
        check_parts(folder, PARTS)
        return folder
    go = go_build.go_version(module)
    cache = control_plane_cache(environ)
    built = cache / go_build.digest([module / name for name in SOURCES], go) / PROGRAM
    with go_build.locked(cache):
        if not built.exists():
            print(f"building a control plane with {go} (six minutes on two cores with empty caches) …", flush=True)
            go_build.build(module, ".", built)
        go_build.point_to(built, cache)
    return built


def main() -> int:
    """Say where it is, or what is missing."""
    started = time.monotonic()
    try:
        found = provide()
    except go_build.GoMissingError as error:
        folder = "a folder with etcd, kube-apiserver, kube-controller-manager and kube-scheduler"
        print(f"{error}: install it (https://go.dev/dl), or set {ASSETS_VARIABLE} to {folder}", file=sys.stderr)
        return 2
    except (ControlPlaneError, go_build.BuildError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"control plane: {found} ({time.monotonic() - started:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
