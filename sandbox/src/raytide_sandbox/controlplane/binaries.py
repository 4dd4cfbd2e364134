"""Control-plane binaries: the programs of a control plane on this machine.

Input: the environment. Output: a folder with one program per component (KUBEBUILDER_ASSETS, if set), or the one program
that `make tools` built, to which a small file in the user's cache folder points. A missing program is an error
of one line that contains the remedy. Used by code that starts a control plane; tools/builders/control_plane.py writes the
pointer.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from raytide_sandbox.controlplane.component import ControlPlaneError

ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"
ALWAYS_NEEDED: Final = ("etcd", "kube-apiserver")
ADVICE: Final = (
    f"run `make tools` in Raytide's repository, or set {ASSETS_VARIABLE} to a folder with etcd, kube-apiserver, "
    "kube-controller-manager and kube-scheduler"
)


def control_plane_cache(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the built control planes: `$XDG_CACHE_HOME/raytide/control-plane`, else below `~/.cache`."""
    home = Path(environ.get("HOME") or Path.home())
    return Path(environ.get("XDG_CACHE_HOME") or home / ".cache").absolute() / "raytide" / "control-plane"


def pointer(environ: Mapping[str, str] = os.environ) -> Path:
    """The file whose one line is the path of the control plane that was built last."""
    return control_plane_cache(environ) / "current"


def find_binary(environ: Mapping[str, str] = os.environ) -> Path:
    """A folder of programs or the one program; raises ControlPlaneError if there is none."""
    if assets := environ.get(ASSETS_VARIABLE):
        return checked_assets(Path(assets))
    try:
        built = Path(pointer(environ).read_text().strip())
    except OSError:
        raise ControlPlaneError(f"there is no control plane yet: {ADVICE}") from None
    if not _is_program(built):
        raise ControlPlaneError(f"the control plane {built} is gone: {ADVICE}")
    return built


def checked_assets(folder: Path) -> Path:
    """The folder, absolute, if an API server can run from it; raises ControlPlaneError otherwise."""
    if missing := _missing(folder, ALWAYS_NEEDED):
        raise ControlPlaneError(f"{ASSETS_VARIABLE}={folder} has no {' and no '.join(missing)}: {ADVICE}")
    return folder.absolute()


def program(binary: Path, component: str) -> list[str]:
    """The first words of this component's command line."""
    return [str(binary / component)] if binary.is_dir() else [str(binary), component]


def check_parts(binary: Path, parts: Iterable[str]) -> None:
    """Raise ControlPlaneError unless every part can be started."""
    if binary.is_dir():
        missing = _missing(binary, parts)
        if missing:
            raise ControlPlaneError(
                f"{binary} has no {' and no '.join(missing)}: {ADVICE}; "
                "etcd and kube-apiserver alone make no pods, service accounts or garbage collection"
            )
    elif not _is_program(binary):
        raise ControlPlaneError(f"there is no control plane at {binary}: {ADVICE}")


def _missing(folder: Path, parts: Iterable[str]) -> list[str]:
    return [part for part in parts if not _is_program(folder / part)]


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
