"""Image stores of containerd, kept in the user's cache folder so that large images are imported once.

Input: archives of images that rarely change, such as Ray's. A store is the folder of a containerd that has imported them and
has ended. `lay_out` makes the folder of a new node from it: databases are copied, and the layers, which containerd and
overlay mounts only read, are bind-mounted, because removing a gigabyte of small files can take half a minute. A store is
there completely or not at all. Used by node_supervisor.py and node_root.py.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

KEPT = 2
"""Stores that stay: two checkouts may have images of two versions."""
LAYERS = "snapshots"
"""Folder of the unpacked layers, a folder with a number each."""
BLOBS = "blobs"
"""Folder of the layers as they are in the archive: files that never change."""


def store_of(cache: Path, archives: Iterable[Path], snapshotter: str, packages: Path) -> Path:
    """The folder of the store with these images; it need not exist. `packages` names the version of containerd."""
    words = [snapshotter, packages.name]
    for archive in archives:
        status = archive.stat()
        words.append(f"{archive} {status.st_size} {status.st_mtime_ns}")
    return cache / sha256("\n".join(words).encode()).hexdigest()[:16]


def lay_out(store: Path, target: Path) -> list[Path]:
    """Make `target` from the store, all but the layers: the folders that are to be mounted there, relative to both."""
    layers: list[Path] = []
    for folder, names, files in os.walk(store):
        place = Path(folder).relative_to(store)
        (target / place).mkdir(exist_ok=True, parents=True)
        for file in files:
            _link_or_copy(store / place / file, target / place / file, is_constant=BLOBS in place.parts)
        if place.name == LAYERS:
            layers += [place / name for name in names]
            for name in names:
                (target / place / name).mkdir()
            names.clear()  # not walked
    store.touch()
    return layers


def _link_or_copy(source: Path, target: Path, *, is_constant: bool) -> None:
    if is_constant:
        try:
            os.link(source, target)
        except OSError:  # on another disk
            shutil.copy2(source, target)
    else:
        shutil.copy2(source, target)


def keep(folder: Path, store: Path) -> None:
    """Make the store from the folder of a containerd that has ended; without effect if it is on another disk."""
    store.parent.mkdir(parents=True, exist_ok=True)
    new = store.with_name(f".{store.name}.{os.getpid()}")
    if subprocess.run(["cp", "-a", "--link", folder, new], capture_output=True, check=False).returncode == 0:
        for database in new.rglob("*.db"):
            if LAYERS not in database.relative_to(new).parts:  # the folder's containerd goes on writing to its own
                shutil.copy2(database, database.with_suffix(".copy"))
                database.with_suffix(".copy").replace(database)
        if not store.exists():
            new.rename(store)
    shutil.rmtree(new, ignore_errors=True)
    stores = sorted(store.parent.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in stores[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
