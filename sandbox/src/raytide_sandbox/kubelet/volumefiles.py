"""Volumes of a pod as directories on this machine.

Takes planned volumes and a directory of the pod; returns the host path of each volume. Files made from API objects
change atomically: they live in a numbered directory behind a symbolic link that is replaced in one step, as in a
kubelet's own volumes, so a reader never sees half of an update. Called by podvolumes.py before the first container
starts and at every refresh.
"""

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from raytide_sandbox.kubelet.podspec import PodSpecError
from raytide_sandbox.kubelet.volumes import EmptyVolume, Files, FilesVolume, HostVolume, Volume

_CURRENT: Final = "..data"
_GENERATION_PREFIX: Final = "..v"


def volume_paths(volumes: Iterable[Volume], directory: Path) -> dict[str, Path]:
    """Host path of each volume by name."""
    return {v.name: Path(v.path) if isinstance(v, HostVolume) else directory / v.name for v in volumes}


def write_volumes(volumes: Iterable[Volume], directory: Path) -> None:
    """Create every volume as planned; raises PodSpecError and OSError."""
    for volume in volumes:
        if isinstance(volume, HostVolume):
            _prepare_host_path(volume)
            continue
        place = directory / volume.name
        place.mkdir(parents=True, exist_ok=True)
        if isinstance(volume, EmptyVolume):
            place.chmod(0o777)
        else:
            write_files(volume.files, place)


def refresh_files(volumes: Iterable[Volume], directory: Path) -> None:
    """Update the volumes made from API objects; all others stay as they are."""
    for volume in volumes:
        if isinstance(volume, FilesVolume):
            write_files(volume.files, directory / volume.name)


def write_files(files: Files, place: Path) -> bool:
    """Replace the whole content of `place` in one step; False when it is up to date already."""
    current = place / _CURRENT
    if current.is_symlink() and _read(current.resolve()) == {name: (f.content, f.mode) for name, f in files.items()}:
        return False
    before = current.readlink().name if current.is_symlink() else ""
    number = int(before.removeprefix(_GENERATION_PREFIX)) + 1 if before else 1
    generation = place / f"{_GENERATION_PREFIX}{number}"
    for name, file in files.items():
        path = generation / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
        path.chmod(file.mode)
    generation.mkdir(parents=True, exist_ok=True)
    _link(current, generation.name)
    _show(place, {name.split("/")[0] for name in files})
    if before:
        shutil.rmtree(place / before, ignore_errors=True)
    return True


def ensure_mount_source(path: Path) -> Path:
    """The real path to mount: a missing subPath becomes a directory, a link to the current file is followed."""
    if not path.exists():
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o777)
    return path.resolve() if path.is_symlink() else path


def _link(link: Path, target: str) -> None:
    temporary = link.with_name(link.name + "_tmp")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(link)


def _show(place: Path, names: set[str]) -> None:
    """Keep exactly one visible link per top-level name; mount points made for containers stay."""
    for entry in place.iterdir():
        if entry.is_symlink() and not entry.name.startswith("..") and entry.name not in names:
            entry.unlink()
    for name in names:
        if not (place / name).is_symlink() and not (place / name).exists():
            (place / name).symlink_to(f"{_CURRENT}/{name}")


def _read(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mode & 0o7777)
        for path in directory.rglob("*")
        if path.is_file()
    }


def _prepare_host_path(volume: HostVolume) -> None:
    path = Path(volume.path)
    if not path.is_absolute():
        raise PodSpecError(f'volume "{volume.name}": hostPath {volume.path!r} is not absolute')
    if volume.type == "DirectoryOrCreate":
        with suppress(FileExistsError):  # another pod of the same claim may be faster
            path.mkdir(parents=True)
            path.chmod(volume.mode)
    elif volume.type == "FileOrCreate" and not path.exists():
        path.touch(mode=0o644)
    is_right = {
        "": True,
        "Directory": path.is_dir(),
        "DirectoryOrCreate": path.is_dir(),
        "File": path.is_file(),
        "FileOrCreate": path.is_file(),
        "Socket": path.is_socket(),
        "CharDevice": path.is_char_device(),
        "BlockDevice": path.is_block_device(),
    }
    if not path.exists() and volume.type == "":
        os.makedirs(path, exist_ok=True)  # noqa: PTH103 - as container runtimes do for a bind mount
    if not is_right.get(volume.type, False):
        raise PodSpecError(f'volume "{volume.name}": hostPath {volume.path} is not a {volume.type}')
