"""Images for the pods of a node that are not pulled from a registry: Ray and the pause image.

Each is a docker-archive in the cache folder, built once. The Ray image has what pods use of rayproject/ray: Python, Ray with its
dashboard, bash, wget, and user 1000 with a home folder. It is made of Debian packages and of wheels from the package registry.
Called by node.py, e2e.py and kind_image.py.
"""

import io
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import debian_packages
import image_base
from build_cache import cache_folder, create_once
from environments import BIN
from node_config import PAUSE_IMAGE

RAY_PACKAGES = (*image_base.PACKAGES, "grep", "hostname", "procps", "wget")
RAY_USER = 1000
RAY_HOME = "home/ray"
DIST_PACKAGES = "usr/local/lib/python{version}/dist-packages"
"""Where Debian's Python finds packages that Debian did not install."""
REVISION = 3
"""Increased with each change of this file that changes an image."""
Entry = tuple[tarfile.TarInfo, bytes | None]


class ImageError(Exception):
    """An image cannot be built; the message is one line."""


def pause(program: Path) -> Path:
    """The archive of the pause image; raises ImageError."""
    name = f"pause-{REVISION}-{sha256(program.read_bytes()).hexdigest()[:12]}.tar"
    return once(name, lambda folder, target: _write_pause(program, folder, target))


def _write_pause(program: Path, folder: Path, target: Path) -> None:
    layer = folder / "layer.tar"
    with tarfile.open(layer, "w") as archive:
        entry, content = file_entry("pause", program.read_bytes(), 0o755)
        archive.addfile(entry, io.BytesIO(content or b""))
    image_base.write_archive(layer, target, PAUSE_IMAGE, {"Entrypoint": ["/pause"], "User": "65535:65535"})


def ray(reference: str) -> Path:
    """The archive of the Ray image with this name, such as rayproject/ray:2.60.0; the tag is Ray's version. Raises ImageError."""
    version = reference.rpartition(":")[2]
    name = f"ray-{version}-{REVISION}-{debian_packages.release()}.tar"
    return once(name, lambda folder, target: _write_ray(reference, version, folder, target))


def once(name: str, write: Callable[[Path, Path], None]) -> Path:
    """The archive with this name; if it does not exist, `write` writes it, with a temporary folder. Raises ImageError."""

    def create(folder: Path) -> Path:
        write(folder, folder / name)
        return folder / name

    try:
        return create_once(cache_folder("node") / "images" / name, f"building {name}", create)
    except (OSError, debian_packages.DebianError, tarfile.TarError) as error:
        raise ImageError(f"{name} cannot be built: {error}") from error


def _write_ray(reference: str, version: str, folder: Path, target: Path) -> None:
    packages = debian_packages.Apt(folder / "apt").download(RAY_PACKAGES)
    layer = folder / "layer.tar"
    with tarfile.open(layer, "w", format=tarfile.PAX_FORMAT) as archive:
        made = image_base.Layer(archive)
        python = ""
        for package in packages:
            entries = list(image_base.entries(package))
            python = python or python_version(member.name for member, _ in entries)
            made.add_package(with_user(entries))
        _install(f"ray[default]=={version}", python, folder / "ray")
        made.add_package(tree(folder / "ray", DIST_PACKAGES.format(version=python)))
        made.add_package(home())
        made.finish()
    config = {
        "Cmd": ["bash"],
        "Env": [
            "PATH=/usr/local/bin:/usr/bin:/bin",
            "HOME=/home/ray",
            "LANG=C.UTF-8",
            "PYTHONUNBUFFERED=1",
            "RAY_raylet_start_wait_time_s=120",  # with the default, workers that start together on two busy CPUs time out
        ],
        "User": str(RAY_USER),
        "WorkingDir": f"/{RAY_HOME}",
    }
    image_base.write_archive(layer, target, reference, config)


def python_version(names: Iterator[str]) -> str:
    """Version such as 3.11 if these are the paths of the package with Debian's Python; else empty."""
    return next((found[1] for name in names if (found := re.search(r"usr/bin/python(3\.\d+)$", name))), "")


def with_user(entries: list[Entry]) -> Iterator[Entry]:
    """The entries, and /etc/passwd and /etc/group: Debian's initial lists with the user `ray`."""
    lines = {
        "passwd.master": f"ray:x:{RAY_USER}:{RAY_USER}::/{RAY_HOME}:/bin/bash\n",
        "group.master": f"ray:x:{RAY_USER}:\n",
    }
    for member, content in entries:
        yield member, content
        name = member.name.rpartition("/")[2]
        if content is not None and name in lines:
            yield file_entry(f"etc/{name.partition('.')[0]}", content + lines[name].encode())


def home() -> Iterator[Entry]:
    """The home folder of the user `ray`."""
    for name, owner in (("home", 0), (RAY_HOME, RAY_USER)):
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, 0o755, owner, owner
        yield entry, None


def file_entry(name: str, content: bytes, mode: int = 0o644) -> Entry:
    """A file that root owns."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    return entry, content


def tree(folder: Path, target: str) -> Iterator[Entry]:
    """Files that uv installed in `folder`: scripts in /usr/local/bin, with Debian's Python as interpreter, the rest in `target`."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_dir() or path.is_symlink():
            continue
        mode = 0o755 if os.access(path, os.X_OK) else 0o644
        content = path.read_bytes()
        if name.parts[0] == "bin":
            yield file_entry(f"usr/local/bin/{name.name}", with_interpreter(content), mode)
        else:
            yield file_entry(f"{target}/{name}", content, mode)


def with_interpreter(script: bytes) -> bytes:
    """The script with Debian's Python as interpreter; files that are not Python scripts are unchanged."""
    first, _, rest = script.partition(b"\n")
    if not first.startswith(b"#!"):
        return script
    if first == b"#!/bin/sh" and b"python" in rest.partition(b"\n")[0]:  # the path is too long for the kernel
        rest = rest.partition(b"'''\n")[2] if b"'''\n" in rest else rest
    elif b"python" not in first:
        return script
    return b"#!/usr/bin/python3\n" + rest


def _install(package: str, python: str, folder: Path) -> None:
    """Install wheels for this version of Python, with bytecode if it is the running one: user 1000 cannot write bytecode."""
    options = ["--quiet", "--target", folder, "--python-version", python, "--only-binary", ":all:"]
    command = [BIN / "uv", "pip", "install", "--python", sys.executable, *options, package]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImageError(f"{package} cannot be installed: {debian_packages.last_line(done.stderr)}")
    if python == "{}.{}".format(*sys.version_info):
        compile_all = [sys.executable, "-m", "compileall", "-qq", "-j", "0", "--invalidation-mode", "unchecked-hash"]
        # Not checked: some wheels have templates, which do not compile.
        subprocess.run([*compile_all, "-s", folder, folder], capture_output=True, check=False)
