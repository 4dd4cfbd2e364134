"""Check of the contents of the container image, read from its docker-archive.

`read_image` returns the configuration and the files of the image, `problems` what is wrong with them: user, setuid files, shells,
packages, size, and differences between the installed package and the wheel that `pip install .` installs. Nothing of the image is
executed. Called by `make image`.
"""

import hashlib
import json
import re
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

USER: Final = "1000:100"
SET_ID: Final = 0o6000
LARGEST_MB: Final = 80
"""Limit for the layers above the base image, uncompressed."""
ENVIRONMENT: Final = "opt/raytide/"
NOT_INSIDE: Final = ("raytide_sandbox", "raytide-sandbox")
SHELL: Final = re.compile(r"(?:usr/(?:local/)?)?s?bin/(?:ash|bash|busybox|dash|ksh|rbash|sh|zsh)")
MACHINE_SETTINGS: Final = ("etc/pip.conf", "root/.config/pip/pip.conf", "root/.netrc")
CAPABILITY: Final = "SCHILY.xattr.security.capability"
WHITEOUT: Final = ".wh."
OPAQUE: Final = ".wh..wh..opq"


@dataclass(frozen=True, slots=True)
class File:
    """A path of the image."""

    mode: int
    layer: int
    is_regular: bool = True
    digest: str = ""
    """SHA-256 in hex, of regular files above the base image."""
    has_capability: bool = False


@dataclass(frozen=True, slots=True)
class Image:
    """Configuration and files of an image."""

    config: Mapping[str, Any]
    files: Mapping[str, File]
    own_bytes: int
    """Size of the files in the layers above the base image."""
    total_bytes: int


def read_image(archive: Path, base_layers: int) -> Image:
    """Read a docker-archive whose first `base_layers` layers are those of the base image."""
    files: dict[str, File] = {}
    sizes: list[int] = []
    with tarfile.open(archive) as outer:
        (manifest,) = json.load(_content(outer, "manifest.json"))
        config = json.load(_content(outer, manifest["Config"]))["config"]
        for index, name in enumerate(manifest["Layers"]):
            with tarfile.open(fileobj=_content(outer, name)) as layer:
                sizes.append(_add_layer(files, layer, index, is_own=index >= base_layers))
    return Image(config, files, own_bytes=sum(sizes[base_layers:]), total_bytes=sum(sizes))


def _content(archive: tarfile.TarFile, name: str) -> Any:
    content = archive.extractfile(name)
    if content is None:
        raise ValueError(f"{name} is no file of the archive")
    return content


def _add_layer(files: dict[str, File], layer: tarfile.TarFile, index: int, *, is_own: bool) -> int:
    """Apply a layer to the files of the layers below; returns its size in bytes."""
    size = 0
    for member in layer:
        path = member.name.removeprefix("./").strip("/")
        folder, _, name = path.rpartition("/")
        if name.startswith(WHITEOUT):
            removed = folder if name == OPAQUE else f"{folder}/{name.removeprefix(WHITEOUT)}".lstrip("/")
            for other in [other for other in files if f"{other}/".startswith(f"{removed}/")]:
                if files[other].layer < index and (other != removed or name != OPAQUE):
                    del files[other]
            continue
        digest = ""
        if member.isreg():
            size += member.size
            if is_own:
                digest = hashlib.file_digest(_content(layer, member.name), "sha256").hexdigest()
        has_capability = CAPABILITY in member.pax_headers
        files[path] = File(member.mode, index, member.isreg() or member.islnk(), digest, has_capability)
    return size


# --- the checks ----------------------------------------------------------------------------------------------------------


def problems(image: Image, wheel: Path, lock: Path) -> list[str]:
    """All problems, one line each."""
    return [
        *start_problems(image.config),
        *privilege_problems(image.files),
        *shell_problems(image.files),
        *foreign_problems(image.files),
        *package_problems(image.files, lock),
        *wheel_problems(image.files, wheel),
        *size_problems(image),
    ]


def start_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """Problems of user, entry point and command."""
    if config.get("User") != USER:
        yield f"it runs as {config.get('User') or 'root'}, not as {USER}"
    started = [config.get("Entrypoint"), config.get("Cmd")]
    if started != [["raytide"], ["operator"]]:
        yield f"it starts {started}, not raytide operator"


def privilege_problems(files: Mapping[str, File]) -> Iterator[str]:
    """Files with which a process changes its user, group or capabilities."""
    for path, file in files.items():
        if file.is_regular and file.mode & SET_ID:
            yield f"/{path} is setuid or setgid ({file.mode:o})"
        if file.has_capability:
            yield f"/{path} has file capabilities"


def shell_problems(files: Mapping[str, File]) -> Iterator[str]:
    """Shells, which neither the operator nor the autoscaler needs."""
    yield from (f"/{path} is a shell" for path in files if SHELL.fullmatch(path))


def foreign_problems(files: Mapping[str, File]) -> Iterator[str]:
    """Files of the sandbox, and settings of the machine that built the image."""
    for path in files:
        if any(name in path for name in NOT_INSIDE):
            yield f"/{path} is of the sandbox"
        if path in MACHINE_SETTINGS:
            yield f"/{path} is a setting of the machine that built the image"


def package_problems(files: Mapping[str, File], lock: Path) -> Iterator[str]:
    """Differences between the installed distributions and the lock."""
    pattern = re.compile(rf"{ENVIRONMENT}lib/python[\d.]+/site-packages/([\w.]+)-([^/-]+)\.dist-info/METADATA")
    found = {(name.lower().replace("_", "-"), version) for path in files for name, version in pattern.findall(path)}
    pins = re.findall(r"(?m)^([\w.-]+)==(\S+)", lock.read_text())
    locked = {(name.lower().replace("_", "-"), version) for name, version in pins}
    own = {pair for pair in found if pair[0] == "raytide"}
    for name, version in sorted(found - locked - own):
        yield f"{name} {version} is installed and not in {lock.name}"
    for name, version in sorted(locked - found):
        yield f"{name} {version} of {lock.name} is not installed"


def wheel_problems(files: Mapping[str, File], wheel: Path) -> Iterator[str]:
    """Differences between the installed package, without bytecode, and the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        packed = {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}
    folder = re.compile(rf"{ENVIRONMENT}lib/[^/]+/site-packages/")
    packages = next((match[0] for path in files if (match := folder.match(path))), "")
    for name, digest in packed.items():
        installed = files.get(f"{packages}{name}")
        if installed is None:
            yield f"{name} of the wheel is not installed"
        elif installed.digest != digest and not name.endswith(".dist-info/RECORD"):  # the installer adds lines to it
            yield f"{name} is not as in the wheel"
    own = f"{packages}raytide/"
    for path, file in files.items():
        if path.startswith(own) and file.digest and not path.endswith(".pyc") and path[len(packages) :] not in packed:
            yield f"{path[len(packages) :]} is not in the wheel"


def size_problems(image: Image) -> Iterator[str]:
    """The layers above the base image exceed `LARGEST_MB`."""
    if image.own_bytes > LARGEST_MB * 10**6:
        yield f"its layers have {image.own_bytes / 1e6:.1f} MB, more than {LARGEST_MB} MB"
