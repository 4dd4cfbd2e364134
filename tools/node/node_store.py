"""Image stores of containerd in the cache folder, so that large images are imported once.

Input: archives of images that rarely change, such as Ray's. A store is the folder of a containerd that has imported them and has
ended. `prepare_folder` creates the folder of a new node from it: databases are copied, and layers, which are only read, are to be
bind-mounted, because copying and removing a gigabyte of small files can take half a minute. Used by node_supervisor.py and
docker_supervisor.py.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

KEPT = 2
"""Number of stores in the cache folder: two checkouts may have images of two versions."""
LAYERS = "snapshots"
"""Folder of the unpacked layers, each a folder with a number."""
BLOBS = "blobs"
"""Folder of the layers as they are in the archive, in files that never change."""


def store_of(cache: Path, archives: Iterable[Path], snapshotter: str, packages: Path) -> Path:
    """The folder of the store with these images; it need not exist. The name of `packages` stands for the version of containerd."""
    words = [snapshotter, packages.name]
    for archive in archives:
        status = archive.stat()
        words.append(f"{archive} {status.st_size} {status.st_mtime_ns}")
    return cache / sha256("\n".join(words).encode()).hexdigest()[:16]


def prepare_folder(store: Path, target: Path) -> list[Path]:
    """Create `target` from the store without its layers; returns the folders to mount there, relative to both."""
    layers: list[Path] = []
    for folder, names, files in os.walk(store):
        path = Path(folder).relative_to(store)
        (target / path).mkdir(exist_ok=True, parents=True)
        for file in files:
            _link_or_copy(store / path / file, target / path / file, is_constant=BLOBS in path.parts)
        if path.name == LAYERS:
            layers += [path / name for name in names]
            for name in names:
                (target / path / name).mkdir()
            names.clear()  # os.walk does not enter them
    store.touch()
    return layers


def _link_or_copy(source: Path, target: Path, *, is_constant: bool) -> None:
    if is_constant:
        with contextlib.suppress(OSError):  # on another disk
            os.link(source, target)
            return
    shutil.copy2(source, target)


def keep(folder: Path, store: Path) -> None:
    """Create the store from the folder of a containerd that has ended; without effect if it is on another disk."""
    store.parent.mkdir(parents=True, exist_ok=True)
    new = store.with_name(f".{store.name}.{os.getpid()}")
    if subprocess.run(["cp", "-a", "--link", folder, new], capture_output=True, check=False).returncode == 0:
        for database in new.rglob("*.db"):
            if (
                LAYERS not in database.relative_to(new).parts
            ):  # the next containerd of this folder writes to its databases
                shutil.copy2(database, database.with_suffix(".copy"))
                database.with_suffix(".copy").replace(database)
        if not store.exists():
            new.rename(store)
    shutil.rmtree(new, ignore_errors=True)
    stores = sorted(store.parent.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in stores[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
