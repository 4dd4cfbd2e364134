"""kubectl, helm and kwok: those on PATH, else those that `make tools` builds with Go.

`find_tool` returns the path of one. `python tools/builders/kube_tools.py` builds those that are not on PATH, with the versions
that the modules in tests/controlplane pin; `--find NAME` prints the path of one. Called by `make tools`, tests and other tools.
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import go_build
from build_cache import POINTER, locked, point_to
from raytide_sandbox.controlplane.binaries import control_plane_cache

PACKAGES = {
    "kubectl": (go_build.MODULE, "k8s.io/kubernetes/cmd/kubectl"),
    "helm": (go_build.MODULE / "tools" / "helm", "helm.sh/helm/v3/cmd/helm"),
    "kwok": (go_build.MODULE / "tools" / "kwok", "sigs.k8s.io/kwok/cmd/kwok"),
}


class ToolMissingError(Exception):
    """A program is missing; the message has the fix."""


def tools_cache(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the built programs."""
    return control_plane_cache(environ).parent / "tools"


def find_tool(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The path of that program; raises ToolMissingError."""
    if found := shutil.which(name, path=environ.get("PATH", "")):
        return Path(found)
    pointer = tools_cache(environ) / POINTER
    built = Path(pointer.read_text().strip()) / name if pointer.exists() else None
    if built is None or not built.exists():
        raise ToolMissingError(f"no {name} on PATH: run `make tools` (builds it, needs Go), or install it")
    return built


def provide(environ: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """The path of each program, those that are not on PATH built; raises GoMissingError or BuildError."""
    found = {name: Path(path) for name in PACKAGES if (path := shutil.which(name, path=environ.get("PATH", "")))}
    missing = [name for name in PACKAGES if name not in found]
    return found | _build(missing, tools_cache(environ)) if missing else found


def _build(names: list[str], cache: Path) -> dict[str, Path]:
    """Build these programs, in one folder per version of all of them."""
    modules = [module for module, _ in PACKAGES.values()]
    newest = max(modules, key=lambda module: go_build.numbers(go_build.wanted_go(module)))
    version = go_build.go_version(newest)
    files = [module / name for module in modules for name in ("go.mod", "go.sum")]
    folder = cache / go_build.digest(files, version) / "bin"
    with locked(cache):
        for name in names:
            if not (folder / name).exists():
                print(f"building {name} with {version} …", flush=True)
                go_build.build(*PACKAGES[name], folder / name)
        point_to(folder, cache)
    return {name: folder / name for name in names}


def main() -> int:
    """Print the paths, or what is missing; returns the exit code."""
    parser = argparse.ArgumentParser(description="Build kubectl, helm and kwok where they are missing from PATH.")
    parser.add_argument("--find", choices=PACKAGES, help="only print the path of this one")
    asked = parser.parse_args()
    started = time.monotonic()
    try:
        if asked.find:
            print(find_tool(asked.find))
            return 0
        found = provide()
    except go_build.GoMissingError as error:
        print(f"{error}: install it (https://go.dev/dl), or put {', '.join(PACKAGES)} on PATH", file=sys.stderr)
        return 2
    except (ToolMissingError, go_build.BuildError) as error:
        print(error, file=sys.stderr)
        return 2
    for name, path in found.items():
        print(f"{name}: {path}")
    print(f"({time.monotonic() - started:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
