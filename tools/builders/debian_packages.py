"""Debian packages without installing them: download packages with all of their dependencies, and read their files.

`Apt` runs apt-get with the machine's configuration, but with lists, cache and package state in a folder of its own: nothing on the
machine changes, no root is needed, and what is downloaded depends on the release only, not on the installed packages. Errors are
`DebianError` with one line. Used by the builders.
"""

import platform
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

OPTIONS = {
    "APT::Install-Recommends": "false",
    "APT::Sandbox::User": "root",  # the default user _apt may not read the folder
    "Acquire::Languages": "none",
    "Acquire::Retries": "3",
    "Dir::State::status": "/dev/null",
}
PROGRAMS = ("apt-get", "dpkg-deb")


class DebianError(Exception):
    """Packages cannot be downloaded or unpacked; the message is one line."""


def missing_programs() -> list[str]:
    """Programs of Debian's package tools that are not on PATH."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


def release() -> str:
    """Name of the machine's release and architecture, such as `debian-bookworm-x86_64`."""
    try:
        found = platform.freedesktop_os_release()
    except OSError:
        found = {}
    words = (found.get("ID", "linux"), found.get("VERSION_CODENAME") or found.get("VERSION_ID", "unknown"))
    return "-".join((*words, platform.machine()))


class Apt:
    """apt-get with a state of its own in `folder`, which the caller removes."""

    def __init__(self, folder: Path) -> None:
        if missing := missing_programs():
            raise DebianError(f"there is no {' and no '.join(missing)} on PATH, which Debian and Ubuntu have")
        for name in ("lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._settings = OPTIONS | {"Dir::State::lists": str(folder / "lists"), "Dir::Cache": str(folder / "cache")}
        self._run("update")

    def download(self, packages: tuple[str, ...], is_wanted: Callable[[str], bool] = lambda _name: True) -> list[Path]:
        """Files of these packages and of their dependencies for whose names `is_wanted` is true, dependencies first."""
        listed = self._run("install", "--yes", "--quiet=2", "--print-uris", *packages)
        files = re.findall(r"^'[^']+' (\S+)", listed, re.MULTILINE)
        names = [name for file in files if is_wanted(name := file.partition("_")[0])]
        archives = self._folder / "archives"
        archives.mkdir(exist_ok=True)
        self._run("download", *names, cwd=archives)
        found = {path.name.partition("_")[0]: path for path in archives.iterdir()}
        return [found[name] for name in names]

    def _run(self, *words: str, cwd: Path | None = None) -> str:
        settings = [word for name, value in self._settings.items() for word in ("-o", f"{name}={value}")]
        command = ["apt-get", "--quiet", *settings, *words]
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
        if done.returncode:
            raise DebianError(f"apt-get {words[0]} failed: {last_line(done.stderr) or last_line(done.stdout)}")
        return done.stdout


def last_line(text: str) -> str:
    """The last line that is not blank."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def unpack(packages: list[Path], folder: Path) -> None:
    """Write the files of these packages to `folder`, without running maintainer scripts."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in packages:
        done = subprocess.run(["dpkg-deb", "-x", package, folder], capture_output=True, text=True, check=False)
        if done.returncode:
            raise DebianError(f"{package.name} cannot be unpacked: {last_line(done.stderr)}")


@contextmanager
def files_of(package: Path) -> Iterator[tarfile.TarFile]:
    """The files of a package as a tar archive, which can be read once."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as unpacking:
        stream: IO[bytes] | None = unpacking.stdout
        assert stream is not None  # noqa: S101 - a pipe
        with tarfile.open(fileobj=stream, mode="r|") as files:
            yield files
        stream.read()  # padding after the archive: without a reader, dpkg-deb fails
    if unpacking.returncode:
        raise DebianError(f"{package.name} cannot be read by dpkg-deb")
