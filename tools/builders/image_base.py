"""Base image from Debian packages, for machines without access to an image registry.

Merges the files of Python's packages and their dependencies into one layer of a docker-archive, with the files that maintainer
scripts would write. Needs no root. The label `io.raytide.base` marks all images made from it: their base is not the one that the
Dockerfile pins, so they are for tests. Called by image.py; node_images.py and kind_image.py use its parts.
"""

import copy
import hashlib
import io
import json
import platform
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import debian_packages

PACKAGES = (
    "base-files", "base-passwd", "bash", "ca-certificates", "coreutils", "dash", "findutils", "libc-bin", "libstdc++6", "netbase",
    "python-is-python3", "python3", "python3-venv", "sed", "tzdata",
)  # fmt: skip
"""Python, the programs in the Dockerfile's commands, and other parts of the pinned image that Python packages need."""
LABEL = "io.raytide.base"
LABELS = {LABEL: "debian-packages"}
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "ppc64le": "ppc64le", "s390x": "s390x"}
"""Names of architectures in image configurations by those of the kernel."""

MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Folders that are links into /usr, although some packages have files there."""
LEFT_OUT = ("usr/share/doc/", "usr/share/man/", "usr/share/info/", "usr/share/locale/", "usr/share/lintian/")
COPIES = {
    "etc/passwd": "usr/share/base-passwd/passwd.master",
    "etc/group": "usr/share/base-passwd/group.master",
    "etc/nsswitch.conf": "usr/share/base-files/nsswitch.conf",
}
LINKS = {"var/run": "/run", "var/lock": "/run/lock"}
"""Files that maintainer scripts copy (`COPIES`), and links that they create."""
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
TRUSTED = "usr/share/ca-certificates/"


class Layer:
    """A tar archive that has each path once."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self._names: set[str] = set()
        self._kept: dict[str, bytes] = {}
        """Content of files that `finish` copies."""
        for name, target in LINKS.items():
            self._add_link(name, target)

    def add_package(self, files: Iterable[tuple[tarfile.TarInfo, bytes | None]]) -> None:
        """Add the files of a package that no earlier package has."""
        for member, content in files:
            name = merged_path(member.name)
            if name in {"", *MERGED} or name.startswith(LEFT_OUT) or name in self._names:
                continue
            if content is not None and (name in COPIES.values() or name.startswith(TRUSTED)):
                self._kept[name] = content
            entry = copy.copy(member)
            entry.name = name
            entry.linkname = merged_path(member.linkname) if member.islnk() else member.linkname
            self._add(entry, content)

    def finish(self) -> None:
        """Add the files that maintainer scripts create."""
        for folder in MERGED:
            if any(name.startswith(f"usr/{folder}/") for name in self._names):
                self._add_link(folder, f"usr/{folder}")
        if "usr/bin/sh" not in self._names:
            self._add_link("usr/bin/sh", "dash")
        for name, source in COPIES.items():
            if source in self._kept:
                self._add_file(name, self._kept[source])
        trusted = (self._kept[name] for name in sorted(self._kept) if name.startswith(TRUSTED))
        self._add_file(CERTIFICATES, b"".join(trusted))
        for name, mode in {"tmp": 0o1777, "var/tmp": 0o1777, "proc": 0o755, "sys": 0o755, "dev": 0o755}.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            self._add(entry, None)

    def _add_link(self, name: str, target: str) -> None:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, target, 0o777
        self._add(entry, None)

    def _add_file(self, name: str, content: bytes) -> None:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        self._add(entry, content)

    def _add(self, entry: tarfile.TarInfo, content: bytes | None) -> None:
        if entry.name not in self._names:
            self._names.add(entry.name)
            self._archive.addfile(entry, None if content is None else io.BytesIO(content))


def merged_path(name: str) -> str:
    """A path of a package as it is on a system with merged /usr, relative to the root."""
    path = name.removeprefix(".").strip("/")
    return f"usr/{path}" if path.partition("/")[0] in MERGED and "/" in path else path


def entries(package: Path) -> Iterator[tuple[tarfile.TarInfo, bytes | None]]:
    """The entries of a package, regular files with their content."""
    with debian_packages.files_of(package) as files:
        for member in files:
            reader = files.extractfile(member) if member.isreg() else None
            yield member, reader.read() if reader else None


def write_archive(
    layer: Path, target: Path, reference: str, config: Mapping[str, Any], *, other_names: Sequence[str] = ()
) -> None:
    """Write a docker-archive with one layer."""
    with layer.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    image = {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created_by": "Debian packages", "created": "1970-01-01T00:00:00Z"}],
    }
    content = json.dumps(image).encode()
    config_name = f"{hashlib.sha256(content).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [reference, *other_names], "Layers": [f"{digest}.tar"]}]
    with tarfile.open(target, "w") as archive:
        for name, text in ((config_name, content), ("manifest.json", json.dumps(manifest).encode())):
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
        archive.add(layer, f"{digest}.tar")


def build(target: Path, reference: str) -> None:
    """Download the packages and write the image to `target`; raises DebianError."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="base-") as work:
        packages = debian_packages.Apt(Path(work)).download(PACKAGES)
        layer = Path(work, "layer.tar")
        with tarfile.open(layer, "w", format=tarfile.PAX_FORMAT) as archive:
            made = Layer(archive)
            for package in packages:
                made.add_package(entries(package))
            made.finish()
        config = {"Cmd": ["python3"], "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"], "Labels": LABELS}
        write_archive(layer, target, reference, config)
