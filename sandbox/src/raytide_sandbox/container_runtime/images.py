"""Environments on this machine that stand for container images.

Takes the name of an image; returns an `Image`. Ray's images are the Ray installed beside the running Python, Raytide's
image is its own command, a few well-known base images are the host's commands, and the user may add more
(`up --image`). Tag, digest and registry are ignored; an unknown name gives None, which the kubelet reports as
ErrImagePull. Called by process_runtime.py.
"""

import functools
import importlib.util
import os
import shutil
import site
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from raytide_sandbox.container_runtime.interface import Image

_SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SHELL: Final = ("sh",)
_BASES: Final = frozenset({"busybox", "alpine", "debian", "ubuntu", "bash", "sh"})
_RAY_USER: Final = 1000
_RAY: Final = frozenset({"ray", "ray-ml", "ray-llm"})


def _repository(name: str) -> tuple[str, ...]:
    """Path of an image without registry, tag and digest."""
    path = name.partition("@")[0].split("/")
    path[-1] = path[-1].partition(":")[0]
    if len(path) > 1 and ("." in path[0] or ":" in path[0] or path[0] == "localhost"):
        path = path[1:]
    if path[0] == "library":
        path = path[1:]
    return tuple(path)


def _command(repository: tuple[str, ...], *, has_ray: bool) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """(entrypoint, command) of a known image; None for an unknown one."""
    last = repository[-1] if repository else ""
    if repository[-2:-1] == ("rayproject",) and last in _RAY and has_ray:
        return (), ("bash",)
    if last.startswith("raytide"):
        return ("raytide",), ("operator",)
    if repository == ("python",):
        return (), ("python3",)
    if len(repository) == 1 and last in _BASES:
        return (), _SHELL
    return None


def parse_given(given: Iterable[str]) -> dict[str, Path]:
    """Parse `NAME=FOLDER` into environments by image name; raises ValueError with the reason."""
    found = {}
    for text in given:
        name, _, folder = text.partition("=")
        if not name or not folder:
            raise ValueError(f"{text!r} is not NAME=FOLDER")
        if not (Path(folder) / "bin").is_dir():
            raise ValueError(f"there is no folder {folder}/bin with commands")
        found[name] = Path(folder).absolute()
    return found


def find(
    name: str, *, stand_ins_dir: Path, given: Mapping[str, Path] = MappingProxyType({}), has_ray: bool | None = None
) -> Image | None:
    """Find the image of that name, None when unknown; images given by the user take precedence."""
    folder = {_repository(known): known_folder for known, known_folder in given.items()}.get(_repository(name))
    if folder is not None:
        return _given(name, folder, stand_ins_dir)
    if has_ray is None:
        has_ray = importlib.util.find_spec("ray") is not None
    command = _command(_repository(name), has_ray=has_ray)
    if command is None:
        return None
    return Image(
        name=name,
        image_id=f"process://{sys.prefix}",
        entrypoint=command[0],
        command=command[1],
        env=_environment(Path(sys.prefix), stand_ins_dir),
        working_dir="/home/ray",
        user=_user(_repository(name)),
        dirs=environment_dirs(),
    )


def _given(name: str, folder: Path, stand_ins_dir: Path) -> Image:
    return Image(
        name=name,
        image_id=f"process://{folder}",
        command=_SHELL,
        env=_environment(folder, stand_ins_dir),
        working_dir="/home/ray",
        dirs=_outermost({str(folder), *_linked(folder / "bin" / "python")}),
    )


def _user(repository: tuple[str, ...]) -> int:
    """User id in the USER line of the real image."""
    return _RAY_USER if repository[-1].startswith("raytide") or repository[-1] in _RAY else 0


def _environment(prefix: Path, stand_ins_dir: Path) -> Mapping[str, str]:
    return {
        "PATH": f"{prefix / 'bin'}:{_SYSTEM_PATH}:{stand_ins_dir}",
        "HOME": "/home/ray",
        "LANG": "C.UTF-8",
    }


def write_stand_ins(directory: Path) -> None:
    """Write a `wget` on hosts that have none, because the probes of Ray pods call it."""
    directory.mkdir(parents=True, exist_ok=True)
    wget = directory / "wget"
    if shutil.which("wget", path=_SYSTEM_PATH) is not None:
        wget.unlink(missing_ok=True)
        return
    source = Path(__file__).with_name("wget.py")
    wget.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{source}" "$@"\n')
    wget.chmod(0o755)


@functools.cache
def environment_dirs() -> tuple[str, ...]:
    """Outermost directories that the running Python needs: its prefixes, links between them, editable packages and their links."""
    found = {sys.prefix, sys.base_prefix, str(Path(__file__).parents[2]), *_linked(Path(sys.executable))}
    for listing in (file for place in site.getsitepackages() for file in Path(place).glob("*.pth")):
        editable = {line for line in listing.read_text().splitlines() if line.startswith("/") and Path(line).is_dir()}
        found |= editable | {directory for source in editable for directory in _linked_directories(Path(source))}
    return _outermost(found)


def _linked(link: Path) -> set[str]:
    """The prefixes along the chain of symbolic links of an interpreter."""
    found = set()
    while link.is_symlink():
        link = link.parent / link.readlink()
        if link.parent.name == "bin":
            found.add(str(link.parent.parent))
    return found


def _linked_directories(source: Path) -> set[str]:
    """Directories outside of `source` that its packages contain by a symbolic link, as `raytide/crds`."""
    return {os.path.realpath(path) for path in source.glob("*/*") if path.is_symlink() and path.is_dir()}


def _outermost(paths: set[str]) -> tuple[str, ...]:
    """The paths and their real paths, without those inside another one."""
    found = paths | {os.path.realpath(path) for path in paths}
    return tuple(path for path in sorted(found) if not any(str(up) in found for up in Path(path).parents))
