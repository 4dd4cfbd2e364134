"""A root file system of unpacked Debian packages in the user's cache folder; nothing is installed on the machine.

Input: names of packages. Output: a folder with these packages and all that they depend on, down to libc, so that a process
can have it as its root. Maintainer scripts do not run. A folder is made once per set of names and Debian release; it
appears complete or not at all, and two calls at once wait for each other. Called by tools/node.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

import debian_packages
import go_build
from environments import cache_folder

EMPTY_FOLDERS = ("dev", "etc", "mnt", "proc", "root", "run", "sys", "tmp", "var")
"""Folders that packages leave to Debian's installer."""
MERGED = ("bin", "lib", "lib64", "sbin")
"""Links into /usr, as Debian's installer makes them: packages name the same program by both paths."""


def provide(names: Iterable[str], environ: Mapping[str, str] = os.environ) -> Path:
    """The folder with these packages and their dependencies; raises DebianError or OSError."""
    wanted = tuple(sorted(set(names)))
    cache = cache_folder("debian", environ)
    folder = cache / digest(wanted, debian_packages.release())
    with go_build.locked(cache):
        if not folder.exists():
            print(f"unpacking Debian packages: {' '.join(wanted)} …", flush=True)
            for left in cache.glob(f"{go_build.UNFINISHED}*"):
                shutil.rmtree(left)
            with tempfile.TemporaryDirectory(dir=cache, prefix=go_build.UNFINISHED) as made:
                packages = debian_packages.Apt(Path(made)).download(wanted)
                _unpack(packages, Path(made, "root"))
                Path(made, "root").replace(folder)
    return folder


def digest(names: Iterable[str], release: str) -> str:
    """Changes with the names and the release, which includes the architecture."""
    return f"{release}-{sha256(' '.join((*MERGED, *names)).encode()).hexdigest()[:12]}"


def _unpack(packages: Iterable[Path], root: Path) -> None:
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
