"""How do planned volumes become directories on this machine, and how do they change under a running pod?

Takes planned volumes and a directory of the pod; returns the host path of each volume. Files made from API objects
change all at once or not at all: they live in a numbered directory behind a symbolic link that is replaced in one step,
as in a kubelet's own volumes, so a reader never sees half of an update. Called by podworker.py before the first
container and whenever the sources may have changed.
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from raytide.sandbox.kubelet.podspec import BadSpec
from raytide.sandbox.kubelet.volumes import EmptyVolume, Files, FilesVolume, HostVolume, Volume

_CURRENT: Final = "..data"
_GENERATION_PREFIX: Final = "..v"


def volume_paths(volumes: Iterable[Volume], directory: Path) -> dict[str, Path]:
    """Where each volume is on this machine, by name."""
    return {v.name: Path(v.path) if isinstance(v, HostVolume) else directory / v.name for v in volumes}


def write_volumes(volumes: Iterable[Volume], directory: Path) -> None:
    """Make every volume what it is planned to be; raises BadSpec and OSError."""
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
    """Bring volumes made of API objects up to date, leaving all others alone."""
    for volume in volumes:
        if isinstance(volume, FilesVolume):
            write_files(volume.files, directory / volume.name)


def write_files(files: Files, place: Path) -> bool:
    """Replace the whole content of `place` in one step; False when it was that already."""
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
    """The real path to mount: a subPath is made when missing, a link to the current file is followed."""
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
    """Keep exactly one visible link per top-level name; what a container's mount has put there stays."""
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
        raise BadSpec(f'volume "{volume.name}": hostPath {volume.path!r} is not absolute')
    if volume.type == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True, mode=0o755)
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
        raise BadSpec(f'volume "{volume.name}": hostPath {volume.path} is not a {volume.type}')
