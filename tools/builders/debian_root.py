"""Root file systems of unpacked Debian packages in the cache folder; nothing is installed on the machine.

Input: names of packages. Output: a folder with these packages and all of their dependencies including libc, which can be the
root of a process. Maintainer scripts do not run. Called by tools/node and tools/kind.
"""

import os
import subprocess
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

import debian_packages
from build_cache import cache_folder, create_once

EMPTY_FOLDERS = ("dev", "etc", "mnt", "proc", "root", "run", "sys", "tmp", "var")
"""Folders that Debian's installer makes."""
MERGED = ("bin", "lib", "lib64", "sbin")
"""Links into /usr, as Debian's installer makes them: packages name the same program by both paths."""


def provide(names: Iterable[str], environ: Mapping[str, str] = os.environ) -> Path:
    """The folder with these packages and their dependencies; raises DebianError or OSError."""
    wanted = tuple(sorted(set(names)))
    folder = cache_folder("debian", environ) / digest(wanted, debian_packages.release())
    return create_once(folder, f"unpacking Debian packages: {' '.join(wanted)}", lambda work: _unpack(wanted, work))


def digest(names: Iterable[str], release: str) -> str:
    """Name of the folder: the release, which includes the architecture, and a hash of the names."""
    return f"{release}-{sha256(' '.join((*MERGED, *names)).encode()).hexdigest()[:12]}"


def _unpack(names: tuple[str, ...], work: Path) -> Path:
    packages, root = debian_packages.Apt(work).download(names), work / "root"
    for name in MERGED:
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for package in packages:  # `dpkg-deb --extract` would replace the links by folders
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as reading:
            command = ["tar", "--extract", "--keep-directory-symlink", "--directory", root]
            done = subprocess.run(command, stdin=reading.stdout, capture_output=True, text=True, check=False)
        if reading.returncode or done.returncode:
            reason = debian_packages.last_line(done.stderr) or "dpkg-deb failed"
            raise debian_packages.DebianError(f"{package.name} cannot be unpacked: {reason}")
    for name in EMPTY_FOLDERS:
        (root / name).mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    root.chmod(0o755)
    return root
