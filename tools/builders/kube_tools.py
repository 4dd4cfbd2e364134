"""Where are kubectl, helm and kwok?

`find_tool` gives a program from PATH, else the one that `make tools` built; `python tools/builders/kube_tools.py` builds with Go
what is missing from both, with the versions that the modules in tests/controlplane pin, and `--find NAME` prints where
one is. Nothing is built that is on PATH. Called by `make tools`, by tests and by the tools that drive these programs.
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import go_build
from raytide_sandbox.controlplane.binaries import control_plane_cache

PACKAGES = {
    "kubectl": (go_build.MODULE, "k8s.io/kubernetes/cmd/kubectl"),
    "helm": (go_build.MODULE / "tools" / "helm", "helm.sh/helm/v3/cmd/helm"),
    "kwok": (go_build.MODULE / "tools" / "kwok", "sigs.k8s.io/kwok/cmd/kwok"),
}


class ToolMissingError(Exception):
    """A program that is needed is not there; the message says what to do."""


def tools_cache(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the built programs."""
    return control_plane_cache(environ).parent / "tools"


def find_tool(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Where that program is; raises ToolMissingError."""
    if found := shutil.which(name, path=environ.get("PATH", "")):
        return Path(found)
    pointer = tools_cache(environ) / go_build.POINTER
    built = Path(pointer.read_text().strip()) / name if pointer.exists() else None
    if built is None or not built.exists():
        raise ToolMissingError(f"no {name} on PATH: run `make tools` (builds it, needs Go), or install it")
    return built


def provide(environ: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """Every program's place, built where it is nowhere else; raises GoMissingError or BuildError."""
    found = {name: Path(path) for name in PACKAGES if (path := shutil.which(name, path=environ.get("PATH", "")))}
    missing = [name for name in PACKAGES if name not in found]
    return {**found, **_built(missing, tools_cache(environ))} if missing else found


def _built(names: list[str], cache: Path) -> dict[str, Path]:
    """These programs in the cache folder, in one folder per version of all of them."""
    modules = [module for module, _ in PACKAGES.values()]
    newest = max(modules, key=lambda module: go_build.numbers(go_build.wanted_go(module)))
    version = go_build.go_version(newest)
    files = [module / name for module in modules for name in ("go.mod", "go.sum")]
    folder = cache / go_build.digest(files, version) / "bin"
    with go_build.locked(cache):
        for name in names:
            if not (folder / name).exists():
                print(f"building {name} with {version} …", flush=True)
                go_build.build(*PACKAGES[name], folder / name)
        go_build.point_to(folder, cache)
    return {name: folder / name for name in names}


def main() -> int:
    """Say where each is, or what is missing."""
    parser = argparse.ArgumentParser(description="Build kubectl, helm and kwok where they are missing from PATH.")
    parser.add_argument("--find", choices=PACKAGES, help="only print where this one is")
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
